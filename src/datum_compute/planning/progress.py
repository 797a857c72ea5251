"""How far a rollout has come, and when to say that it has stopped coming further.

Progress is a step in the right direction: more instances updated or ready, fewer that are not
wanted, or a new generation to roll out. The time of the last step is kept in the status, so that
the deadline survives a restart. A rollout that was complete stays complete until the spec changes:
an instance that fails later is not a rollout.
"""

from __future__ import annotations

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    find_condition,
)
from datum_compute.api.reasons import Reason
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workload import PROGRESSING, ReplicaCounts
from datum_compute.api.workloaddeployment import WorkloadDeployment, WorkloadDeploymentStatus


def progressed_at(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> str:
    """When the last step was made, if ``observed`` is how it stands now."""
    before = deployment.status
    is_step = (
        before.progressed_at is None
        or before.observed_generation != deployment.metadata.generation
        or observed.updated_replicas > before.updated_replicas
        or observed.ready_replicas > before.ready_replicas
        or _surplus(observed) < _surplus(before)
    )
    return now if is_step or before.progressed_at is None else before.progressed_at


def _surplus(counts: ReplicaCounts) -> int:
    """Instances that are too many or too old."""
    wanted = min(counts.updated_replicas, counts.desired_replicas)
    return max(0, counts.replicas - wanted)


def progressing(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> Condition:
    """``observed`` carries the counts and ``progressed_at`` as of now."""
    verdict = _verdict(deployment, observed, now)
    return decided(PROGRESSING, verdict, generation=deployment.metadata.generation, now=now)


def deadline_in_s(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> float | None:
    """How long until the deadline passes; None if there is none to wait for."""
    condition = find_condition(observed.conditions, PROGRESSING)
    if condition is None or condition.reason != Reason.ROLLING_OUT:
        return None
    return max(1.0, _left_s(deployment, observed, now) + 1.0)


def _verdict(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> Verdict:
    generation = deployment.metadata.generation
    if is_complete(observed) or _was_complete(deployment):
        return Verdict(TRUE, Reason.ROLLOUT_COMPLETE, f"Generation {generation} is rolled out")
    done = f"{observed.updated_replicas} of {observed.desired_replicas} instances are updated"
    if deployment.spec.paused:
        return Verdict(UNKNOWN, Reason.ROLLOUT_PAUSED, f"Paused: {done}")
    if _left_s(deployment, observed, now) < 0:
        allowed = deployment.spec.scale_settings.progress_deadline_seconds
        ready = f"{observed.ready_replicas} are ready"
        message = f"No progress for more than {allowed} s: {done}, {ready}"
        return Verdict(FALSE, Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    return Verdict(TRUE, Reason.ROLLING_OUT, done)


def is_complete(counts: ReplicaCounts) -> bool:
    """Exactly what is wanted, all of the current template and all ready."""
    return (
        counts.replicas
        == counts.updated_replicas
        == counts.ready_replicas
        == counts.desired_replicas
    )


def _was_complete(deployment: WorkloadDeployment) -> bool:
    """For this very generation."""
    condition = find_condition(deployment.status.conditions, PROGRESSING)
    return (
        condition is not None
        and condition.reason == Reason.ROLLOUT_COMPLETE
        and condition.observed_generation == deployment.metadata.generation
    )


def _left_s(deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str) -> float:
    since = parse_timestamp(observed.progressed_at or now)
    allowed = deployment.spec.scale_settings.progress_deadline_seconds
    return since + allowed - parse_timestamp(now)
