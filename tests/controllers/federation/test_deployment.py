"""The federator copies deployments to the hub, and the status of the copy to the project."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB, federation_namespace, project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.federation.deployment import CONTROLLER
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
WEB = Ref("default", "web-dfw")


async def a_project_with_a_deployment(planes: InProcessPlanes) -> tuple[Client, Client, Ref]:
    """Return clients of hub and project, and the ref of the copy."""
    hub, project = await planes.create(HUB), await planes.create(PROJECT)
    namespace = await project.create(NAMESPACE, a_namespace("default"))
    await project.create(DEPLOYMENT, as_new(a_deployment(finalizers=())))
    return hub, project, Ref(federation_namespace(namespace.metadata.uid), WEB.name)


def test_an_edited_copy_is_restored_from_the_project() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, project, copy = await a_project_with_a_deployment(planes)
        async with running(CONTROLLER, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            source = await project.get(DEPLOYMENT, WEB)
            assert (await hub.get(DEPLOYMENT, copy)).spec == source.spec
            edit = {"spec": {"scaleSettings": {"minReplicas": 7}}}
            await hub.patch(DEPLOYMENT, copy, edit)
            await asyncio.sleep(5)
            assert (await hub.get(DEPLOYMENT, copy)).spec == source.spec

    with_planes(test)


@pytest.mark.parametrize("edited", [None, "junk"])
@pytest.mark.parametrize("label", [labels.UPSTREAM_CLUSTER, labels.UPSTREAM_NAMESPACE])
def test_an_edited_label_of_a_copy_is_restored(label: str, edited: str | None) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, _, copy = await a_project_with_a_deployment(planes)
        async with running(CONTROLLER, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            stored = (await hub.get(DEPLOYMENT, copy)).metadata.labels
            assert label in stored
            await hub.patch(DEPLOYMENT, copy, {"metadata": {"labels": {label: edited}}})
            await asyncio.sleep(5)
            assert (await hub.get(DEPLOYMENT, copy)).metadata.labels == stored

    with_planes(test)


def test_a_copy_of_a_deployment_that_the_project_does_not_have_is_deleted() -> None:
    """A hub that was restored from a backup has copies of deployments that were deleted since."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, _, copy = await a_project_with_a_deployment(planes)
        async with running(CONTROLLER, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            stored = await hub.get(DEPLOYMENT, copy)
            by_hand = as_new(stored, name="by-hand", annotations={}, finalizers=[])
            await hub.create(DEPLOYMENT, as_new(stored, name="restored", finalizers=[]))
            await hub.create(DEPLOYMENT, by_hand)
            await asyncio.sleep(5)
        return sorted(d.metadata.name for d in (await hub.list(DEPLOYMENT)).items)

    assert with_planes(test) == ["by-hand", "web-dfw"]


def test_a_deleted_deployment_is_gone_from_the_project_after_its_copy_is_gone() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, project, copy = await a_project_with_a_deployment(planes)
        async with running(CONTROLLER, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            held = {"metadata": {"finalizers": ["example.com/held"]}}
            await hub.patch(DEPLOYMENT, copy, held)
            await project.delete(DEPLOYMENT, WEB)
            await asyncio.sleep(5)
            assert (await hub.get(DEPLOYMENT, copy)).is_terminating
            assert (
                labels.FEDERATOR_FINALIZER
                in (await project.get(DEPLOYMENT, WEB)).metadata.finalizers
            )
            await hub.patch(DEPLOYMENT, copy, {"metadata": {"finalizers": None}})
            await asyncio.sleep(5)
            assert [ref_of(d) for d in (await project.list(DEPLOYMENT)).items] == []

    with_planes(test)
