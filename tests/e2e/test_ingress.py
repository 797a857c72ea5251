"""The real process of the ingress: it survives its starter, and is replaced without a refusal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend
from datum_compute.app.ingress_client import IngressClient, launch_ingress
from datum_compute.app.ingress_server import LOCK_FILE
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from testkit.processes.local_platform import LocalPlatform
from tests.ingress.ingress_host import eventually, request, run_in_background
from tests.stream_servers import LOOPBACK, serve_tcp

CELL = cell_plane("dfw")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Path]:
    """A state directory whose ingress is ended after the test."""
    made = tmp_path / "state"
    made.mkdir(mode=0o700)
    yield made
    pid = find_pid(made)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        await eventually(lambda: find_pid(made) is None)


def find_pid(directory: Path) -> int | None:
    with suppress(OSError, ValueError):
        pid = int((directory / LOCK_FILE).read_text())
        if os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
    return None


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[IngressClient]:
    driver = SimulatedDriver(MachineTable(), now=time.monotonic)
    history = WakeHistory(time.time, time.monotonic)
    client = IngressClient(directory, {CELL: driver}, history, time.monotonic, launch_ingress)
    async with run_in_background(client.run()):
        yield client
    await client.close()


@asynccontextmanager
async def a_machine() -> AsyncIterator[Backend]:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)

    async with serve_tcp(reply) as port:
        yield Backend(CELL, "ns/web/1", LOOPBACK, port)


class Traffic:
    """Clients that send one request after the other, each on a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.served = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._send_requests())

    async def _send_requests(self) -> None:
        while True:
            try:
                answer = await request(self.port)
            except OSError as error:
                self.failures.append(str(error))
                await asyncio.sleep(0.01)
                continue
            if answer == ANSWER:
                self.served += 1
            else:
                self.failures.append(repr(answer))

    async def wait_for_more(self) -> None:
        count = self.served
        await eventually(lambda: self.served > count + 20)


async def test_it_runs_in_its_own_session_and_ends_on_sigterm(directory: Path) -> None:
    async with a_machine() as machine:
        async with connected(directory) as client:
            _, port = await client.publish("web", "http", [machine], 0)
        pid = find_pid(directory)
        assert pid is not None
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) != os.getpgid(0)
        assert await request(port) == ANSWER
        os.kill(pid, signal.SIGTERM)
        await eventually(lambda: find_pid(directory) is None)
        with pytest.raises(OSError):  # noqa: PT011 - refused
            await request(port)


async def test_a_killed_ingress_is_started_again_with_the_same_ports(directory: Path) -> None:
    async with a_machine() as machine, connected(directory) as client:
        _, port = await client.publish("web", "http", [machine], 0)
        pid = find_pid(directory)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: find_pid(directory) not in (None, pid))
        await client.publish("web", "http", [], port)
        assert (await client.publish("web", "http", [machine], port))[1] == port
        assert await request(port) == ANSWER


async def test_an_upgrade_under_traffic_refuses_no_connection(directory: Path) -> None:
    async with a_machine() as machine, connected(directory) as client:
        _, port = await client.publish("web", "http", [machine], 0)
        traffic = Traffic(port)
        async with run_in_background(traffic.run()):
            await traffic.wait_for_more()
            for _ in range(3):
                pid = find_pid(directory)
                await launch_ingress(directory, "--replace")
                await eventually(lambda pid=pid: find_pid(directory) not in (None, pid))
                await traffic.wait_for_more()
        assert traffic.failures == []
        await eventually(lambda: client._link is not None)
        assert (await client.publish("web", "http", [machine], port))[1] == port


def run_local(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return LocalPlatform(directory).run("local", *words, "--state-dir", str(directory))


async def test_down_leaves_the_ingress_running_and_down_all_stops_it(directory: Path) -> None:
    async with a_machine() as machine:
        async with connected(directory) as client:
            _, port = await client.publish("web", "http", [machine], 0)
        done = await asyncio.to_thread(run_local, directory, "down")
        assert "Published ports stay open" in done.stderr
        assert await request(port) == ANSWER
        done = await asyncio.to_thread(run_local, directory, "down", "--all")
        assert "published ports were closed" in done.stdout
        assert find_pid(directory) is None
