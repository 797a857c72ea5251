"""An entitlement creates the quota and the locations of a service in its project."""

from __future__ import annotations

import asyncio

from datum_compute.api.kinds import (
    CONSUMER,
    ENTITLEMENT,
    GRANT,
    LOCATION_BINDING,
    NAMESPACE,
)
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.api.quota import DEFAULT_LIMITS
from datum_compute.api.services import ServiceEntitlement, ServiceEntitlementSpec
from datum_compute.client.client import Client
from datum_compute.controllers.platform.entitlements import CONTROLLER
from datum_compute.controllers.platform.services import CONSUMER_CONTROLLER
from datum_compute.planes.catalogue import ensure_platform
from testkit.builders import NOW
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("shop")
CONTROLLERS = (CONTROLLER, CONSUMER_CONTROLLER)
COMPUTE = Ref("", "compute")
ENTITLED = ServiceEntitlement(
    metadata=ObjectMeta(name="compute"),
    spec=ServiceEntitlementSpec(service_ref=LocalReference(name="compute")),
)


async def a_project(planes: InProcessPlanes) -> tuple[Client, Client]:
    """Return clients of the platform, which offers compute in DFW, and of a project."""
    platform, project = await planes.create(PLATFORM), await planes.create(PROJECT)
    await ensure_platform(platform, (CELL,), NOW, DEFAULT_LIMITS)
    for name in ("default", "milo-system"):
        await project.create(NAMESPACE, a_namespace(name))
    await project.create(ENTITLEMENT, ENTITLED)
    return platform, project


async def cities(project: Client) -> list[str]:
    return [binding.metadata.name for binding in (await project.list(LOCATION_BINDING)).items]


def test_an_active_entitlement_has_grants_and_a_binding_of_each_location() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform, project = await a_project(planes)
        async with running(CONTROLLERS, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            assert (await project.get(ENTITLEMENT, COMPUTE)).status.phase == "Active"
            assert (await project.list(GRANT)).items
            assert await cities(project) == ["dfw"]
            await ensure_platform(platform, (cell_plane("ord"),), NOW, DEFAULT_LIMITS)
            await asyncio.sleep(5)
            assert await cities(project) == ["dfw", "ord"]

    with_planes(test)


def test_a_deleted_binding_is_created_again() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        _, project = await a_project(planes)
        async with running(CONTROLLERS, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            await project.delete(LOCATION_BINDING, Ref("", "dfw"))
            await asyncio.sleep(5)
            assert await cities(project) == ["dfw"]

    with_planes(test)


def test_the_consumer_is_deleted_before_the_objects_of_a_deleted_entitlement() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform, project = await a_project(planes)
        async with running(CONTROLLERS, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            (consumer,) = (await platform.list(CONSUMER)).items
            held = {"metadata": {"finalizers": ["example.com/held"]}}
            await platform.patch(CONSUMER, ref_of(consumer), held)
            await project.delete(ENTITLEMENT, COMPUTE)
            await asyncio.sleep(5)
            assert await cities(project) == ["dfw"]
            released = {"metadata": {"finalizers": None}}
            await platform.patch(CONSUMER, ref_of(consumer), released)
            await asyncio.sleep(5)
            assert await cities(project) == []
            assert (await project.list(ENTITLEMENT)).items == []

    with_planes(test)
