"""A platform with one project and the cells of a test, in virtual time, whose disk outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.api.conditions import is_true
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import ENTITLEMENT, PROJECT
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM, PlaneName, member_name, path_prefix, project_plane
from datum_compute.api.resourcemanager import Project, ProjectOwner, ProjectSpec
from datum_compute.api.services import ServiceEntitlement, ServiceEntitlementSpec
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import (
    BOOTSTRAP,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
)
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.server.options import AdmissionOptions
from datum_compute.store.journal import MemoryJournal
from testkit.sim.loop import VirtualLoop, run_virtual

FIRST = project_plane("first")
# Disks and id counters of platforms that have just started, by their cells. A platform that starts
# from such a disk needs a fraction of the time.
_STARTED: dict[tuple[PlaneName, ...], tuple[MemoryJournal, int]] = {}


class Running:
    """One platform with a disk. A test may start it several times."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.disk = MemoryJournal()
        self.ids = 0
        self.machines: dict[PlaneName, MachineTable] = {}
        self.stop_s = 0.0  # how long a machine takes to stop
        self.deprecation_grace_s = DEPRECATION_GRACE_S
        self.enforces_quota = True
        self.platform: Platform
        self.task: asyncio.Task[None]

    async def start(self) -> None:
        environment = ProcessEnvironment(self.loop.time, self.next_id, self.next_id, Random(1))
        credentials = PlaneTokens("token", {})
        drivers = {
            cell: SimulatedDriver(table, now=self.loop.time, stop_s=self.stop_s)
            for cell, table in self.machines.items()
        }
        self.platform = Platform(
            PlaneLayout((FIRST,), drivers),
            environment,
            self.disk,
            credentials,
            PlatformOptions(
                control=ControllerOptions(enforces_quota=self.enforces_quota),
                admission=AdmissionOptions(deprecation_grace_s=self.deprecation_grace_s),
            ),
        )
        await self.platform.load()
        self.task = self.loop.create_task(self.platform.run())
        await self.platform.ready.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def client(self, plane: PlaneName) -> Client:
        """Return a client with all permissions: these tests do not cover access control."""
        transport = InProcessTransport(partial(self.platform.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="test")

    def next_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"


async def create_project(running: Running, name: str) -> PlaneName:
    """Create a project of the default organization, and wait until it is ready."""
    platform = running.client(PLATFORM)
    owner = ProjectOwner(kind="Organization", name="default")
    project = Project(metadata=ObjectMeta(name=name), spec=ProjectSpec(owner_ref=owner))
    await platform.create(PROJECT, project)
    await until(lambda: _is_ready(platform, name))
    return project_plane(name)


async def _is_ready(platform: Client, name: str) -> bool:
    return is_true((await platform.get(PROJECT, Ref("", name))).status.conditions, "Ready")


async def request_access(running: Running, plane: PlaneName, phase: str = "Active") -> None:
    """Request access to compute, and wait until the entitlement has this phase."""
    spec = ServiceEntitlementSpec(service_ref=LocalReference(name="compute"))
    entitlement = ServiceEntitlement(metadata=ObjectMeta(name="compute"), spec=spec)
    await running.client(plane).create(ENTITLEMENT, entitlement)
    await until(lambda: has_phase(running, plane, phase))


async def has_phase(running: Running, plane: PlaneName, phase: str) -> bool:
    found = await running.client(plane).get(ENTITLEMENT, Ref("", "compute"))
    return found.status.phase == phase


async def delete_project(running: Running, plane: PlaneName) -> None:
    platform, ref = running.client(PLATFORM), Ref("", member_name(plane))
    await platform.delete(PROJECT, ref)
    await until(lambda: is_gone(platform, PROJECT, ref))


async def is_gone(client: Client, kind: KindInfo[Any], ref: Ref) -> bool:
    try:
        await client.get(kind, ref)
    except NotFound:
        return True
    return False


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait in virtual time."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - the API has no event for it
            await asyncio.sleep(0.05)


def on_a_platform(
    test: Callable[[Running], Coroutine[Any, Any, None]],
    *cells: PlaneName,
    stop_s: float = 0.0,
    deprecation_grace_s: float = DEPRECATION_GRACE_S,
) -> None:
    async def main(loop: VirtualLoop) -> None:
        running = Running(loop)
        running.stop_s = stop_s
        running.deprecation_grace_s = deprecation_grace_s
        running.machines = {cell: MachineTable() for cell in cells}
        if cells in _STARTED:
            disk, running.ids = _STARTED[cells]
            running.disk = disk.copy()
        await running.start()
        _STARTED.setdefault(cells, (running.disk.copy(), running.ids))
        await test(running)
        await running.stop()

    run_virtual(Random(1), main)
