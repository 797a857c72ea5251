"""Regressions: copies on cells and hub that no controller deleted. The simulator found them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.core import Namespace
from datum_compute.api.errors import ApiError
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import HUB, federation_namespace
from tests.journeys.platform import PROJECT, WEB, Platform, on_platform


def test_an_edited_work_annotation_is_restored_and_the_copy_is_deleted_with_its_workload() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy()
        await platform.until_ready("web:1")
        copy = await platform.deployment()
        edit = {"metadata": {"annotations": {labels.WORK_NAME: "junk"}}}
        await platform.cell.patch(DEPLOYMENT, ref_of(copy), edit)
        await asyncio.sleep(5)
        mended = (await platform.deployment()).metadata.annotations[labels.WORK_NAME]
        await platform.project.delete(WORKLOAD, WEB)
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")
        return mended

    assert on_platform(story).startswith("web-")


def test_a_copy_is_deleted_although_its_work_annotation_was_edited() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        copy = await platform.deployment()
        edit = {"metadata": {"annotations": {labels.WORK_NAME: "junk"}}}
        await asyncio.gather(
            platform.project.delete(WORKLOAD, WEB),
            platform.cell.patch(DEPLOYMENT, ref_of(copy), edit),
        )
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")
        return True

    assert on_platform(story)


@dataclass(frozen=True)
class HubBackup:
    """The hub namespace of a project namespace, and the deployment in it."""

    namespace: Namespace
    deployment: WorkloadDeployment


async def back_up_and_delete_namespace(platform: Platform) -> HubBackup:
    """Deploy in a namespace of the project, back up its copy on the hub, delete the namespace."""
    await platform.wait_until_booted()
    team = Namespace(metadata=ObjectMeta(name="team"))
    uid = (await platform.project.create(NAMESPACE, team)).metadata.uid
    await platform.deploy(namespace="team")
    hub, name = platform.host.operator(HUB), federation_namespace(uid)

    async def runs() -> bool:
        return len(await platform.instances()) == 1

    await platform.until(runs, "an instance runs in the namespace")
    (deployment,) = (await hub.list(DEPLOYMENT, namespace=name)).items
    backup = HubBackup(await hub.get(NAMESPACE, Ref("", name)), deployment)
    await platform.project.delete(NAMESPACE, Ref("", "team"))
    await platform.until(lambda: _is_gone_from_hub(platform, name), "its hub namespace is gone")
    await platform.until(lambda: _is_empty(platform), "the cell has nothing left")
    return backup


async def restore_on_hub(platform: Platform, backup: HubBackup) -> None:
    """Create what the backup contains. The namespace gets its labels last, because an empty one
    that names its project is deleted."""
    hub = platform.host.operator(HUB)
    namespace, deployment = backup.namespace.metadata, backup.deployment.metadata
    await hub.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=namespace.name)))
    metadata = ObjectMeta(
        name=deployment.name,
        namespace=deployment.namespace,
        labels=deployment.labels,
        annotations=deployment.annotations,
    )
    await hub.create(DEPLOYMENT, msgspec.structs.replace(backup.deployment, metadata=metadata))
    labeled = {"metadata": {"labels": namespace.labels}}
    await hub.patch(NAMESPACE, Ref("", namespace.name), labeled)


def test_a_hub_copy_is_deleted_when_a_restore_brings_back_a_deleted_namespace() -> None:
    """Regression: the copy stayed on the hub and on its cell, because its namespace was gone."""

    async def story(platform: Platform) -> None:
        backup = await back_up_and_delete_namespace(platform)
        await restore_on_hub(platform, backup)
        name = backup.namespace.metadata.name
        await platform.until(lambda: _is_gone_from_hub(platform, name), "its namespace is gone")
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")

    on_platform(story, boot_s=0.0)


def test_a_restored_hub_copy_stays_while_its_project_is_unreachable() -> None:
    async def story(platform: Platform) -> None:
        backup = await back_up_and_delete_namespace(platform)
        platform.host.silent.add(PROJECT)
        await restore_on_hub(platform, backup)
        await asyncio.sleep(300)
        assert len((await platform.host.operator(HUB).list(DEPLOYMENT)).items) == 1
        platform.host.silent.clear()
        name = backup.namespace.metadata.name
        await platform.until(lambda: _is_gone_from_hub(platform, name), "its namespace is gone")
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")

    on_platform(story, boot_s=0.0)


def test_a_hub_deployment_that_is_no_copy_stays_without_its_namespace() -> None:
    async def story(platform: Platform) -> None:
        backup = await back_up_and_delete_namespace(platform)
        del backup.deployment.metadata.annotations[labels.SOURCE_GENERATION]
        await restore_on_hub(platform, backup)
        await asyncio.sleep(300)
        assert len((await platform.host.operator(HUB).list(DEPLOYMENT)).items) == 1

    on_platform(story, boot_s=0.0)


async def _is_gone_from_hub(platform: Platform, namespace: str) -> bool:
    try:
        found = (await platform.host.operator(HUB).list(NAMESPACE)).items
    except ApiError:
        return False
    return all(n.metadata.name != namespace for n in found)


async def _is_empty(platform: Platform) -> bool:
    try:
        copies = (await platform.cell.list(DEPLOYMENT)).items
        instances = (await platform.cell.list(INSTANCE)).items
    except ApiError:
        return False
    return not copies and not instances
