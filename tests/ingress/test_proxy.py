"""Published ports over sockets on the loopback interface.

Each test runs with the proxy in this process, and with an ingress and its client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend
from datum_compute.app.ingress_client import IngressClient
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.local_network import connect_on_link
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.ingress.balancer import HOLD_S
from datum_compute.ingress.proxy import Proxy
from tests.ingress.ingress_host import Host
from tests.stream_servers import LOOPBACK, serve_tcp

CELL = cell_plane("dfw")
Publisher = Proxy | IngressClient

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def a_machine(name: str) -> AsyncIterator[Backend]:
    """A backend that sends its name and then echoes its input."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{name}\n".encode())
        while chunk := await reader.read(1024):
            writer.write(chunk)

    async with serve_tcp(echo) as port:
        yield Backend(CELL, name, LOOPBACK, port)


_OPEN: list[asyncio.StreamWriter] = []


@asynccontextmanager
async def proxy_in_process() -> AsyncIterator[Proxy]:
    history = WakeHistory(time.time, time.monotonic)
    created = Proxy(
        IdleScaler({}, time.monotonic, history), history, time.monotonic, connect_on_link
    )
    yield created
    await created.close()


@asynccontextmanager
async def separate_ingress(directory: Path) -> AsyncIterator[IngressClient]:
    await asyncio.to_thread(directory.mkdir, mode=0o700)
    driver = SimulatedDriver(MachineTable(), now=time.monotonic)
    async with AsyncExitStack() as tasks:
        host = Host(directory, tasks, driver, WakeHistory(time.time, time.monotonic))
        async with host.connected() as client:
            yield client


@pytest.fixture(params=["inside", "process"])
async def proxy(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Publisher]:
    async with AsyncExitStack() as stack:
        if request.param == "inside":
            created: Publisher = await stack.enter_async_context(proxy_in_process())
        else:
            directory = tmp_path / "state"
            created = await stack.enter_async_context(separate_ingress(directory))
        stack.push_async_callback(close_connections)
        yield created
    await asyncio.sleep(0.01)  # transports close in the next iterations of the event loop


async def close_connections() -> None:
    while _OPEN:
        writer = _OPEN.pop()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def open_connection(port: int) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _OPEN.append(writer)
    return (await reader.readline()).decode().strip(), reader, writer


async def test_a_connection_goes_to_the_machine_with_the_fewest_connections(
    proxy: Publisher,
) -> None:
    async with a_machine("one") as one, a_machine("two") as two:
        _, port = await proxy.publish("web", "http", [one, two], 0)
        open_now = [await open_connection(port) for _ in range(4)]
        assert sorted(name for name, _, _ in open_now) == ["one", "one", "two", "two"]
        for _, reader, writer in open_now:
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"hello"
            writer.close()


async def test_a_drained_machine_keeps_its_connections_and_gets_no_new_ones(
    proxy: Publisher,
) -> None:
    async with a_machine("one") as one, a_machine("two") as two:
        _, port = await proxy.publish("web", "http", [one], 0)
        name, reader, writer = await open_connection(port)
        assert (name, await proxy.drain("one")) == ("one", 1)
        await proxy.publish("web", "http", [one, two], 0)
        assert (await open_connection(port))[0] == "two"
        writer.write(b"still here")
        writer.write_eof()
        assert await reader.read() == b"still here"
        writer.close()


async def test_a_machine_that_refuses_connections_is_skipped(proxy: Publisher) -> None:
    async with a_machine("two") as two:
        dead = Backend(CELL, "dead", "127.0.0.1", 1)
        _, port = await proxy.publish("web", "http", [dead, two], 0)
        assert (await open_connection(port))[0] == "two"


async def test_a_connection_without_a_machine_waits_for_the_first_one(
    proxy: Publisher,
) -> None:
    _, port = await proxy.publish("web", "http", [], 0)
    early = asyncio.create_task(open_connection(port))
    await asyncio.sleep(0)
    async with a_machine("late") as late:
        await proxy.publish("web", "http", [late], 0)
        assert (await early)[0] == "late"


async def test_a_suspended_workload_refuses_connections_at_once(
    proxy: Publisher,
) -> None:
    """HTTP gets status 503; a connection of another protocol is closed without a response."""
    async with a_machine("asleep") as machine:
        _, port = await proxy.publish("web", "http", [machine], 0)
        proxy.refuse("web", refused=True)
        assert (await send(port, b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")).startswith(
            b"HTTP/1.1 503 Service Unavailable\r\n"
        )
        assert await send(port, b"\x16\x03\x01 a TLS handshake") == b""
        proxy.refuse("web", refused=False)
        assert (await open_connection(port))[0] == "asleep"


async def test_a_held_connection_is_refused_at_once_when_its_workload_is_suspended(
    proxy: Publisher,
) -> None:
    _, port = await proxy.publish("web", "http", [], 0)
    _, other_port = await proxy.publish("api", "http", [], 0)
    held = asyncio.create_task(send(port, b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"))
    other = asyncio.create_task(send(other_port, b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"))
    await asyncio.sleep(0.1)
    proxy.refuse("web", refused=True)
    async with asyncio.timeout(HOLD_S / 2):
        assert (await held).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert not other.done(), "the other workload is not suspended"
    other.cancel()


async def test_an_open_connection_continues_when_its_workload_is_suspended(
    proxy: Publisher,
) -> None:
    """The driver drains it before it stops the machine."""
    async with a_machine("one") as one:
        _, port = await proxy.publish("web", "http", [one], 0)
        _, reader, writer = await open_connection(port)
        proxy.refuse("web", refused=True)
        await proxy.publish("web", "http", [], 0)
        writer.write(b"still here")
        writer.write_eof()
        assert await reader.read() == b"still here"
        writer.close()


async def test_a_machine_that_is_no_longer_drained_gets_new_connections(
    proxy: Publisher,
) -> None:
    async with a_machine("one") as one:
        _, port = await proxy.publish("web", "http", [one], 0)
        await proxy.drain("one")
        proxy.end_drain("one")
        assert (await open_connection(port))[0] == "one"


async def send(port: int, content: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_withdrawn_port_is_closed_and_can_be_published_again(
    proxy: Publisher,
) -> None:
    _, port = await proxy.publish("web", "http", [], 0)
    await proxy.withdraw("web")
    with pytest.raises(OSError):  # noqa: PT011 - refused
        await asyncio.open_connection("127.0.0.1", port)
    assert await proxy.publish("web", "http", [], port) == ("127.0.0.1", port)
    _, other = await proxy.publish("api", "http", [], port)
    assert other != port, "a port in use is replaced by a free one"
