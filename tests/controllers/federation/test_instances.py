"""Copies of instances on the hub and in projects, and copies that belong to no project."""

from __future__ import annotations

import asyncio

import msgspec

from datum_compute.api import labels
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import (
    HUB,
    cell_plane,
    encode_cluster_label,
    federation_namespace,
    project_plane,
)
from datum_compute.client.transport.interface import is_watch
from datum_compute.controllers.federation.instances import (
    HUB_COPY_CONTROLLER,
    PROJECT_COPY_CONTROLLER,
    QUARANTINE_CONTROLLER,
)
from datum_compute.planning.federation.instances import NO_IDENTITY
from testkit.builders import a_deployment, an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import NOW_S, as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("alpha")
CLOCK_STEP_S = 7200.0
IDENTITY = {
    labels.UPSTREAM_CLUSTER: encode_cluster_label("alpha"),
    labels.UPSTREAM_NAMESPACE: "default",
}


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


def test_an_instance_is_copied_to_the_hub_and_to_its_project_until_it_is_gone() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        project = await planes.create(PROJECT)
        source = await project.create(NAMESPACE, a_namespace("default"))
        await project.create(DEPLOYMENT, as_new(a_deployment(finalizers=())))
        space = federation_namespace(source.metadata.uid)
        for client in (hub, cell):
            await client.create(NAMESPACE, a_namespace(space, **IDENTITY))
        deployment = as_new(a_deployment(finalizers=()), namespace=space, labels=IDENTITY)
        await hub.create(DEPLOYMENT, deployment)
        instance = as_new(an_instance(0, finalizers=()), namespace=space)
        await cell.create(INSTANCE, instance, with_status=True)
        controllers = (HUB_COPY_CONTROLLER, PROJECT_COPY_CONTROLLER)
        async with running(controllers, loop, planes, HUB, CELL, PROJECT):
            await asyncio.sleep(10)
            copy = await hub.get(INSTANCE, Ref(space, "web-dfw-0"))
            assert copy.metadata.labels[labels.CELL] == "dfw"
            await project.get(INSTANCE, Ref("default", "web-dfw-0"))
            await cell.delete(INSTANCE, Ref(space, "web-dfw-0"))
            await asyncio.sleep(10)
            left = [*(await hub.list(INSTANCE)).items, *(await project.list(INSTANCE)).items]
            assert [ref_of(instance) for instance in left] == []

    with_planes(test)


def test_a_copy_that_was_garbage_collected_gets_the_current_owner() -> None:
    """Otherwise the garbage collector deletes it again and again, until the watch recovers."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[str, str]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        space = "ns-u"
        for client in (hub, cell):
            await client.create(NAMESPACE, a_namespace(space, **IDENTITY))
        deployment = as_new(a_deployment(finalizers=()), namespace=space, labels=IDENTITY)
        await hub.create(DEPLOYMENT, deployment)

        async def hold_deployment_events(request: Request, response: Response) -> Response:
            if is_watch(request) and DEPLOYMENT.plural in request.path:
                await asyncio.Event().wait()
            return response

        planes.afterwards = hold_deployment_events
        async with running(HUB_COPY_CONTROLLER, loop, planes, HUB, CELL) as clock:
            clock.skew_s = -NOW_S  # the time of the planes, so that the instance is new
            instance = as_new(an_instance(0, finalizers=()), namespace=space)
            await cell.create(INSTANCE, instance, with_status=True)
            copy_ref = Ref(space, "web-dfw-0")
            await hub.wait(INSTANCE, copy_ref, lambda copy: copy is not None, timeout_s=3)
            await hub.delete(DEPLOYMENT, ref_of(deployment))
            current = await hub.create(DEPLOYMENT, deployment)
            await hub.delete(INSTANCE, copy_ref)
            await asyncio.sleep(1)
            copy = await hub.get(INSTANCE, copy_ref)
        (owner,) = copy.metadata.owner_references
        return owner.uid, current.metadata.uid

    owner_uid, current_uid = with_planes(test)
    assert owner_uid == current_uid


def test_a_copy_that_its_cell_does_not_have_is_deleted_and_one_of_another_cell_stays() -> None:
    """The cell lost its store, or the instance was deleted while the hub was unreachable."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        for client in (hub, cell):
            await client.create(NAMESPACE, a_namespace("ns-u", **IDENTITY))
        for number, name in enumerate(("dfw", "ord")):
            copy = an_instance(number, finalizers=())
            marked = {**copy.metadata.labels, **IDENTITY, labels.CELL: name}
            await hub.create(INSTANCE, as_new(copy, namespace="ns-u", labels=marked))
        async with running(HUB_COPY_CONTROLLER, loop, planes, HUB, CELL):
            await asyncio.sleep(10)
        return [instance.metadata.name for instance in (await hub.list(INSTANCE)).items]

    assert with_planes(test) == ["web-dfw-1"]
