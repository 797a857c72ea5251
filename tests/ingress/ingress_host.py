"""Host: a state directory with ingress processes and a cell process, as tasks of one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datum_compute.api.planes import cell_plane
from datum_compute.app.ingress_client import IngressClient
from datum_compute.app.ingress_server import SOCKET_FILE, prepare_start, serve_ingress
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.driver import MachineState
from datum_compute.drivers.simulated.driver import SimulatedDriver
from tests.stream_servers import LOOPBACK

CELL = cell_plane("dfw")
MACHINE_ID = "ns/web/1"
REQUEST = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"
# Tests share processors with everything else.
PATIENCE_S = 60.0


@dataclass(slots=True)
class Host:
    """A state directory, its ingress processes and the client of a cell process, as tasks."""

    directory: Path
    tasks: AsyncExitStack
    driver: SimulatedDriver
    history: WakeHistory
    stops: list[asyncio.Event] = field(default_factory=list)

    async def start_ingress(self, version: str = "1", *, must_replace: bool = False) -> None:
        start = await asyncio.to_thread(
            lambda: prepare_start(self.directory, must_replace=must_replace, version=version)
        )
        if start is not None:
            stop = asyncio.Event()
            self.stops.append(stop)
            await self.tasks.enter_async_context(
                run_in_background(serve_ingress(self.directory, start, stop), stop)
            )
        await eventually(lambda: (self.directory / SOCKET_FILE).exists())

    async def is_asleep(self) -> bool:
        state = await self.driver.observe(MACHINE_ID)
        return isinstance(state, MachineState) and state.phase == "Sleeping"

    @asynccontextmanager
    async def connected(self, version: str = "1") -> AsyncIterator[IngressClient]:
        """A cell process. It ends like a killed one: nothing is withdrawn."""

        async def launch(_directory: Path, *flags: str) -> None:
            await self.start_ingress(version, must_replace="--replace" in flags)

        client = IngressClient(
            self.directory, {CELL: self.driver}, self.history, time.monotonic, launch, version
        )
        async with run_in_background(client.run()):
            yield client
        await client.close()


@asynccontextmanager
async def run_in_background(
    work: Coroutine[Any, Any, None], stop: asyncio.Event | None = None
) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        if stop is None:
            task.cancel()
        else:
            stop.set()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(holds: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.01)


async def request(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(REQUEST)
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    finally:
        writer.close()
