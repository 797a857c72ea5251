"""The controllers of claims claim quota for instances, and release that of unwanted slots."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api import labels
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLAIM, CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import (
    HUB,
    cell_plane,
    encode_cluster_label,
    project_plane,
)
from datum_compute.client.client import Client
from datum_compute.controllers.quota.claims import (
    CLAIM_CONTROLLER,
    ORPHANED_CLAIM_CONTROLLERS,
    RELEASE_CONTROLLER,
    released_slots,
)
from datum_compute.planning.quota.claims import ClaimLocation, claim_ref, new_claim
from testkit.builders import a_deployment, a_gated_instance, an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("alpha")
LOCATION = ClaimLocation(PROJECT, "default", "alpha", "dfw")
SPACE = "ns-u"
IDENTITY = {
    labels.UPSTREAM_CLUSTER: encode_cluster_label("alpha"),
    labels.UPSTREAM_NAMESPACE: "default",
}


async def a_project_on_a_cell(planes: InProcessPlanes) -> tuple[Client, Client]:
    """Return clients of project and cell. The cell has a namespace of the project."""
    project, cell = await planes.create(PROJECT), await planes.create(CELL)
    await project.create(NAMESPACE, a_namespace("default"))
    await cell.create(NAMESPACE, a_namespace(SPACE, **IDENTITY))
    return project, cell


async def create_claim(project: Client, number: int = 0) -> None:
    instance = as_new(an_instance(number), namespace=SPACE)
    await project.create(CLAIM, new_claim(LOCATION, instance, None))


async def claims(project: Client) -> list[str]:
    return [claim.metadata.name for claim in (await project.list(CLAIM)).items]


def name_of_claim(number: int) -> str:
    return claim_ref(LOCATION, f"web-dfw-{number}").name


def test_a_gated_instance_gets_a_claim_in_its_project() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        project, cell = await a_project_on_a_cell(planes)
        await cell.create(INSTANCE, as_new(a_gated_instance(), namespace=SPACE))
        async with running(CLAIM_CONTROLLER, loop, planes, CELL, PROJECT):
            await asyncio.sleep(5)
        return await claims(project)

    assert with_planes(test) == [name_of_claim(0)]


def test_the_claim_of_an_unwanted_slot_stays_until_its_instance_is_gone() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project, cell = await a_project_on_a_cell(planes)
        await cell.create(INSTANCE, as_new(an_instance(0, finalizers=()), namespace=SPACE))
        await create_claim(project)
        async with running(RELEASE_CONTROLLER, loop, planes, CELL, PROJECT):
            await asyncio.sleep(5)
            assert await claims(project) == [name_of_claim(0)]
            await cell.delete(INSTANCE, Ref(SPACE, "web-dfw-0"))
            await asyncio.sleep(5)
            assert await claims(project) == []

    with_planes(test)


@pytest.mark.parametrize("has_left", [True, False])
def test_claims_of_a_cell_are_deleted_if_the_cell_has_left(has_left: bool) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, project = await planes.create(HUB), await planes.create(PROJECT)
        await hub.create(NAMESPACE, a_namespace(SPACE))
        await project.create(NAMESPACE, a_namespace("default"))
        if not has_left:
            await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        await create_claim(project)
        async with running(ORPHANED_CLAIM_CONTROLLERS, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
        return await claims(project)

    assert with_planes(test) == ([] if has_left else [name_of_claim(0)])


@pytest.mark.parametrize("is_gone", [True, False])
def test_claims_of_a_hub_namespace_are_deleted_if_the_namespace_is_gone(is_gone: bool) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, project = await planes.create(HUB), await planes.create(PROJECT)
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        await project.create(NAMESPACE, a_namespace("default"))
        if not is_gone:
            await hub.create(NAMESPACE, a_namespace(SPACE))
        await create_claim(project)
        async with running(ORPHANED_CLAIM_CONTROLLERS, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
        return await claims(project)

    assert with_planes(test) == ([] if is_gone else [name_of_claim(0)])


def test_claims_stay_while_their_deployment_exists_and_a_restored_hub_has_no_copy_of_it() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, project = await planes.create(HUB), await planes.create(PROJECT)
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        await project.create(NAMESPACE, a_namespace("default"))
        await project.create(DEPLOYMENT, as_new(a_deployment(finalizers=())))
        await create_claim(project)
        async with running(ORPHANED_CLAIM_CONTROLLERS, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            assert await claims(project) == [name_of_claim(0)]
            await project.delete(DEPLOYMENT, Ref("default", "web-dfw"))
            await asyncio.sleep(5)
            assert await claims(project) == []

    with_planes(test)


def test_a_change_of_a_deployment_wakes_the_claims_of_released_slots() -> None:
    leaving = a_deployment(replicas=3, terminating=True)
    assert released_slots(a_deployment(replicas=3), a_deployment(replicas=1)) == range(1, 3)
    assert not released_slots(a_deployment(replicas=1), a_deployment(replicas=3))
    assert released_slots(a_deployment(replicas=3), leaving) == range(3)
    assert released_slots(a_deployment(replicas=3), None) == range(3)
    assert released_slots(leaving, None) == range(3)
    assert not released_slots(leaving, leaving), "a status update releases no slot"
