"""The whole federation in this process: one project, a hub, many cells, all controllers, and a user
who watches the project."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from bench.project_user import ProjectUser
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    path_prefix,
    project_plane,
)
from datum_compute.api.quota import DEFAULT_LIMITS
from datum_compute.app.environment import process_environment
from datum_compute.app.platform import (
    MANAGER_AGENT,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
)
from datum_compute.app.process import settle_memory
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.client.transport.faults import Fault, FaultyTransport
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.store.journal import Journal

PROJECT = project_plane("default")
_PLENTY = 10**6
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class _CountingTransport:
    """Counts the writes that pass and succeed."""

    def __init__(self, inner: Transport, world: World) -> None:
        self._inner = inner
        self._world = world

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        if request.method in _WRITES and response.status < 300:
            self._world.writes += 1
        return response


@dataclass
class World:
    cells: tuple[str, ...]
    platform: Platform = field(init=False)
    writes: int = 0
    faults: dict[str, Fault] = field(default_factory=dict)
    project_user: ProjectUser = field(init=False)

    def client(self, plane: PlaneName) -> Client:
        return self.platform.client(plane, f"user-of-{plane}")

    def reach(self, plane: PlaneName) -> Client:
        inner = InProcessTransport(self.platform.dispatch)
        counted = _CountingTransport(FaultyTransport(inner, lambda: self.faults.get(plane)), self)
        return Client(counted, prefix=path_prefix(plane), token="manager", agent=MANAGER_AGENT)

    async def wait_until_quiet(self, seconds: float = 2.0) -> None:
        before = -1
        while before != self.writes:
            before = self.writes
            await asyncio.sleep(seconds)


@asynccontextmanager
async def new_world(
    journal: Journal, cells: int, unix_s: Callable[[], float] = time.time
) -> AsyncIterator[World]:
    """Run a federation until the end of the block. It closes the journal."""
    names = tuple(f"c{number}" for number in range(cells))
    world, environment = World(names), replace(process_environment(), unix_s=unix_s)
    drivers = {
        cell_plane(name): SimulatedDriver(MachineTable(), now=environment.unix_s) for name in names
    }
    limits = {name: limit * _PLENTY for name, limit in DEFAULT_LIMITS.items()}
    layout = PlaneLayout((PROJECT,), drivers, limits=limits)
    tokens = {plane: f"user-of-{plane}" for plane in (PLATFORM, PROJECT, HUB, *drivers)}
    world.platform = Platform(
        layout,
        environment,
        journal,
        PlaneTokens("manager", tokens),
        PlatformOptions(control=ControllerOptions(reach=world.reach)),
    )
    world.project_user = ProjectUser(world.client(PROJECT))
    await world.platform.load()
    running = asyncio.create_task(world.platform.run())
    watching: asyncio.Task[None] | None = None
    try:
        await world.platform.ready.wait()
        await world.wait_until_quiet()
        settle_memory()
        watching = asyncio.create_task(world.project_user.watch())
        yield world
    finally:
        for task in filter(None, (running, watching)):
            task.cancel()
            await asyncio.wait([task])
        await journal.close()
