"""The status of a deployment: counts, causes and progress."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance, SchedulingGate
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan, Wait
from datum_compute.planning.rollout.status import deployment_status, is_complete, plan_deployment
from testkit.builders import NOW, a_deployment, an_instance, of_workload

CELL = cell_plane("dfw")


def at(seconds: int) -> str:
    """Return the time this long after NOW."""
    return timestamp(1_767_225_600 + seconds)


def failing(number: int, reason: str, message: str = "", *, image: str = "web:1") -> Instance:
    instance = an_instance(number, image)
    value = ConditionValue(FALSE, reason, message)
    ready = make_condition("Ready", value, generation=1, now=NOW)
    status = msgspec.structs.replace(instance.status, conditions=[ready])
    return msgspec.structs.replace(instance, status=status)


def condition(deployment: WorkloadDeployment, instances: list[Instance], type_: str) -> Condition:
    found = find_condition(deployment_status(deployment, instances, NOW).conditions, type_)
    assert found is not None
    return found


def test_updated_replicas_follow_the_observed_hash() -> None:
    deployment = a_deployment(replicas=4)
    instances = [
        an_instance(0),
        an_instance(1, "web:0"),
        failing(2, "InstanceCrashing"),
        an_instance(3, ready=False),
    ]
    status = deployment_status(deployment, instances, NOW)
    assert (status.replicas, status.updated_replicas, status.current_replicas) == (4, 2, 1)
    assert (status.ready_replicas, status.desired_replicas) == (2, 4)


def test_a_terminating_deployment_desires_no_replicas() -> None:
    status = deployment_status(a_deployment(replicas=3, terminating=True), [an_instance(0)], NOW)
    assert (status.replicas, status.desired_replicas) == (1, 0)


def test_a_terminating_deployment_is_not_ready() -> None:
    """The hub mirrors this status into the project, where the instances are still desired."""
    replicas = condition(a_deployment(terminating=True), [an_instance(0)], "ReplicasReady")
    assert (replicas.status, replicas.reason) == (FALSE, "Removing")


def test_one_ready_instance_makes_the_deployment_available() -> None:
    deployment = a_deployment(replicas=3)
    instances = [an_instance(0), failing(1, "ImageUnavailable", "no such tag")]
    available = condition(deployment, instances, "Available")
    assert (available.status, available.reason) == (TRUE, "StableInstanceFound")
    assert available.message == "1/3 instances are ready"
    replicas = condition(deployment, instances, "ReplicasReady")
    assert (replicas.status, replicas.reason) == (FALSE, "ImageUnavailable")
    assert replicas.message == "1 of 3 desired replicas: no such tag"
    blocked = deployment_status(deployment, instances, NOW).blocked
    assert [(b.reason, b.replicas) for b in blocked] == [
        ("ImageUnavailable", 1),
        ("AwaitingCreation", 1),
    ]


WORST = [
    ([], ("InstancesProvisioning", "No instances available yet")),
    ([("Pending", "Not observed yet")], ("InstancesProvisioning", "No instances available yet")),
    ([("Starting", "soon")], ("Starting", "soon")),
    (
        [("Starting", ""), ("Provisioning", "no host has room")],
        ("Provisioning", "no host has room"),
    ),
    ([("Provisioning", ""), ("Unschedulable", "0/3 nodes")], ("Unschedulable", "0/3 nodes")),
    ([("Unschedulable", ""), ("Stopped", "exited with 0")], ("Stopped", "exited with 0")),
    (
        [("PendingQuota", "11 of 10"), ("PendingQuota", "12 of 10")],
        ("QuotaNotGranted", "2 of 3 desired instances pending quota: 11 of 10"),
    ),
    ([("PendingQuota", ""), ("Resolving", "a, b")], ("ReferencedDataNotReady", "a, b")),
    ([("Resolving", ""), ("SourceNotFound", "Secret x")], ("SourceNotFound", "Secret x")),
    (
        [("ImageUnavailable", "first"), ("InstanceCrashing", "second")],
        ("ImageUnavailable", "first"),
    ),
    (
        [("ImageUnavailable", ""), ("NetworkFailedToCreate", "no address")],
        ("NetworkFailedToCreate", "no address"),
    ),
]


@pytest.mark.parametrize(("reasons", "expected"), WORST)
def test_without_ready_instances_the_worst_cause_is_reported(
    reasons: list[tuple[str, str]], expected: tuple[str, str]
) -> None:
    instances = [failing(n, *cause) for n, cause in enumerate(reasons)]
    available = condition(a_deployment(replicas=3), instances, "Available")
    assert (available.status, available.reason, available.message) == (FALSE, *expected)


@pytest.mark.parametrize(
    ("gates", "expected"),
    [(["Network"], "NetworkProvisioning"), (["Network", "Moonphase"], "SchedulingGatesPresent")],
)
def test_a_gate_shows_on_the_deployment(gates: list[str], expected: str) -> None:
    held = failing(0, "SchedulingGatesPresent", f"Scheduling gates present: {gates}")
    control = msgspec.structs.replace(
        held.spec.controller, scheduling_gates=[SchedulingGate(name=g) for g in gates]
    )
    spec = msgspec.structs.replace(held.spec, controller=control)
    instances = [msgspec.structs.replace(held, spec=spec)]
    assert condition(a_deployment(), instances, "Available").reason == expected


def test_replicas_that_wait_for_quota_are_counted_in_the_message() -> None:
    instances = [an_instance(0), failing(1, "PendingQuota", "11 of 10")]
    found = condition(a_deployment(replicas=2), instances, "ReplicasReady")
    assert (found.status, found.reason) == (FALSE, "QuotaExceeded")
    assert found.message == "1 of 2 desired replicas are pending quota"


def test_observed_source_is_what_the_federator_recorded() -> None:
    deployment = a_deployment()
    stamped = msgspec.structs.replace(
        deployment.metadata,
        annotations={labels.SOURCE_GENERATION: "12", labels.SOURCE_TEMPLATE_HASH: "abc"},
    )
    status = deployment_status(msgspec.structs.replace(deployment, metadata=stamped), [], NOW)
    assert (status.observed_source.generation, status.observed_source.template_hash) == (12, "abc")
    assert status.observed_generation == 1


@pytest.mark.parametrize("stamp", ["", "x", "-1", "9" * 5000])
def test_an_invalid_source_generation_is_ignored(stamp: str) -> None:
    deployment = a_deployment()
    annotations = {labels.SOURCE_GENERATION: stamp}
    metadata = msgspec.structs.replace(deployment.metadata, annotations=annotations)
    status = deployment_status(msgspec.structs.replace(deployment, metadata=metadata), [], NOW)
    assert status.observed_source.generation == 0


@given(
    replicas=st.integers(1, 5),
    states=st.dictionaries(st.integers(0, 6), st.tuples(st.booleans(), st.booleans())),
)
def test_ready_and_blocked_replicas_add_up_to_the_desired_ones(
    replicas: int, states: dict[int, tuple[bool, bool]]
) -> None:
    instances = [an_instance(n, ready=r, terminating=t) for n, (r, t) in states.items()]
    status = deployment_status(a_deployment(replicas=replicas), instances, NOW)
    serving = sum(r and not t for n, (r, t) in states.items() if n < replicas)
    assert serving + sum(b.replicas for b in status.blocked) == replicas


def test_the_finalizer_comes_before_any_instance() -> None:
    (guard,) = plan_deployment(CELL, a_deployment(finalizers=()), [], NOW).actions
    assert isinstance(guard, Patch)
    assert guard.patch["metadata"]["finalizers"] == [labels.WORKLOAD_FINALIZER]


def test_a_deployment_is_released_when_its_last_instance_is_gone() -> None:
    deployment = a_deployment(terminating=True)
    waiting = plan_deployment(CELL, deployment, [an_instance(0, terminating=True)], NOW)
    assert not [a for a in waiting.actions if isinstance(a, Patch)]
    (release,) = plan_deployment(CELL, deployment, [], NOW).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


# --- progress


def observed(
    deployment: WorkloadDeployment, instances: list[Instance], now: str
) -> WorkloadDeployment:
    """The deployment after a pass has written its status."""
    return msgspec.structs.replace(deployment, status=deployment_status(deployment, instances, now))


def progress(deployment: WorkloadDeployment) -> tuple[str, str]:
    found = find_condition(deployment.status.conditions, "Progressing")
    assert found is not None
    return found.status, found.reason


def with_deadline(**more: Any) -> WorkloadDeployment:
    scale = ScaleSettings(min_replicas=2, progress_deadline_seconds=100)
    return a_deployment(scale=scale, **more)


def test_a_rollout_without_progress_is_reported_after_its_deadline() -> None:
    stuck = [an_instance(0), failing(1, "ImageUnavailable")]
    deployment = observed(with_deadline(), stuck, at(0))
    assert progress(deployment) == (TRUE, "RollingOut")
    plan = plan_deployment(CELL, deployment, stuck, at(60))
    assert plan.requeue_after_s == 41.0
    assert progress(observed(deployment, stuck, at(100))) == (TRUE, "RollingOut")
    late = observed(deployment, stuck, at(101))
    assert progress(late) == (FALSE, "ProgressDeadlineExceeded")
    assert plan_deployment(CELL, late, stuck, at(500)).actions  # it continues
    recovered = observed(late, [an_instance(0), an_instance(1)], at(600))
    assert progress(recovered) == (TRUE, "RolloutComplete")


def test_progress_restarts_the_deadline() -> None:
    deployment = observed(with_deadline(), [], at(0))
    deployment = observed(deployment, [an_instance(0)], at(90))
    assert progress(observed(deployment, [an_instance(0)], at(180))) == (TRUE, "RollingOut")


def test_an_instance_that_fails_later_is_not_a_rollout() -> None:
    deployment = observed(with_deadline(), [an_instance(0), an_instance(1)], at(0))
    broken = observed(deployment, [an_instance(0), failing(1, "InstanceCrashing")], at(9000))
    assert progress(broken) == (TRUE, "RolloutComplete")


def test_a_new_generation_is_a_new_rollout() -> None:
    deployment = observed(with_deadline(), [an_instance(0), an_instance(1)], at(0))
    metadata = msgspec.structs.replace(deployment.metadata, generation=2)
    template = a_deployment("web:2").spec.template
    spec = msgspec.structs.replace(deployment.spec, template=template)
    changed = msgspec.structs.replace(deployment, metadata=metadata, spec=spec)
    rolling = observed(changed, [an_instance(0), an_instance(1)], at(5000))
    assert progress(rolling) == (TRUE, "RollingOut")
    assert rolling.status.progressed_at == at(5000)


def test_a_paused_rollout_is_neither_progressing_nor_late() -> None:
    deployment = observed(with_deadline(paused=True), [an_instance(0, "web:0")], at(0))
    assert progress(observed(deployment, [an_instance(0, "web:0")], at(5000))) == (
        "Unknown",
        "RolloutPaused",
    )


def test_a_settled_deployment_causes_no_writes() -> None:
    instances = [an_instance(0), an_instance(1)]
    deployment = observed(with_deadline(), instances, at(0))
    plan = plan_deployment(CELL, deployment, instances, at(9000))
    assert plan.is_settled
    assert plan.requeue_after_s is None


def test_a_status_write_names_the_version_it_was_computed_from() -> None:
    deployment = with_deadline()
    plan = plan_deployment(CELL, deployment, [an_instance(0), an_instance(1)], NOW)
    (write,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert write.version == deployment.metadata.resource_version


def test_the_first_status_of_a_deployment_is_written_after_its_instances() -> None:
    """Each status write causes writes on four planes, and this one would report no instances."""
    plan = plan_deployment(CELL, with_deadline(), [], NOW)
    assert [type(action) for action in plan.actions] == [Create, Create]
    reported = observed(with_deadline(), [an_instance(0)], at(0))
    again = plan_deployment(CELL, reported, [], NOW)
    assert [type(action) for action in again.actions] == [Create, Create, PatchStatus]


# --- availability


def test_an_instance_is_available_when_it_has_been_ready_for_a_while() -> None:
    instances = [an_instance(0), an_instance(1, ready_since=NOW)]
    for now, available in ((at(0), 1), (at(4), 1), (at(5), 2)):
        status = deployment_status(a_deployment(replicas=2), instances, now)
        assert (status.ready_replicas, status.available_replicas) == (2, available)
    simulated = deployment_status(a_deployment(replicas=2), instances, NOW, simulated=True)
    assert simulated.available_replicas == 2


def test_unknown_readiness_is_neither_ready_nor_available_nor_complete() -> None:
    instances = [an_instance(0, ready=None), an_instance(1)]
    status = deployment_status(a_deployment(replicas=2), instances, NOW)
    assert (status.updated_replicas, status.ready_replicas, status.available_replicas) == (2, 1, 1)
    assert not is_complete(status)
    assert [(b.reason, b.replicas) for b in status.blocked] == [("NotObserved", 1)]


def test_available_is_unknown_while_all_serving_instances_are_unobserved() -> None:
    found = condition(a_deployment(), [an_instance(0, ready=None)], "Available")
    assert (found.status, found.reason) == ("Unknown", "NotObserved")
    assert found.message == "No driver has observed the machine"


def test_replicas_ready_is_unknown_if_all_missing_instances_may_be_ready() -> None:
    """Fallback cities and users act on False."""
    unknown = [an_instance(0), an_instance(1, ready=None)]
    found = condition(a_deployment(replicas=2), unknown, "ReplicasReady")
    assert (found.status, found.reason) == ("Unknown", "NotObserved")
    short = condition(a_deployment(replicas=3), unknown, "ReplicasReady")
    assert short.status == FALSE


def test_a_rollout_is_complete_when_all_instances_are_available() -> None:
    instances = [an_instance(0), an_instance(1, ready_since=NOW)]
    rolling = observed(with_deadline(), instances, at(4))
    assert progress(rolling) == (TRUE, "RollingOut")
    assert progress_text(rolling) == (
        "2 of 2 instances are updated; waiting until web-dfw-1 has been ready for 5 s"
    )
    assert progress(observed(rolling, instances, at(5))) == (TRUE, "RolloutComplete")


def test_a_pass_is_due_when_an_instance_becomes_available() -> None:
    instances = [an_instance(0, ready_since=NOW), an_instance(1, ready_since=at(2))]
    reported = observed(with_deadline(), instances, at(2))
    assert plan_deployment(CELL, reported, instances, at(2)).requeue_after_s == 3
    later = observed(reported, instances, at(5))
    assert plan_deployment(CELL, later, instances, at(5)).requeue_after_s == 2
    done = observed(later, instances, at(7))
    assert plan_deployment(CELL, done, instances, at(7)).requeue_after_s is None


def test_a_pass_is_due_without_a_rollout() -> None:
    done = observed(with_deadline(), [an_instance(0), an_instance(1)], at(0))
    restarted = [an_instance(0), an_instance(1, ready_since=at(100))]
    reported = observed(done, restarted, at(100))
    assert (reported.status.available_replicas, progress(reported)[1]) == (1, "RolloutComplete")
    assert plan_deployment(CELL, reported, restarted, at(100)).requeue_after_s == 5


def test_an_image_that_is_repeatedly_ready_for_a_moment_makes_no_progress() -> None:
    """Ready for 3 s of every 10 s: never available, so the deadline passes."""
    deployment = observed(with_deadline(), [an_instance(0), failing(1, "InstanceCrashing")], at(0))
    for second in range(10, 101, 10):
        brief = [an_instance(0), an_instance(1, ready_since=at(second))]
        deployment = observed(deployment, brief, at(second + 1))
        assert progress(deployment) == (TRUE, "RollingOut")
        exited = [an_instance(0), failing(1, "InstanceCrashing")]
        deployment = observed(deployment, exited, at(second + 3))
    assert progress(deployment) == (FALSE, "ProgressDeadlineExceeded")


def test_a_wait_that_starts_after_the_deadline_does_not_revoke_it() -> None:
    """A crash loop that is Ready for a moment would flap between the two reasons."""
    crashing = [an_instance(0), failing(1, "InstanceCrashing")]
    late = observed(observed(with_deadline(), crashing, at(0)), crashing, at(101))
    assert progress(late) == (FALSE, "ProgressDeadlineExceeded")
    brief = [an_instance(0), an_instance(1, ready_since=at(110))]
    late = observed(late, brief, at(111))
    assert progress(late) == (FALSE, "ProgressDeadlineExceeded")
    assert progress(observed(late, brief, at(115))) == (TRUE, "RolloutComplete")


def test_a_step_after_the_deadline_revokes_it() -> None:
    crashing = [failing(0, "InstanceCrashing"), failing(1, "InstanceCrashing")]
    late = observed(observed(with_deadline(), crashing, at(0)), crashing, at(101))
    one_available = [an_instance(0), failing(1, "InstanceCrashing")]
    assert progress(observed(late, one_available, at(110))) == (TRUE, "RollingOut")


def test_an_instance_that_is_lost_and_recovers_makes_no_progress() -> None:
    """It is available for 20 s of every 40 s, and the other one never is."""
    crashing = failing(1, "InstanceCrashing")
    deployment = observed(with_deadline(), [an_instance(0), crashing], at(0))
    for second in range(20, 101, 40):
        deployment = observed(deployment, [failing(0, "InstanceCrashing"), crashing], at(second))
        deployment = observed(deployment, [an_instance(0), crashing], at(second + 20))
    assert deployment.status.progressed_at == at(0)
    late = observed(deployment, [an_instance(0), crashing], at(101))
    assert progress(late) == (FALSE, "ProgressDeadlineExceeded")


def test_an_instance_that_is_observed_again_makes_no_progress() -> None:
    crashing = failing(1, "InstanceCrashing")
    deployment = observed(with_deadline(), [an_instance(0), crashing], at(0))
    deployment = observed(deployment, [an_instance(0, ready=None), crashing], at(50))
    assert deployment.status.available_replicas == 0
    deployment = observed(deployment, [an_instance(0), crashing], at(60))
    assert (deployment.status.available_replicas, deployment.status.progressed_at) == (1, at(0))


def test_progress_is_recorded_until_the_rollout_is_complete() -> None:
    deployment = observed(with_deadline(), [an_instance(0)], at(0))
    assert deployment.status.progress_reached == 2
    deployment = observed(deployment, [an_instance(0), an_instance(1)], at(1))
    assert deployment.status.progress_reached is None


def test_an_upgrade_is_not_rollout_progress() -> None:
    """The status of an earlier release has no availableReplicas: they are those that were ready."""
    stuck = [an_instance(0), failing(1, "ImageUnavailable")]
    deployment = observed(with_deadline(), stuck, at(0))
    before = msgspec.structs.replace(deployment.status, available_replicas=None)
    upgraded = msgspec.structs.replace(deployment, status=before)
    after = deployment_status(upgraded, stuck, at(50))
    assert (after.available_replicas, after.progressed_at) == (1, at(0))


def test_an_upgrade_recreates_nothing_and_stays_complete() -> None:
    instances = [an_instance(0), an_instance(1)]
    deployment = observed(with_deadline(), instances, at(0))
    before = msgspec.structs.replace(deployment.status, available_replicas=None)
    upgraded = msgspec.structs.replace(deployment, status=before)
    (write,) = plan_deployment(CELL, upgraded, instances, at(50)).actions
    assert isinstance(write, PatchStatus)
    assert write.status == {"availableReplicas": 2}


# --- stopping instances


def progress_text(deployment: WorkloadDeployment) -> str:
    found = find_condition(deployment.status.conditions, "Progressing")
    assert found is not None
    return found.message


def stopping(number: int, since: str, grace_s: int = 30) -> Instance:
    instance = an_instance(number, "web:0", terminating=True)
    metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=since)
    runtime = instance.spec.runtime
    sandbox = msgspec.structs.replace(runtime.sandbox, termination_grace_period_seconds=grace_s)
    runtime = msgspec.structs.replace(runtime, sandbox=sandbox)
    spec = msgspec.structs.replace(instance.spec, runtime=runtime)
    return msgspec.structs.replace(instance, metadata=metadata, spec=spec)


def test_an_instance_within_its_grace_period_counts_as_progress() -> None:
    slow = [an_instance(0), stopping(1, at(50), grace_s=300)]
    deployment = observed(with_deadline(), slow, at(0))
    within = observed(deployment, slow, at(340))
    assert progress(within) == (TRUE, "RollingOut")
    assert progress_text(within) == (
        "1 of 2 instances are updated; waiting for the old instance web-dfw-1 to stop, up to 300 s"
    )
    assert plan_deployment(CELL, within, slow, at(340)).requeue_after_s == 10
    over = observed(within, slow, at(360))
    assert progress_text(over) == "1 of 2 instances are updated"
    assert progress(observed(over, slow, at(450))) == (TRUE, "RollingOut")
    assert progress(observed(over, slow, at(451))) == (FALSE, "ProgressDeadlineExceeded")


def test_several_instances_that_stop_are_counted() -> None:
    slow = [stopping(0, at(0), grace_s=10), stopping(1, at(0), grace_s=30)]
    deployment = observed(with_deadline(), slow, at(5))
    assert progress_text(deployment) == (
        "0 of 2 instances are updated; waiting for 2 old instances to stop, up to 30 s"
    )


def test_a_rollout_does_not_wait_for_a_deletion_far_in_the_future() -> None:
    slow = [an_instance(0), stopping(1, at(100_000))]
    deployment = observed(with_deadline(), slow, at(0))
    assert progress_text(deployment) == "1 of 2 instances are updated"
    assert progress(observed(deployment, slow, at(101))) == (FALSE, "ProgressDeadlineExceeded")


# --- after a restart


def test_an_unconfirmed_replacement_is_not_progress() -> None:
    """It may have exited while the platform was down."""
    instances = [an_instance(0, "web:0"), an_instance(1)]
    deployment = observed(with_deadline(), instances, at(0))
    confirmed = plan_deployment(CELL, deployment, instances, at(10))
    assert removals(confirmed) == ["web-dfw-0"]
    missing = frozenset({instances[1].metadata.uid})
    waiting = plan_deployment(CELL, deployment, instances, at(10), unobserved=missing)
    assert removals(waiting) == []
    assert waiting.requeue_after_s == 1
    counts = [a.status for a in waiting.actions if isinstance(a, PatchStatus)]
    assert not [status for status in counts if "availableReplicas" in status], "counts stay"


def removals(plan: Plan) -> list[str]:
    return [a.ref.name for a in plan.actions if isinstance(a, Delete) and not a.deferred]


def test_an_ownerless_instance_of_an_earlier_workload_is_deleted_not_adopted() -> None:
    """Its deployment had the same name, and was deleted with its finalizer removed by hand."""
    left = an_instance(0, deployment=of_workload(a_deployment(), "earlier"))
    metadata = msgspec.structs.replace(left.metadata, owner_references=[])
    ownerless = msgspec.structs.replace(left, metadata=metadata)
    plan = plan_deployment(CELL, a_deployment(), [ownerless], NOW)
    delete, wait = plan.actions
    assert isinstance(delete, Delete)
    assert delete.uid == ownerless.metadata.uid
    assert isinstance(wait, Wait)
    assert plan.requeue_after_s is not None
