"""The workload controller records revisions, rolls out city by city, and deletes deployments."""

from __future__ import annotations

import asyncio

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import ObservedSource, WorkloadDeploymentStatus
from datum_compute.api.compute.workload import PROGRESSING, RolloutPolicy, Workload
from datum_compute.api.compute.workload_revision import PinnedImage
from datum_compute.api.conditions import FALSE, TRUE, Condition, ConditionStatus, Reason
from datum_compute.api.kinds import (
    CLAIM,
    DEPLOYMENT,
    INSTANCE,
    LOCATION_BINDING,
    NAMESPACE,
    REVISION,
    WORKLOAD,
)
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import project_plane
from datum_compute.api.quota import GRANTED, ResourceClaimStatus
from datum_compute.client.client import Client
from datum_compute.controllers.workload.workload import (
    REVISION_CONTROLLER,
    WORKLOAD_CONTROLLER,
)
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import a_deployment, a_location_binding, a_workload, an_instance
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


def test_the_digest_that_an_instance_reports_is_recorded_once_in_the_newest_revision() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[list[PinnedImage]]:
        project = await a_project(planes)
        await project.create(WORKLOAD, as_new(a_workload()))
        seen = []
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await asyncio.sleep(5)
            uid = (await project.get(WORKLOAD, WEB)).metadata.uid
            (revision,) = (await project.list(REVISION)).items
            for ordinal, digest in enumerate(("sha256:1", "sha256:2")):
                made = an_instance(ordinal)
                control = msgspec.structs.replace(
                    made.spec.controller, template_hash=revision.spec.template_hash
                )
                own = {**made.metadata.labels, labels.WORKLOAD_UID: uid}
                spec = msgspec.structs.replace(made.spec, controller=control)
                made = msgspec.structs.replace(as_new(made, labels=own), spec=spec)
                await project.create(INSTANCE, made)
                found = await project.get(INSTANCE, ref_of(made))
                images = [{"name": "app", "image": "web:1", "digest": digest}]
                await project.patch_status(
                    INSTANCE,
                    ref_of(made),
                    {"images": images},
                    version=found.metadata.resource_version,
                )
                await asyncio.sleep(5)
                (revision,) = (await project.list(REVISION)).items
                seen.append(revision.spec.images)
        return seen

    recorded = [PinnedImage(container="app", digest="sha256:1")]
    assert with_planes(test) == [recorded, recorded]


async def report(project: Client, city: str, reason: Reason) -> None:
    """Report Progressing for the present template, as the cell of the city would."""
    (found,) = [d for d in (await project.list(DEPLOYMENT)).items if d.spec.city_code == city]
    status: ConditionStatus = FALSE if reason == Reason.PROGRESS_DEADLINE_EXCEEDED else TRUE
    generation = found.metadata.generation
    source = ObservedSource(generation=generation, template_hash=template_hash(found.spec.template))
    progressing = Condition(type=PROGRESSING, status=status, reason=reason, message="reported")
    reported = WorkloadDeploymentStatus(
        conditions=[progressing], observed_generation=generation, observed_source=source
    )
    await project.patch_status(
        DEPLOYMENT, ref_of(found), to_json(reported), version=found.metadata.resource_version
    )
    await asyncio.sleep(5)


async def images(project: Client) -> dict[str, str]:
    found = (await project.list(DEPLOYMENT)).items
    return {
        d.spec.city_code: d.spec.template.spec.runtime.sandbox.containers[0].image for d in found
    }


async def a_complete_workload(project: Client, **rollout: str) -> None:
    policy = from_json(rollout, RolloutPolicy)
    workload = a_workload(cities=("DFW", "IAD"))
    spec = msgspec.structs.replace(workload.spec, rollout=policy)
    await project.create(WORKLOAD, as_new(msgspec.structs.replace(workload, spec=spec)))
    await asyncio.sleep(5)
    (claim,) = (await project.list(CLAIM)).items
    granted = Condition(type=GRANTED, status=TRUE, reason="QuotaAvailable")
    status = to_json(ResourceClaimStatus(conditions=[granted]))
    version = claim.metadata.resource_version
    await project.patch_status(CLAIM, ref_of(claim), status, version=version)
    await asyncio.sleep(5)
    for city in ("DFW", "IAD"):
        await report(project, city, Reason.ROLLOUT_COMPLETE)


async def change_image(project: Client, image: str) -> None:
    template = to_json(a_workload(image).spec.template)
    await project.patch(WORKLOAD, WEB, {"spec": {"template": template}})
    await asyncio.sleep(5)


