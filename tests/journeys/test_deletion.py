"""Deletion is complete and fast with every propagation policy."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import (
    CLAIM,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    DEPLOYMENT,
    NAMESPACE,
    REVISION,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import HUB
from datum_compute.api.quota import (
    WORKLOADS,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
    consumer_of,
)
from tests.journeys.platform import CELL, PROJECT, WEB, Platform, on_platform


def test_deleting_a_project_namespace_cleans_up_hub_and_cell() -> None:
    """Regression: its hub namespace, its cell namespaces and their policies were never deleted."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)

        async def hub_namespaces() -> list[str]:
            listed = [
                *(await hub.list(NAMESPACE)).items,
                *(await hub.list(CLUSTER_POLICY)).items,
                *(await hub.list(CLUSTER_BINDING)).items,
                *(await hub.list(WORK)).items,
                *(await platform.cell.list(NAMESPACE)).items,
            ]
            return sorted(o.metadata.name for o in listed if o.metadata.name.startswith("ns-"))

        before = await hub_namespaces()
        assert len(before) == 5
        team = Namespace(metadata=ObjectMeta(name="team"))
        uid = (await platform.project.create(NAMESPACE, team)).metadata.uid
        body = (await platform.project.get_plain(WORKLOAD, WEB))["spec"]
        meta = {"name": "web", "namespace": "team"}
        of_workload = {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
        await platform.project.create_plain(
            WORKLOAD, {**of_workload, "metadata": meta, "spec": body}
        )

        async def runs() -> bool:
            return len(await platform.instances()) == 2

        await platform.until(runs, "an instance runs in the namespace")
        assert len(await hub_namespaces()) == 10
        await platform.project.delete(NAMESPACE, Ref("", "team"))

        async def as_before() -> bool:
            return await hub_namespaces() == before

        await platform.until(as_before, f"nothing of ns-{uid} is left")
        await platform.until_ready("web:1")  # the workload of the other namespace is unchanged

    on_platform(story, boot_s=0.0)


def test_an_empty_hub_namespace_stays_while_its_source_exists() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        before = [n.metadata.uid for n in (await hub.list(NAMESPACE)).items]
        await platform.project.delete(WORKLOAD, WEB)
        await asyncio.sleep(300)
        assert [n.metadata.uid for n in (await hub.list(NAMESPACE)).items] == before

    on_platform(story, boot_s=0.0)


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_workload_is_deleted_fast_with_every_propagation_policy(policy: str) -> None:
    """Regression: with Orphan it stayed for 30 s after its dependents were deleted."""

    async def story(platform: Platform) -> float:
        await platform.deploy()
        await platform.until_ready("web:1")
        started_s = asyncio.get_running_loop().time()
        await platform.project.delete(WORKLOAD, WEB, policy=policy)
        await platform.until(lambda: is_gone(platform), "the workload is gone")
        assert await platform.instances() == []
        assert (await platform.project.list(DEPLOYMENT)).items == []
        # Regression: Orphan left the claim, and no later workload of the name became ready.
        assert (await platform.project.list(CLAIM)).items == []
        assert (await platform.project.list(REVISION)).items == []
        return asyncio.get_running_loop().time() - started_s

    assert on_platform(story, boot_s=0.0) < 5


def test_a_claim_and_revisions_left_by_an_earlier_workload_do_not_block_a_new_one() -> None:
    """Deletions with Orphan left them in earlier releases."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        (claim,) = [c for c in (await platform.project.list(CLAIM)).items if is_of_web(c)]
        (record,) = (await platform.project.list(REVISION)).items
        await platform.project.delete(WORKLOAD, WEB)
        await platform.until(lambda: is_gone(platform), "the workload is gone")
        operator = platform.host.operator(PROJECT)
        leaked: tuple[tuple[KindInfo[Any], Any], ...] = ((CLAIM, claim), (REVISION, record))
        for kind, left in leaked:
            meta = ObjectMeta(
                name=left.metadata.name,
                namespace=left.metadata.namespace,
                labels=left.metadata.labels,
            )
            await operator.create(kind, msgspec.structs.replace(left, metadata=meta))
        await platform.deploy("web:2")
        await platform.until_ready("web:2")
        (replaced,) = [c for c in (await platform.project.list(CLAIM)).items if is_of_web(c)]
        uid = (await platform.workload()).metadata.uid
        assert [owner.uid for owner in replaced.metadata.owner_references] == [uid]
        records = (await platform.project.list(REVISION)).items
        assert [r.spec.workload_ref.uid for r in records] == [uid]

    on_platform(story, boot_s=0.0)


def test_a_workload_reports_that_it_waits_for_an_earlier_claim() -> None:
    async def story(platform: Platform) -> str:
        await platform.wait_until_booted()
        operator = platform.host.operator(PROJECT)
        held = ObjectMeta(name="workload-web", namespace="default", finalizers=["example.com/hold"])
        spec = ResourceClaimSpec(
            consumer_ref=consumer_of("default"),
            resource_ref=consumer_of("default"),
            requests=[ResourceRequest(resource_type=WORKLOADS.resource_type, amount=1)],
        )
        await operator.create(CLAIM, ResourceClaim(metadata=held, spec=spec))
        await platform.deploy()
        condition = await platform.until_reason("QuotaMisconfigured")
        await asyncio.sleep(5)
        ref = Ref("default", "workload-web")
        await operator.patch(CLAIM, ref, {"metadata": {"finalizers": []}})
        started_s = asyncio.get_running_loop().time()
        await platform.until_ready("web:1")
        assert asyncio.get_running_loop().time() - started_s < 10
        return condition.message

    assert "finalizers: example.com/hold" in on_platform(story, boot_s=0.0)


@pytest.mark.parametrize("answering", [True, False])
def test_a_terminating_workload_with_a_foreign_finalizer_reports_its_actual_state(
    answering: bool,
) -> None:
    """Regression: it was Available with one ready instance after all its instances were deleted."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        if not answering:
            platform.host.silent.add(CELL)
            await platform.until_reason("CellUnreachable")
        ours = (await platform.workload()).metadata.finalizers
        await platform.project.patch(
            WORKLOAD, WEB, {"metadata": {"finalizers": [*ours, "example.com/hold"]}}
        )
        (provider,) = platform.host.providers.values()
        provider.remove_s = 5.0
        await platform.project.delete(WORKLOAD, WEB)
        if answering:
            condition = await platform.until_reason("Removing")
            assert "waiting for DFW to confirm" in condition.message
            status = (await platform.workload()).status
            assert (status.replicas, status.ready_replicas) == (1, 0)
        condition = await platform.until_reason("HeldByFinalizer")
        assert condition.status == "False"
        assert condition.message.endswith("held by example.com/hold")
        status = (await platform.workload()).status
        assert (status.replicas, status.ready_replicas, status.desired_replicas) == (0, 0, 0)
        assert {c.status for c in status.conditions} == {"False"}
        assert not [c for c in (await platform.project.list(CLAIM)).items if is_of_web(c)]
        await platform.project.patch(WORKLOAD, WEB, {"metadata": {"finalizers": []}})
        await platform.until(lambda: is_gone(platform), "the workload is gone")

    on_platform(story, boot_s=0.0)


def is_of_web(claim: ResourceClaim) -> bool:
    return claim.metadata.name == "workload-web"


async def is_gone(platform: Platform) -> bool:
    try:
        await platform.workload()
    except NotFound:
        return True
    return False
