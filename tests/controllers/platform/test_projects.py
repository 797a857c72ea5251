"""Projects have a plane, which is drained before it is deleted with its project."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from datum_compute.api.conditions import is_true
from datum_compute.api.errors import ServiceUnavailable
from datum_compute.api.kinds import NAMESPACE, ORGANIZATION, PROJECT
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM, PlaneName, project_plane
from datum_compute.api.resourcemanager import Organization
from datum_compute.app.controllers import ServedPlanes
from datum_compute.controllers.platform.projects import (
    ORGANIZATION_CONTROLLER,
    PROJECT_CONTROLLER,
)
from datum_compute.planning.platform.projects import organization_namespace
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import running
from tests.planning.platform.test_projects import a_project
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

CONTROLLERS = (PROJECT_CONTROLLER, ORGANIZATION_CONTROLLER)
SHOP, PLANE = Ref("", "shop"), project_plane("shop")
ACME = Organization(metadata=ObjectMeta(name="acme"))


class RecordedLifecycle:
    """Records the planes that exist. ``remaining`` are the objects that keep a plane."""

    def __init__(self, remaining: Sequence[str] = ()) -> None:
        self.planes: list[PlaneName] = []
        self.remaining = list(remaining)
        self.is_broken = False

    async def create(self, plane: PlaneName, owner: str) -> None:
        if self.is_broken:
            raise ServiceUnavailable("the store is full")
        if plane not in self.planes:
            self.planes.append(plane)

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        return self.remaining

    async def delete(self, plane: PlaneName) -> None:
        self.planes.remove(plane)


def test_a_deleted_project_is_gone_after_its_plane_was_drained_and_deleted() -> None:
    lifecycle = RecordedLifecycle(["Workload default/web"])

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform = await planes.create(PLATFORM)
        await platform.create(ORGANIZATION, ACME)
        await platform.create(PROJECT, a_project())
        served = ServedPlanes(lifecycle=lifecycle)
        async with running(CONTROLLERS, loop, planes, PLATFORM, served=served):
            await asyncio.sleep(5)
            assert lifecycle.planes == [PLANE]
            assert is_true((await platform.get(PROJECT, SHOP)).status.conditions, "Ready")
            await platform.delete(PROJECT, SHOP)
            await asyncio.sleep(30)
            assert lifecycle.planes == [PLANE], "the workload still exists"
            assert (await platform.get(PROJECT, SHOP)).is_terminating
            lifecycle.remaining.clear()
            await asyncio.sleep(30)
            assert lifecycle.planes == []
            assert (await platform.list(PROJECT)).items == []

    with_planes(test)


def test_a_plane_that_cannot_be_created_is_reported_and_retried() -> None:
    lifecycle = RecordedLifecycle()
    lifecycle.is_broken = True

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        platform = await planes.create(PLATFORM)
        await platform.create(ORGANIZATION, ACME)
        await platform.create(PROJECT, a_project())
        ready = []
        served = ServedPlanes(lifecycle=lifecycle)
        async with running(CONTROLLERS, loop, planes, PLATFORM, served=served):
            for _ in range(2):
                await asyncio.sleep(60)
                found = await platform.get(PROJECT, SHOP)
                ready.append(is_true(found.status.conditions, "Ready"))
                lifecycle.is_broken = False
        return ready

    assert with_planes(test) == [False, True]


def test_a_project_is_owned_by_its_organization() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        platform = await planes.create(PLATFORM)
        await platform.create(ORGANIZATION, ACME)
        await platform.create(PROJECT, a_project())
        served = ServedPlanes(lifecycle=RecordedLifecycle())
        async with running(CONTROLLERS, loop, planes, PLATFORM, served=served):
            await asyncio.sleep(5)
        found = await platform.get(PROJECT, SHOP)
        return [owner.name for owner in found.metadata.owner_references]

    assert with_planes(test) == ["acme"]


def test_a_deleted_namespace_of_an_organization_is_created_again() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform = await planes.create(PLATFORM)
        await platform.create(ORGANIZATION, ACME)
        space = Ref("", organization_namespace("acme"))
        async with running(ORGANIZATION_CONTROLLER, loop, planes, PLATFORM):
            await asyncio.sleep(5)
            namespace = await platform.get(NAMESPACE, space)
            await platform.delete(NAMESPACE, space)
            await platform.finalize_namespace(await platform.get(NAMESPACE, space))
            await asyncio.sleep(5)
            replaced = await platform.get(NAMESPACE, space)
            assert replaced.metadata.uid != namespace.metadata.uid

    with_planes(test)