def test_the_second_city_gets_a_template_when_the_first_has_reported_it() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await a_complete_workload(project)
            await change_image(project, "web:2")
            assert await images(project) == {"DFW": "web:2", "IAD": "web:1"}
            await report(project, "DFW", Reason.ROLLOUT_COMPLETE)
            assert await images(project) == {"DFW": "web:2", "IAD": "web:2"}
            settled = (await project.get(WORKLOAD, WEB)).metadata.resource_version
            await asyncio.sleep(300)
            found = await project.get(WORKLOAD, WEB)
            assert found.metadata.resource_version == settled
            assert [c.state for c in found.status.rollout.cities] == ["Done", "RollingOut"]

    with_planes(test)


def test_a_rollback_survives_a_restart_of_the_controllers_and_keeps_the_spec() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await a_complete_workload(project, onFailure="Rollback")
            await change_image(project, "web:2")
            spec = (await project.get(WORKLOAD, WEB)).spec
            await report(project, "DFW", Reason.PROGRESS_DEADLINE_EXCEEDED)
            assert await images(project) == {"DFW": "web:1", "IAD": "web:1"}
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await report(project, "DFW", Reason.ROLLOUT_COMPLETE)
            assert await images(project) == {"DFW": "web:1", "IAD": "web:1"}
        found = await project.get(WORKLOAD, WEB)
        assert found.spec == spec
        rollout = found.status.rollout
        assert (rollout.failed_revision, rollout.running_revision) == (2, 1)
        revisions = sorted((await project.list(REVISION)).items, key=lambda r: r.spec.revision)
        assert [r.spec.cause for r in revisions] == ["Change", "Change", "AutomaticRollback"]

    with_planes(test)


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


def named(name: str, placement: str) -> Workload:
    workload = a_workload()
    metadata = msgspec.structs.replace(workload.metadata, name=name)
    placements = [msgspec.structs.replace(workload.spec.placements[0], name=placement)]
    spec = msgspec.structs.replace(workload.spec, placements=placements)
    return msgspec.structs.replace(workload, metadata=metadata, spec=spec)


async def grant_claims(project: Client) -> None:
    await asyncio.sleep(5)
    granted = Condition(type=GRANTED, status=TRUE, reason="QuotaAvailable")
    status = to_json(ResourceClaimStatus(conditions=[granted]))
    for claim in (await project.list(CLAIM)).items:
        version = claim.metadata.resource_version
        await project.patch_status(CLAIM, ref_of(claim), status, version=version)
    await asyncio.sleep(5)


async def owners(project: Client) -> dict[str, str]:
    """Return the workload of each deployment."""
    found = (await project.list(DEPLOYMENT)).items
    return {d.metadata.name: d.spec.workload_ref.name for d in found}


def test_two_workloads_with_the_same_readable_name_get_different_deployments() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        await project.create(WORKLOAD, as_new(named("a-b", "c")))
        await project.create(WORKLOAD, as_new(named("a", "b-c")))
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await grant_claims(project)
            found = await owners(project)
            assert sorted(found.values()) == ["a", "a-b"]
            assert "a-b-c-dfw" in found
            await project.delete(WORKLOAD, Ref("default", found.pop("a-b-c-dfw")))
            await release_deployments(project)
            assert await owners(project) == found, "an existing deployment keeps its name"

    with_planes(test)


async def release_deployments(project: Client) -> None:
    """Remove the finalizers of terminating deployments, as the federator does."""
    await asyncio.sleep(5)
    for deployment in (await project.list(DEPLOYMENT)).items:
        if deployment.is_terminating:
            released = {"metadata": {"finalizers": None}}
            await project.patch(DEPLOYMENT, ref_of(deployment), released)
    await asyncio.sleep(5)


def test_a_workload_waits_for_the_name_of_a_deployment_that_is_being_removed() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        await project.create(WORKLOAD, as_new(named("a-b", "c")))
        async with running(CONTROLLERS, loop, planes, PROJECT):
            await grant_claims(project)
            await project.delete(WORKLOAD, Ref("default", "a-b"))
            await project.create(WORKLOAD, as_new(named("a", "b-c")))
            await grant_claims(project)
            await asyncio.sleep(60)
            assert await owners(project) == {"a-b-c-dfw": "a-b"}
            await release_deployments(project)
            assert await owners(project) == {"a-b-c-dfw": "a"}

    with_planes(test)
