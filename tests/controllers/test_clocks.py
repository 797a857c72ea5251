"""Grace periods pass by elapsed time, also when the time of day is set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import HUB, PlaneName, cell_plane, path_prefix
from datum_compute.app.controllers import build_manager
from datum_compute.app.environment import Ports
from datum_compute.controllers.context import Context
from datum_compute.controllers.federation import instances as quarantine
from datum_compute.controllers.karmada import clusters as cluster
from datum_compute.planning.federation.instances import NO_IDENTITY
from datum_compute.runtime.controller import Controller
from testkit.builders import an_instance
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")
NOW_S = 1_000_000.0
STEP_S = 7200.0


class Clock:
    """The time of day of a host."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew_s = 0.0

    def unix_s(self) -> float:
        return NOW_S + self._loop.time() + self.skew_s


@asynccontextmanager
async def running(
    controller: Controller[Context], loop: VirtualLoop, planes: InProcessPlanes, *engaged: PlaneName
) -> AsyncIterator[Clock]:
    clock = Clock(loop)
    ports = Ports(clock.unix_s, lambda: "uid", lambda: "suffix", Random(1), loop.time)
    manager = build_manager([controller], {}, ports)
    for plane in engaged:
        manager.engage(plane, planes.client(plane))
    task = loop.create_task(manager.run())
    yield clock
    task.cancel()
    await asyncio.wait([task])


def test_an_unreachable_cell_is_reported_after_the_clock_is_set_back() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        ready: list[bool] = []

        async def look() -> None:
            found = await hub.get(CLUSTER, Ref("", "dfw"))
            ready.append(is_true(found.status.conditions, "Ready"))

        async def cut(request: Request) -> Response | None:
            if request.path.startswith(path_prefix(CELL)):
                raise Unreachable("the cell is away")
            return None

        async with running(cluster.CLUSTER_CONTROLLER, loop, planes, HUB, CELL) as clock:
            await asyncio.sleep(15)
            await look()
            planes.intercept = cut
            await asyncio.sleep(15)
            clock.skew_s = -STEP_S
            await asyncio.sleep(60)
            await look()
        return ready

    assert with_planes(test) == [True, False]


def test_a_copy_is_quarantined_after_the_clock_is_set_back() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> str:
        hub = await planes.create(HUB)
        metadata = ObjectMeta(name="web-0", namespace="ns-u")  # no labels that name its project
        copy = msgspec.structs.replace(an_instance(0), metadata=metadata)
        await hub.create(NAMESPACE, a_namespace("ns-u"))
        await hub.create(INSTANCE, copy)
        async with running(quarantine.QUARANTINE_CONTROLLER, loop, planes, HUB) as clock:
            await asyncio.sleep(10)
            clock.skew_s = -STEP_S
            await asyncio.sleep(120)
        found = await hub.get(INSTANCE, ref_of(copy))
        return found.metadata.annotations.get(labels.QUARANTINE_REASON, "")

    assert with_planes(test) == NO_IDENTITY
