"""Quota on the whole platform: claims belong to slots, no instance runs beyond the limit, and
denied instances start when quota becomes free.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import (
    BUCKET,
    CLAIM,
    GRANT,
    INSTANCE,
    NAMESPACE,
    REGISTRATION,
    SERVICE_CONFIGURATION,
    WORKLOAD,
)
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import PLATFORM, member_name
from datum_compute.api.quota import ResourceClaim
from datum_compute.api.services import grant_name
from datum_compute.app.platform import EVERYTHING
from datum_compute.controllers.quota import decisions as quota
from datum_compute.planning.quota.claims import is_granted
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.planning.rollout.surge import SURGE_AVAILABLE
from testkit.sim.checks.quota import quota_problem, quota_totals
from tests.journeys.platform import CELL, PROJECT, WEB, Platform, on_platform

QUOTA = "QuotaNotGranted"
INSTANCES = "compute.datumapis.com/instances"


async def claims(platform: Platform) -> list[ResourceClaim]:
    """Return all claims except those of workloads."""
    found = (await platform.project.list(CLAIM)).items
    instances = [c for c in found if not c.metadata.name.startswith("workload-")]
    return sorted(instances, key=lambda c: c.metadata.name)


async def limit_instances(
    platform: Platform, amount: int, *, resource_type: str = INSTANCES
) -> None:
    path = "/spec/allowances/0/buckets/0/amount"
    await platform.host.operator(PROJECT).patch(
        GRANT, grant_of(resource_type), [{"op": "replace", "path": path, "value": amount}]
    )


def grant_of(resource_type: str = INSTANCES) -> Ref:
    limit = resource_type.rpartition("/")[2]
    return Ref("milo-system", grant_name("compute", member_name(PROJECT), limit))


async def ready_count(platform: Platform) -> int:
    return sum(is_ready(i) for i in await platform.instances())


def never_exceeded(platform: Platform) -> str:
    """Return the first violation of invariant I2 in all committed states, or ""."""
    rows: dict[object, tuple[str, dict[str, object]]] = {}
    before = quota_totals([])
    for change in platform.writes:
        if change.body is None:
            rows.pop((change.plane, change.key), None)
        else:
            rows[change.plane, change.key] = change.plane, decode(change.body)
        if change.key.resource not in (CLAIM.resource, GRANT.resource):
            continue
        after = quota_totals(rows.values())
        problem = quota_problem(before, after)
        if problem:
            return problem
        before = after
    return ""


def test_instances_beyond_the_limit_do_not_run_and_report_the_reason() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy(replicas=12, instanceManagementPolicy="Parallel")

        async def ten_run() -> bool:
            return await ready_count(platform) == 10

        await platform.until(ten_run, "ten ready instances")
        await asyncio.sleep(30)
        assert len(await platform.servers()) == 10
        waiting = [i for i in await platform.instances() if not is_ready(i)]
        conditions = [find_condition(i.status.conditions, "QuotaGranted") for i in waiting]
        assert [c.reason for c in conditions if c is not None] == ["QuotaExceeded"] * 2
        assert all(
            c is not None and c.message == "Instance quota is full (10 of 10)" for c in conditions
        )
        (bucket,) = [
            b
            for b in (await platform.project.list(BUCKET)).items
            if b.spec.resource_type == INSTANCES
        ]
        assert (bucket.status.allocated, bucket.status.available) == (10, 0)
        return never_exceeded(platform)

    assert on_platform(story, boot_s=0.0) == ""


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_running_instances_are_updated_while_others_wait_for_quota(policy: str) -> None:
    """Regression: with ten of twelve granted, no instance was updated."""

    async def story(platform: Platform) -> int:
        await platform.deploy(replicas=12, instanceManagementPolicy=policy)

        async def ten_run(image: str) -> bool:
            ready = [i for i in await platform.instances() if is_ready(i)]
            images = [i.spec.runtime.sandbox.containers[0].image for i in ready]
            return images == [image] * 10

        await platform.until(lambda: ten_run("web:1"), "ten ready instances")
        await platform.change_image("web:2")
        fewest = 10
        for _ in range(600):
            fewest = min(fewest, await ready_count(platform))
            await asyncio.sleep(0.1)
        assert await ten_run("web:2")
        assert never_exceeded(platform) == ""
        return fewest

    assert on_platform(story) == 9


def test_a_denied_instance_starts_when_the_grant_is_raised() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=11, instanceManagementPolicy="Parallel")

        async def ten_run() -> bool:
            return await ready_count(platform) == 10

        await platform.until(ten_run, "ten ready instances")
        await limit_instances(platform, 11)
        await platform.until_ready("web:1", 11)
        assert await ready_count(platform) == len(await claims(platform)) == 11

    on_platform(story, boot_s=0.0)


def test_a_recreate_at_full_quota_keeps_the_claim() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        before = [c.metadata.uid for c in await claims(platform)]
        await limit_instances(platform, 0)
        await platform.change_image("web:2")
        await platform.until_ready("web:2", 2)
        assert [c.metadata.uid for c in await claims(platform)] == before

    on_platform(story)


def test_the_claim_of_a_removed_slot_is_released() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        first, second = await claims(platform)
        assert first.metadata.name.startswith("instance-web-")
        assert first.metadata.labels[labels.SOURCE_CLUSTER] == "dfw"
        placements = [
            {"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
        ]
        await platform.change(placements=placements)

        async def released() -> bool:
            return [c.metadata.name for c in await claims(platform)] == [first.metadata.name]

        await platform.until(released, f"{second.metadata.name} is released")

    on_platform(story)


def test_a_workload_beyond_the_limit_reports_the_quota_until_it_is_raised() -> None:
    """It creates no instances. A lower limit does not affect a workload that was granted before."""
    workloads = "compute.datumapis.com/workloads"

    async def story(platform: Platform) -> str:
        await platform.wait_until_booted()
        await limit_instances(platform, 0, resource_type=workloads)
        await platform.deploy()
        denied = await platform.until_reason(QUOTA)
        assert await platform.instances() == []
        blocked = (await platform.workload()).status.blocked
        assert [(b.reason, b.replicas) for b in blocked] == [(QUOTA, 1)]
        await limit_instances(platform, 1, resource_type=workloads)
        await platform.until_ready("web:1")
        await limit_instances(platform, 0, resource_type=workloads)
        await platform.change_image("web:2")
        await platform.until_ready("web:2")
        buckets = (await platform.project.list(BUCKET)).items
        used = {b.spec.resource_type: b.status.allocated for b in buckets}
        assert used[workloads] == 1
        await platform.project.delete(WORKLOAD, WEB)

        async def nothing_left() -> bool:
            return not (await platform.project.list(CLAIM)).items

        await platform.until(nothing_left, "the claim goes with its workload")
        return denied.message

    assert on_platform(story) == "Workload quota is not granted to this project"


def test_instances_of_a_project_without_quota_wait_for_a_budget() -> None:
    async def story(platform: Platform) -> None:
        await platform.wait_until_booted()
        await limit_instances(platform, 0)
        await platform.deploy()
        denied = await platform.until_reason(QUOTA)
        assert "Instance quota is not granted to this project" in denied.message
        (waiting,) = await platform.instances()
        granted = find_condition(waiting.status.conditions, "QuotaGranted")
        ready = find_condition(waiting.status.conditions, "Ready")
        assert granted is not None
        assert ready is not None
        assert (granted.status, granted.reason) == ("Unknown", "QuotaNoBudget")
        assert (ready.status, ready.reason, ready.message) == (
            *("False", "PendingQuota"),
            granted.message,
        )
        await limit_instances(platform, 1)
        await platform.until_ready("web:1")

    on_platform(story)


def test_rechecks_of_an_instance_that_waits_for_quota_are_logged_once_per_tier(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=11, instanceManagementPolicy="Parallel")

        async def ten_run() -> bool:
            return await ready_count(platform) == 10

        await platform.until(ten_run, "ten ready instances")
        await asyncio.sleep(1000)

    with caplog.at_level(logging.INFO, logger="datum_compute.controllers.gates"):
        on_platform(story)
    logged = [r.args for r in caplog.records if "waits for quota" in r.msg]
    keys = {str(arguments[0]) for arguments in logged if isinstance(arguments, tuple)}
    denied = [a[2] for a in logged if isinstance(a, tuple) and a[1] == "QuotaExceeded"]
    assert len(keys) <= 11
    assert denied == [1.0, 15.0, 60.0, 300.0]


def test_a_workload_with_an_undecided_claim_reports_that_it_waits() -> None:
    undecided = tuple(c for c in EVERYTHING if c not in quota.DECISION_CONTROLLERS)

    async def story(platform: Platform) -> str:
        await platform.deploy()
        return (await platform.until_reason("PendingEvaluation")).message

    message = on_platform(story, controllers=undecided)
    assert message == "Waiting for the quota decision"


def test_another_instance_type_gets_another_claim() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        (before,) = await claims(platform)
        runtime = {
            "sandbox": {"containers": [{"name": "app", "image": "web:1"}]},
            "resources": {"instanceType": "d1-standard-4"},
        }
        await platform.change(template={"spec": {"runtime": runtime}})

        async def replaced() -> bool:
            found = await claims(platform)
            return [c.metadata.uid for c in found] != [before.metadata.uid] and all(
                is_granted(c) for c in found
            )

        await platform.until(replaced, "a claim of the new size")
        await platform.until_ready("web:1")
        (after,) = await claims(platform)
        assert [r.amount for r in after.spec.requests] == [1, 2000, 4096]

    on_platform(story)


def test_a_deleted_claim_counts_while_its_machine_runs_and_is_then_recreated() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        (before,) = await claims(platform)
        ref = Ref(before.metadata.namespace, before.metadata.name)
        await platform.host.operator(PROJECT).delete(CLAIM, ref)
        await asyncio.sleep(90)
        (held,) = await claims(platform)
        assert held.metadata.uid == before.metadata.uid
        assert held.is_terminating
        assert await ready_count(platform) == 1
        await platform.change_image("web:2")
        await platform.until_ready("web:2")
        (after,) = await claims(platform)
        assert after.metadata.uid != before.metadata.uid
        assert is_granted(after)
        assert not after.is_terminating

    on_platform(story)


def test_a_deleted_denied_claim_is_recreated_at_once() -> None:
    async def story(platform: Platform) -> None:
        await platform.wait_until_booted()
        await limit_instances(platform, 0)
        await platform.deploy()

        async def denied() -> bool:
            return bool(await claims(platform)) and (await platform.available()).reason == QUOTA

        await platform.until(denied, "it is denied")
        (before,) = await claims(platform)
        ref = Ref(before.metadata.namespace, before.metadata.name)
        await platform.host.operator(PROJECT).delete(CLAIM, ref)
        await asyncio.sleep(5)
        (after,) = await claims(platform)
        assert after.metadata.uid != before.metadata.uid

    on_platform(story)


def test_conflicts_with_other_writers_do_not_delay_an_instance_that_waits_for_quota() -> None:
    """A conflict costs one retry step. The delay does not grow with each conflict."""

    async def story(platform: Platform) -> float:
        await platform.wait_until_booted()
        await limit_instances(platform, 0)
        await platform.deploy()
        await platform.until_reason(QUOTA)
        loop = asyncio.get_running_loop()
        operator = platform.host.operator(CELL)

        async def meddle() -> None:
            for number in range(100_000):
                (found,) = await platform.instances()
                patch = {"metadata": {"annotations": {"meddled": str(number)}}}
                await operator.patch(INSTANCE, ref_of(found), patch)
                await asyncio.sleep(0.01)

        meddling = loop.create_task(meddle())
        await asyncio.sleep(20)
        begun = loop.time()
        await limit_instances(platform, 1)
        await platform.until_ready("web:1")
        meddling.cancel()
        return loop.time() - begun

    assert on_platform(story) < 15


def test_claims_of_other_kinds_with_the_same_name_are_not_deleted() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        (ours,) = await claims(platform)
        name = ours.metadata.name.removeprefix("instance-")
        metadata = ObjectMeta(name=name, namespace=ours.metadata.namespace)
        other = ResourceClaim(metadata=metadata, spec=ours.spec)
        await platform.host.operator(PROJECT).create(CLAIM, other)
        await platform.project.delete(WORKLOAD, WEB)

        async def only_the_other() -> bool:
            return [c.metadata.name for c in await claims(platform)] == [name]

        await platform.until(only_the_other, "ours is released, the other is not")
        await asyncio.sleep(90)
        assert await only_the_other()

    on_platform(story)


def test_deleting_a_namespace_frees_no_quota_before_its_machines_are_gone() -> None:
    """The quota is ten: a namespace with ten machines is deleted while ten more are requested."""

    async def story(platform: Platform) -> int:
        await platform.wait_until_booted()
        await platform.project.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="shop")))
        (provider,) = platform.host.providers.values()
        await platform.deploy(replicas=10, namespace="shop", instanceManagementPolicy="Parallel")

        async def ten_run() -> bool:
            return await ready_count(platform) == 10

        await platform.until(ten_run, "ten ready instances")
        provider.remove_s = 5.0
        await platform.project.delete(NAMESPACE, Ref("", "shop"))
        await platform.deploy(replicas=10, instanceManagementPolicy="Parallel")
        most = 0
        for _ in range(600):
            most = max(most, len(provider.alive()))
            await asyncio.sleep(0.1)
        await platform.until_ready("web:1", 10)
        assert len(provider.alive()) == 10
        assert never_exceeded(platform) == ""
        return most

    assert on_platform(story) == 10


def test_the_service_declares_its_quota_metrics() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        platform_plane = platform.host.operator(PLATFORM)
        configuration = await platform_plane.get(SERVICE_CONFIGURATION, Ref("", "compute"))
        declared = {metric.name for metric in configuration.spec.metrics}
        assert {name.rpartition("/")[2] for name in declared} == {
            *("workloads", "instances", "vcpus", "memory")
        }
        limits = {limit.name: limit.default_limit for limit in configuration.spec.quota.limits}
        expected = {"workloads": 1000, "instances": 10, "vcpus": 40_000, "memory": 81_920}
        assert limits == expected
        rules = configuration.spec.quota.metric_rules
        assert {name for rule in rules for name in rule.metric_costs} <= declared
        registrations = (await platform_plane.list(REGISTRATION)).items
        assert {r.spec.resource_type for r in registrations} == declared

    on_platform(story)


def test_the_claim_of_a_surge_instance_lives_as_long_as_the_instance() -> None:
    async def story(platform: Platform) -> list[set[str]]:
        await platform.deploy()
        await platform.until_ready("web:1")
        before = {claim.metadata.uid for claim in await claims(platform)}
        await platform.change_image("web:2")

        async def has_surge_claim() -> bool:
            return len(await claims(platform)) == 2

        await platform.until(has_surge_claim, "the surge instance has a claim")
        await platform.until_ready("web:2")
        await asyncio.sleep(5)
        return [before, {claim.metadata.uid for claim in await claims(platform)}]

    before, after = on_platform(story)
    assert before == after


def test_a_rollout_without_quota_for_surge_reports_it_and_continues() -> None:
    async def story(platform: Platform) -> str:
        await platform.wait_until_booted()
        await limit_instances(platform, 1)
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change_image("web:2")
        found: list[Condition] = []

        async def is_reported() -> bool:
            conditions = (await platform.workload()).status.conditions
            found[:] = [c for c in conditions if c.type == SURGE_AVAILABLE]
            return bool(found)

        await platform.until(is_reported, "the workload reports why it has no surge")
        await platform.until_ready("web:2")
        await asyncio.sleep(5)
        conditions = (await platform.workload()).status.conditions
        assert find_condition(conditions, SURGE_AVAILABLE) is None
        return found[0].reason

    assert on_platform(story) == "SurgeUnavailable"
