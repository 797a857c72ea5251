"""Cell process and ingress: the real client and the real server over sockets, in one event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from datum_compute.api.traffic import Backend, SleepPolicy
from datum_compute.app import state_directory
from datum_compute.app.ingress_client import IngressClient
from datum_compute.app.ingress_server import (
    CONFIGURATION_FILE,
    SOCKET_FILE,
    prepare_start,
    serve_ingress,
)
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.driver import MachineState
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.ingress.protocol import LinkClosed
from testkit.conformance.driver import SPEC
from tests.ingress.ingress_host import (
    CELL,
    MACHINE_ID,
    REQUEST,
    Host,
    eventually,
    request,
    run_in_background,
)
from tests.stream_servers import LOOPBACK, serve_tcp

OWNER = "cell/dfw ns/web"
POLICY = SleepPolicy(0.2, "pause", 10.0)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    driver = SimulatedDriver(MachineTable(), now=time.monotonic)
    await driver.start(MACHINE_ID, SPEC)
    async with AsyncExitStack() as tasks:
        yield Host(directory, tasks, driver, WakeHistory(time.time, time.monotonic))


@asynccontextmanager
async def a_machine(name: str = "one", sleep: SleepPolicy | None = None) -> AsyncIterator[Backend]:
    """A backend that replies to each request with its name, and echoes other input."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1024):
            if chunk == REQUEST:
                writer.write(f"HTTP/1.1 200 OK\r\n\r\n{name}".encode())
                writer.close()
                return
            writer.write(chunk)

    async with serve_tcp(reply) as port:
        yield Backend(CELL, MACHINE_ID, LOOPBACK, port, sleep)


async def publish(client: IngressClient, backends: Sequence[Backend], last_port: int = 0) -> int:
    return (await client.publish(OWNER, "http", backends, last_port))[1]


async def test_the_first_published_port_starts_an_ingress(host: Host) -> None:
    async with a_machine() as machine, host.connected() as client:
        port = await publish(client, [machine])
        assert await request(port) == b"HTTP/1.1 200 OK\r\n\r\none"
        assert (host.directory / SOCKET_FILE).stat().st_mode & 0o077 == 0
        assert (host.directory / CONFIGURATION_FILE).stat().st_mode & 0o077 == 0


async def test_a_port_is_served_while_the_process_of_the_cell_is_replaced(host: Host) -> None:
    async with a_machine() as machine:
        async with host.connected() as client:
            port = await publish(client, [machine])
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(b"before")
            assert await reader.read(6) == b"before"
        assert (await request(port)).endswith(b"one")
        async with host.connected() as client:
            writer.write(b"after")
            assert await reader.read(5) == b"after"
            await client.withdraw(OWNER, ["http"])
            assert (await request(port)).endswith(b"one"), "not published again yet"
            assert await publish(client, [machine]) == port, "a port keeps its number"
        writer.close()


async def test_an_ingress_starts_from_the_stored_configuration_alone(host: Host) -> None:
    async with a_machine() as machine:
        async with host.connected() as client:
            port = await publish(client, [machine])
        host.stops[-1].set()
        await eventually(lambda: not (host.directory / SOCKET_FILE).exists())
        await host.start_ingress()
        assert (await request(port)).endswith(b"one")


async def test_a_withdrawn_port_is_closed(host: Host) -> None:
    async with a_machine() as machine, host.connected() as client:
        port = await publish(client, [machine])
        await client.withdraw(OWNER)
        with pytest.raises(OSError):  # noqa: PT011 - refused
            await asyncio.open_connection(LOOPBACK, port)


async def test_a_port_whose_owner_was_deleted_without_the_cell_process_is_closed(
    host: Host,
) -> None:
    async with a_machine() as machine:
        async with host.connected() as client:
            port = await publish(client, [machine])
            await client.publish("cell/dfw ns/api", "http", [machine], 0)
        async with host.connected() as client:
            await eventually(lambda: client._link is not None)
            await client.withdraw_unknown_owners(lambda: ["cell/dfw ns/api"])
            with pytest.raises(OSError):  # noqa: PT011 - refused
                await asyncio.open_connection(LOOPBACK, port)


async def test_a_connection_wakes_a_sleeping_machine_once_it_is_idle_long_enough(
    host: Host,
) -> None:
    async with a_machine(sleep=POLICY) as machine, host.connected() as client:
        port = await publish(client, [machine])
        for _ in range(2):
            await eventually(host.is_asleep)
            assert (await request(port)).endswith(b"one")
            assert host.history.last[MACHINE_ID].failure == ""


async def test_a_machine_with_an_open_connection_stays_awake(host: Host) -> None:
    async with a_machine(sleep=POLICY) as machine, host.connected() as client:
        port = await publish(client, [machine])
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        for _ in range(5):
            writer.write(b"ping")
            assert await reader.read(4) == b"ping"
            await asyncio.sleep(2 * POLICY.idle_after_s)
            state = await host.driver.observe(MACHINE_ID)
            assert isinstance(state, MachineState)
            assert state.phase == "Running"
        writer.close()


