"""Services: registered resources of their configurations, and the state of their consumers."""

from __future__ import annotations

import asyncio

from datum_compute.api.conditions import is_true
from datum_compute.api.kinds import CONSUMER, REGISTRATION, SERVICE
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import PLATFORM
from datum_compute.api.quota import DEFAULT_LIMITS, METRICS
from datum_compute.api.services import PUBLISHED
from datum_compute.controllers.platform.services import CONSUMER_CONTROLLER, SERVICE_CONTROLLERS
from datum_compute.planes.catalogue import ensure_platform
from testkit.builders import NOW
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.planning.platform.test_services import a_consumer
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

COMPUTE = Ref("", "compute")


def test_a_deleted_registration_is_created_again_for_its_configuration() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform = await planes.create(PLATFORM)
        await ensure_platform(platform, (), NOW, DEFAULT_LIMITS)
        async with running(SERVICE_CONTROLLERS, loop, planes, PLATFORM):
            await asyncio.sleep(5)
            lost = (await platform.list(REGISTRATION)).items[0]
            await platform.delete(REGISTRATION, ref_of(lost))
            await asyncio.sleep(5)
            found = {r.spec.resource_type for r in (await platform.list(REGISTRATION)).items}
            assert found == {metric.resource_type for metric in METRICS}

    with_planes(test)


def test_the_phase_of_a_service_is_reported() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        platform = await planes.create(PLATFORM)
        await ensure_platform(platform, (), NOW, DEFAULT_LIMITS)
        reported = []
        async with running(SERVICE_CONTROLLERS, loop, planes, PLATFORM):
            for phase in ("Published", "Deprecated"):
                await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": phase}})
                await asyncio.sleep(5)
                conditions = (await platform.get(SERVICE, COMPUTE)).status.conditions
                reported.append(is_true(conditions, PUBLISHED))
        return reported

    assert with_planes(test) == [True, False]


def test_consumers_are_decided_again_when_their_service_changes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str | None]:
        platform = await planes.create(PLATFORM)
        await ensure_platform(platform, (), NOW, DEFAULT_LIMITS)
        await platform.create(CONSUMER, as_new(a_consumer()))
        phases: list[str | None] = []
        async with running(CONSUMER_CONTROLLER, loop, planes, PLATFORM):
            for service_phase in ("Published", "Deprecated", "Retired"):
                await platform.patch(SERVICE, COMPUTE, {"spec": {"phase": service_phase}})
                await asyncio.sleep(5)
                phases.append((await platform.get(CONSUMER, Ref("", "sc"))).status.phase)
        return phases

    assert with_planes(test) == ["Active", "Active", "Denied"]
