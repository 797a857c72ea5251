"""How far a rollout has come, and when to report that it has stalled.

Progress is a number: instances updated plus instances available minus instances to be removed. A
rollout makes a step when the number exceeds all earlier ones of the same generation, or when the
generation is new. The highest number and the time of the last step are kept in the status, so that
the deadline survives a restart. An instance that was lost and recovers makes no step, and neither
does one whose readiness was Unknown for a while.

An instance that stops within its grace period, and an instance that has not been Ready for
``minReadySeconds`` yet, delay the deadline: it starts when their time is over. They do not revoke a
deadline that has passed. Becoming Ready is no step; becoming available is. An image that repeatedly
is Ready for a moment and exits therefore makes no progress.

A rollout that was complete stays complete until the spec changes: an instance that fails later is
not a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    find_condition,
)
from datum_compute.api.instance import Instance
from datum_compute.api.reasons import Reason
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workload import PROGRESSING, ReplicaCounts
from datum_compute.api.workloaddeployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.planning.availability import MinReady
from datum_compute.planning.rollout.stopping import grace_left_s, render_stopping


@dataclass(frozen=True, slots=True)
class TimedWait:
    """A wait of a rollout that ends by itself after a known time."""

    # Seconds until the longest of the waits is over; 0 if none goes on.
    remaining_s: float = 0.0
    # For how many seconds the last wait has been over; None if there was none or one goes on.
    overdue_s: float | None = None
    # Describes a wait that goes on, for users; otherwise empty.
    message: str = ""


NO_TIMED_WAIT = TimedWait()


def timed_waits(instances: Sequence[Instance], min_ready: MinReady) -> TimedWait:
    """Return the wait for instances that are stopping or have not been Ready for long enough."""
    stopping = [
        (instance, left_s)
        for instance in instances
        if instance.is_terminating and (left_s := grace_left_s(instance, min_ready.now)) is not None
    ]
    settling = [
        (instance, left_s)
        for instance in instances
        if (left_s := min_ready.seconds_until_available(instance)) is not None
    ]
    longest_s = max((left_s for _, left_s in (*stopping, *settling)), default=None)
    if longest_s is None:
        return NO_TIMED_WAIT
    if longest_s <= 0:
        return TimedWait(overdue_s=-longest_s)
    slow = [instance for instance, left_s in stopping if left_s > 0]
    if slow:
        message = render_stopping(slow)
    else:
        message = _settling_text([instance for instance, _ in settling], min_ready)
    return TimedWait(remaining_s=longest_s, message=message)


def _settling_text(instances: Sequence[Instance], min_ready: MinReady) -> str:
    if len(instances) == 1:
        which = f"{instances[0].metadata.name} has"
    else:
        which = f"{len(instances)} instances have"
    return f"waiting until {which} been ready for {min_ready.seconds} s"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rollout has come."""

    # The highest number so far; None if the rollout is complete.
    reached: int | None
    # The time of the last step (RFC 3339).
    at: str


def measure_progress(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> Progress:
    """Return the progress of the rollout, given the counts observed now."""
    before = deployment.status
    is_new = before.observed_generation != deployment.metadata.generation
    reached = _count_progress(observed)
    if is_new or before.progressed_at is None:
        step_at = now
    else:
        # A status of an earlier release has counts only.
        earlier = before.progress_reached
        if earlier is None:
            earlier = _count_progress(before)
        step_at = now if reached > earlier else before.progressed_at
        reached = max(reached, earlier)
    is_over = is_complete(observed) or _was_complete(deployment)
    return Progress(reached=None if is_over else reached, at=step_at)


def _count_progress(counts: ReplicaCounts) -> int:
    kept = min(counts.updated_replicas, counts.desired_replicas)
    to_be_removed = max(0, counts.replicas - kept)
    return counts.updated_replicas + counts.available_or_ready - to_be_removed


def progressing(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: TimedWait = NO_TIMED_WAIT,
) -> Condition:
    """``observed`` carries the counts and ``progressed_at`` as of now."""
    verdict = _verdict(deployment, observed, now, timed)
    return decided(PROGRESSING, verdict, generation=deployment.metadata.generation, now=now)


def deadline_in_s(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: TimedWait = NO_TIMED_WAIT,
) -> float | None:
    """Return how long until the deadline passes; None if no rollout waits for one."""
    condition = find_condition(observed.conditions, PROGRESSING)
    if condition is None or condition.reason != Reason.ROLLING_OUT:
        return None
    return max(1.0, _left_s(deployment, observed, now, timed) + 1.0)


def _verdict(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: TimedWait
) -> Verdict:
    generation = deployment.metadata.generation
    if is_complete(observed) or _was_complete(deployment):
        return Verdict(TRUE, Reason.ROLLOUT_COMPLETE, f"Generation {generation} is rolled out")
    done = f"{observed.updated_replicas} of {observed.desired_replicas} instances are updated"
    if deployment.spec.paused:
        return Verdict(UNKNOWN, Reason.ROLLOUT_PAUSED, f"Paused: {done}")
    is_late = _left_s(deployment, observed, now, timed) < 0
    if is_late or _stays_exceeded(deployment, observed):
        allowed = deployment.spec.scale_settings.progress_deadline_seconds
        ready = f"{observed.ready_replicas} are ready"
        if observed.available_or_ready != observed.ready_replicas:
            ready += f", {observed.available_or_ready} are available"
        message = f"No progress for more than {allowed} s: {done}, {ready}"
        return Verdict(FALSE, Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    message = f"{done}; {timed.message}" if timed.message else done
    return Verdict(TRUE, Reason.ROLLING_OUT, message)


def is_complete(counts: ReplicaCounts) -> bool:
    """Whether exactly the wanted instances exist, all updated, ready and available."""
    return (
        counts.replicas
        == counts.updated_replicas
        == counts.ready_replicas
        == counts.available_or_ready
        == counts.desired_replicas
    )


def _was_complete(deployment: WorkloadDeployment) -> bool:
    """Whether the rollout of this generation was reported as complete."""
    return _was_reported(deployment, Reason.ROLLOUT_COMPLETE)


def _stays_exceeded(deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus) -> bool:
    """Whether the deadline was reported as exceeded, and no step was made since.

    A timed wait that begins later does not revoke it. Otherwise an image that is Ready for a moment
    and exits would alternate between RollingOut and ProgressDeadlineExceeded.
    """
    return (
        _was_reported(deployment, Reason.PROGRESS_DEADLINE_EXCEEDED)
        and observed.progressed_at == deployment.status.progressed_at
    )


def _was_reported(deployment: WorkloadDeployment, reason: Reason) -> bool:
    """Whether the recorded Progressing condition has this reason for the current generation."""
    condition = find_condition(deployment.status.conditions, PROGRESSING)
    return (
        condition is not None
        and condition.reason == reason
        and condition.observed_generation == deployment.metadata.generation
    )


def _left_s(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: TimedWait
) -> float:
    """Seconds until the deadline; it starts at the last step, or when a timed wait is over."""
    allowed = deployment.spec.scale_settings.progress_deadline_seconds
    still_s = parse_timestamp(now) - parse_timestamp(observed.progressed_at or now)
    if timed.remaining_s > 0:
        return allowed + timed.remaining_s
    if timed.overdue_s is not None:
        still_s = min(still_s, timed.overdue_s)
    return allowed - still_s