async def test_without_the_cell_process_a_sleeping_machine_answers_503_and_a_running_one_serves(
    host: Host,
) -> None:
    async with a_machine(sleep=POLICY) as machine:
        async with host.connected() as client:
            port = await publish(client, [machine])
            other = await client.publish(
                "cell/dfw ns/api",
                "http",
                [Backend(CELL, "ns/api/1", machine.address, machine.port)],
                0,
            )
            await eventually(host.is_asleep)
        answer = await request(port)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nRetry-After: 5\r\n" in answer
        assert (await request(other[1])).endswith(b"one")
        async with host.connected():
            await eventually(partial(is_served, port))


async def is_served(port: int) -> bool:
    return (await request(port)).endswith(b"one")


async def test_a_drained_machine_keeps_its_connections_and_gets_no_new_ones(host: Host) -> None:
    async with a_machine() as machine, a_machine("two") as second, host.connected() as client:
        port = await publish(client, [machine])
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"ping")
        assert await reader.read(4) == b"ping"
        assert await client.drain(MACHINE_ID) == 1
        await publish(client, [machine, Backend(CELL, "ns/web/2", LOOPBACK, second.port)])
        assert (await request(port)).endswith(b"two")
        writer.write(b"pong")
        assert await reader.read(4) == b"pong"
        writer.close()
        await eventually(partial(has_connections, client, 0))


async def has_connections(client: IngressClient, count: int) -> bool:
    return await client.drain(MACHINE_ID) == count


async def test_a_suspended_workload_answers_503_at_once(host: Host) -> None:
    async with a_machine() as machine, host.connected() as client:
        port = await publish(client, [machine])
        client.refuse(OWNER, refused=True)
        await publish(client, [])
        assert (await request(port)).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


# --- replacement by another version


async def test_a_new_version_takes_over_while_connections_are_opened(host: Host) -> None:
    """Each request during the handover is served, and open connections continue."""
    served, stop = [], asyncio.Event()

    async def visit(port: int) -> None:
        while not stop.is_set():
            served.append(await request(port))

    async with a_machine() as machine:
        async with host.connected("1") as client:
            port = await publish(client, [machine])
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(b"before")
            assert await reader.read(6) == b"before"
        visits = [asyncio.create_task(visit(port)) for _ in range(3)]
        async with host.connected("2") as client:
            assert await publish(client, [machine]) == port
            count = len(served)
            await eventually(lambda: len(served) > count + 10)
            stop.set()
            await asyncio.gather(*visits)
            assert set(served) == {b"HTTP/1.1 200 OK\r\n\r\none"}
            writer.write(b"after")
            assert await reader.read(5) == b"after"
            await eventually(partial(has_connections, client, 1))  # of the previous process
            writer.close()
            await eventually(partial(has_connections, client, 0))
        assert len(host.stops) == 2


async def test_a_second_ingress_of_the_same_version_does_not_start(host: Host) -> None:
    async with a_machine() as machine, host.connected() as client:
        await publish(client, [machine])
        found = await asyncio.to_thread(lambda: prepare_start(host.directory, version="1"))
        assert found is None


async def test_a_damaged_configuration_is_ignored(host: Host) -> None:
    (host.directory / CONFIGURATION_FILE).write_bytes(b"{")
    async with a_machine() as machine, host.connected() as client:
        assert (await request(await publish(client, [machine]))).endswith(b"one")


async def test_ports_are_published_while_the_disk_is_full(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with a_machine(sleep=POLICY) as machine:
        with monkeypatch.context() as full:
            full.setattr(state_directory, "_replace", fail)
            full.setattr(os, "pwrite", fail)
            async with host.connected() as client:
                port = await publish(client, [machine])
                await eventually(host.is_asleep)
                assert (await request(port)).endswith(b"one")
                assert not (host.directory / CONFIGURATION_FILE).exists()
        await eventually(lambda: (host.directory / CONFIGURATION_FILE).exists())


async def test_a_machine_is_drained_when_no_ingress_runs_and_no_port_is_published(
    host: Host,
) -> None:
    async with a_machine() as machine, host.connected() as client:
        await publish(client, [machine])
        await client.withdraw(OWNER)
        host.stops[-1].set()
        await eventually(lambda: not (host.directory / SOCKET_FILE).exists())
        assert client._link is not None
        client._link.close()  # as at the end of a process
        await eventually(partial(has_connections, client, 0))


async def test_only_one_of_two_successors_takes_over(host: Host) -> None:
    async with a_machine() as machine:
        async with host.connected() as client:
            port = await publish(client, [machine])
        first = await asyncio.to_thread(lambda: prepare_start(host.directory, must_replace=True))
        assert first is not None
        second = asyncio.create_task(
            asyncio.to_thread(lambda: prepare_start(host.directory, must_replace=True))
        )
        await asyncio.sleep(0.1)
        assert not second.done(), "the first successor has the sockets"
        stop = asyncio.Event()
        async with run_in_background(serve_ingress(host.directory, first, stop), stop):
            with pytest.raises(LinkClosed):
                await second
            assert (await request(port)).endswith(b"one")


async def test_a_state_directory_with_a_long_path_is_used(host: Host) -> None:
    host.directory = host.directory / ("x" * 120)
    host.directory.mkdir(mode=0o700)
    async with a_machine() as machine, host.connected() as client:
        assert (await request(await publish(client, [machine]))).endswith(b"one")
    assert os.listdir(host.directory)
