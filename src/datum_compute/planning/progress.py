"""How far a rollout has come, and when to report that it has stalled.

Progress is a step in the right direction: more instances updated or available, fewer that are not
wanted, or a new generation to roll out. The time of the last step is kept in the status, so that
the deadline survives a restart. An instance that stops within its grace period and one that has not
been Ready for ``minReadySeconds`` yet count as progress while that takes: the deadline starts when
their time is over. An instance that becomes Ready and is not available yet is no step, because an
image that is Ready for a moment and exits, again and again, makes no progress.

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
from datum_compute.planning.stopping import grace_left_s, render_stopping


@dataclass(frozen=True, slots=True)
class Timed:
    """What a rollout waits for that ends by itself after a known time.

    ``remaining_s`` is how long the last of it takes at most, ``overdue_s`` is how long ago the
    last of what is over should have ended; ``message`` describes it for users, if it goes on.
    """

    remaining_s: float = 0.0
    overdue_s: float | None = None
    message: str = ""


NO_TIMED_WAIT = Timed()


def timed_waits(instances: Sequence[Instance], min_ready: MinReady) -> Timed:
    """Instances that are stopping or that have not been Ready for long enough."""
    stopping = [(i, grace_left_s(i, min_ready.now)) for i in instances if i.is_terminating]
    settling = [i for i in instances if min_ready.remaining_s(i) is not None]
    left_s = [s for _, s in stopping if s is not None]
    left_s += [s for i in settling if (s := min_ready.remaining_s(i)) is not None]
    longest_s = max(left_s, default=None)
    if longest_s is None or longest_s <= 0:
        return Timed(overdue_s=None if longest_s is None else -longest_s)
    slow = [i for i, s in stopping if s is not None and s > 0]
    message = render_stopping(slow) if slow else _settling_text(settling, min_ready)
    return Timed(remaining_s=longest_s, message=message)


def _settling_text(instances: Sequence[Instance], min_ready: MinReady) -> str:
    if len(instances) == 1:
        which = f"{instances[0].metadata.name} has"
    else:
        which = f"{len(instances)} instances have"
    return f"waiting until {which} been ready for {min_ready.seconds} s"


def progressed_at(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str
) -> str:
    """When the last step was made, if ``observed`` is how it stands now."""
    before = deployment.status
    is_step = (
        before.progressed_at is None
        or before.observed_generation != deployment.metadata.generation
        or observed.updated_replicas > before.updated_replicas
        or observed.available_or_ready > before.available_or_ready
        or _surplus(observed) < _surplus(before)
    )
    return now if is_step or before.progressed_at is None else before.progressed_at


def _surplus(counts: ReplicaCounts) -> int:
    """Instances that are too many or too old."""
    wanted = min(counts.updated_replicas, counts.desired_replicas)
    return max(0, counts.replicas - wanted)


def progressing(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: Timed = NO_TIMED_WAIT,
) -> Condition:
    """``observed`` carries the counts and ``progressed_at`` as of now."""
    verdict = _verdict(deployment, observed, now, timed)
    return decided(PROGRESSING, verdict, generation=deployment.metadata.generation, now=now)


def deadline_in_s(
    deployment: WorkloadDeployment,
    observed: WorkloadDeploymentStatus,
    now: str,
    timed: Timed = NO_TIMED_WAIT,
) -> float | None:
    """How long until the deadline passes; None if there is none to wait for."""
    condition = find_condition(observed.conditions, PROGRESSING)
    if condition is None or condition.reason != Reason.ROLLING_OUT:
        return None
    return max(1.0, _left_s(deployment, observed, now, timed) + 1.0)


def _verdict(
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: Timed
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
    deployment: WorkloadDeployment, observed: WorkloadDeploymentStatus, now: str, timed: Timed
) -> float:
    """Seconds until the deadline; it starts at the last step, or when a timed wait is over."""
    allowed = deployment.spec.scale_settings.progress_deadline_seconds
    still_s = parse_timestamp(now) - parse_timestamp(observed.progressed_at or now)
    if timed.remaining_s > 0:
        return allowed + timed.remaining_s
    if timed.overdue_s is not None:
        still_s = min(still_s, timed.overdue_s)
    return allowed - still_s
