"""Locations follow the cells of their city, and bindings of users follow their location."""

from __future__ import annotations

import asyncio

from datum_compute.api.conditions import find_condition
from datum_compute.api.kinds import CLUSTER, LOCATION, LOCATION_BINDING
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PLATFORM, project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.platform.locations import BINDING_CONTROLLER, LOCATION_CONTROLLER
from testkit.builders import a_location_binding
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.planning.platform.test_locations import DFW, cell
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

PROJECT = project_plane("shop")
CONTROLLERS = (LOCATION_CONTROLLER, BINDING_CONTROLLER)
DFW_REF = Ref("", "dfw")


async def ready_reason(platform: Client) -> str:
    found = find_condition((await platform.get(LOCATION, DFW_REF)).status.conditions, "Ready")
    return found.reason if found is not None else ""


def test_a_location_reports_when_its_only_cell_is_drained_and_when_it_leaves() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, platform = await planes.create(HUB), await planes.create(PLATFORM)
        await platform.create(LOCATION, as_new(DFW))
        await hub.create(CLUSTER, cell("a"), with_status=True)
        reasons = []
        async with running(CONTROLLERS, loop, planes, HUB, PLATFORM):
            await asyncio.sleep(5)
            reasons.append(await ready_reason(platform))
            taint = {"key": "compute.datumapis.com/drained", "effect": "NoSchedule"}
            await hub.patch(CLUSTER, Ref("", "a"), {"spec": {"taints": [taint]}})
            await asyncio.sleep(5)
            reasons.append(await ready_reason(platform))
            await hub.delete(CLUSTER, Ref("", "a"))
            await asyncio.sleep(5)
            reasons.append(await ready_reason(platform))
        return reasons

    assert with_planes(test) == ["ServedByCell", "CellDrained", "NoCell"]


def test_a_binding_is_available_while_its_location_is_ready() -> None:
    """Only the binding of this location is reported; the other one has no location."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[list[str]]:
        hub, platform = await planes.create(HUB), await planes.create(PLATFORM)
        project = await planes.create(PROJECT)
        await platform.create(LOCATION, as_new(DFW))
        await hub.create(CLUSTER, cell("a"), with_status=True)
        for city in ("DFW", "IAD"):
            await project.create(LOCATION_BINDING, a_location_binding(city))
        async with running(CONTROLLERS, loop, planes, HUB, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            before = await available(project)
            version = planes.store.version(PROJECT)
            await asyncio.sleep(60)
            assert planes.store.version(PROJECT) == version, "settled"
            await hub.delete(CLUSTER, Ref("", "a"))
            await asyncio.sleep(5)
            return [before, await available(project)]

    assert with_planes(test) == [["dfw True", "iad False"], ["dfw False", "iad False"]]


async def available(project: Client) -> list[str]:
    shown = []
    for binding in (await project.list(LOCATION_BINDING)).items:
        found = find_condition(binding.status.conditions, "Available")
        shown.append(f"{binding.metadata.name} {found.status if found is not None else '-'}")
    return shown
