"""Instances that are stopping: grace period, condition and message.

The driver sends the stop signal and kills the program after the grace period of its template. Until
then the instance is not stuck, so the progress deadline of a rollout does not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import FALSE, ConditionValue, Reason
from datum_compute.api.meta.timestamps import parse_timestamp


def grace_period_s(instance: Instance) -> int:
    return instance.spec.runtime.sandbox.termination_grace_period_seconds


def stopping_value(instance: Instance) -> ConditionValue:
    message = f"Waiting for the instance to stop, up to {grace_period_s(instance)} s"
    return ConditionValue(FALSE, Reason.STOPPING, message)


def render_stopping(instances: Sequence[Instance]) -> str:
    """Return the message of a rollout that waits for at least one instance to stop."""
    longest_s = max(map(grace_period_s, instances))
    if len(instances) == 1:
        which = f"the old instance {instances[0].metadata.name}"
    else:
        which = f"{len(instances)} old instances"
    return f"waiting for {which} to stop, up to {longest_s} s"


def grace_left_s(instance: Instance, now: str) -> float | None:
    """Return the seconds until the grace period is over, negative afterwards.

    Return None if the deletion time is so far in the future that the clocks must disagree.
    """
    grace_s = grace_period_s(instance)
    since = instance.metadata.deletion_timestamp or now
    left_s = parse_timestamp(since) + grace_s - parse_timestamp(now)
    return left_s if left_s <= 2 * grace_s else None
