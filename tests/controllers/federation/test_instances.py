"""Copies of instances on the hub and in projects, and copies that belong to no project."""

from __future__ import annotations

import asyncio

import msgspec

from datum_compute.api import labels
from datum_compute.api.kinds import INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, ref_of
from datum_compute.api.planes import HUB
from datum_compute.controllers.federation.instances import QUARANTINE_CONTROLLER
from datum_compute.planning.federation.instances import NO_IDENTITY
from testkit.builders import an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CLOCK_STEP_S = 7200.0


def test_a_copy_is_quarantined_after_the_clock_is_set_back() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> str:
        hub = await planes.create(HUB)
        metadata = ObjectMeta(name="web-0", namespace="ns-u")  # no labels that name its project
        copy = msgspec.structs.replace(an_instance(0), metadata=metadata)
        await hub.create(NAMESPACE, a_namespace("ns-u"))
        await hub.create(INSTANCE, copy)
        async with running(QUARANTINE_CONTROLLER, loop, planes, HUB) as clock:
            await asyncio.sleep(10)
            clock.skew_s = -CLOCK_STEP_S
            await asyncio.sleep(120)
        found = await hub.get(INSTANCE, ref_of(copy))
        return found.metadata.annotations.get(labels.QUARANTINE_REASON, "")

    assert with_planes(test) == NO_IDENTITY
