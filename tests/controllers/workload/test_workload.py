"""The workload controller records revisions, and deletes deployments without an owner."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.kinds import (
    DEPLOYMENT,
    LOCATION_BINDING,
    NAMESPACE,
    REVISION,
    WORKLOAD,
)
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.workload.workload import (
    REVISION_CONTROLLER,
    WORKLOAD_CONTROLLER,
)
from testkit.builders import a_deployment, a_location_binding, a_workload
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
CONTROLLERS = (WORKLOAD_CONTROLLER, REVISION_CONTROLLER)
WEB = Ref("default", "web")


async def a_project(planes: InProcessPlanes) -> Client:
    project = await planes.create(PROJECT)
    await project.create(NAMESPACE, a_namespace("default"))
    for city in ("DFW", "IAD"):
        await project.create(LOCATION_BINDING, a_location_binding(city))
    return project


def test_every_change_of_the_template_is_recorded_as_a_revision() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[int]:
        project = await a_project(planes)
        await project.create(WORKLOAD, as_new(a_workload()))
        counts = []
        async with running(CONTROLLERS, loop, planes, PROJECT):
            for image in ("web:1", "web:2", "web:2"):
                template = to_json(a_workload(image).spec.template)
                await project.patch(WORKLOAD, WEB, {"spec": {"template": template}})
                await asyncio.sleep(5)
                counts.append(len((await project.list(REVISION)).items))
        return counts

    assert with_planes(test) == [1, 2, 2]


def test_a_deleted_workload_is_gone_as_soon_as_its_last_ownerless_deployment_is() -> None:
    """The owner reference of the deployment was removed by hand; it is found by its label."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        workload = await project.create(WORKLOAD, as_new(a_workload()))
        orphan = as_new(
            a_deployment(finalizers=("example.com/held",)),
            labels={labels.WORKLOAD_UID: workload.metadata.uid},
        )
        await project.create(DEPLOYMENT, orphan)
        await project.delete(WORKLOAD, WEB)
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await asyncio.sleep(5)
            (held,) = (await project.list(DEPLOYMENT)).items
            assert held.is_terminating
            assert (await project.get(WORKLOAD, WEB)).is_terminating
            await project.patch(DEPLOYMENT, ref_of(orphan), {"metadata": {"finalizers": None}})
            await asyncio.sleep(5)
            assert (await project.list(WORKLOAD)).items == []

    with_planes(test)
