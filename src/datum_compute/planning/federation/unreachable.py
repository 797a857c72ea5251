"""What is known of a cell that does not answer: nothing, since a moment that can be named.

The hub keeps the last word of every cell. Here it becomes Unknown on its way to the project, so
that nothing is called ready which nobody can see; when the cell answers again its own word returns.
The message holds nothing that changes while the silence lasts, so it is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api.cluster import Cluster
from datum_compute.api.conditions import (
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    decided,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, READY, InstanceStatus
from datum_compute.api.reasons import Reason
from datum_compute.api.workload import BlockedReplicas
from datum_compute.api.workloaddeployment import LastKnown, WorkloadDeploymentStatus


@dataclass(frozen=True, slots=True)
class Silence:
    cell: str
    since: str

    @property
    def verdict(self) -> Verdict:
        message = f"Cell {self.cell} has not answered since {self.since}"
        return Verdict(UNKNOWN, Reason.CELL_UNREACHABLE, message)


def silence_of(cluster: Cluster | None) -> Silence | None:
    """None for a cell that answers, and for one that nobody has asked yet."""
    ready = find_condition(cluster.status.conditions, "Ready") if cluster is not None else None
    if cluster is None or ready is None or ready.status == TRUE:
        return None
    return Silence(cluster.metadata.name, ready.last_transition_time)


def are_equally_heard(old: Cluster | None, new: Cluster | None) -> bool:
    """Whether a change of a Cluster leaves it as silent as it was, or as ready."""
    if old is None or new is None:
        return False
    was, now = (is_true(cluster.status.conditions, "Ready") for cluster in (old, new))
    return was == now and silence_of(old) == silence_of(new)


def unheard_deployment(
    told: WorkloadDeploymentStatus,
    shown: WorkloadDeploymentStatus,
    silence: Silence,
    now: str,
) -> WorkloadDeploymentStatus:
    """``told`` is the cell's last word, ``shown`` what the project says now. Whatever was there may
    still be there, but none of it counts as ready."""
    types = tuple(condition.type for condition in told.conditions)
    reason, message = silence.verdict.reason, silence.verdict.message
    blocked = BlockedReplicas(reason=reason, replicas=told.desired_replicas, message=message)
    return msgspec.structs.replace(
        told,
        conditions=_unknown(told.conditions, shown.conditions, types, silence, now),
        ready_replicas=0,
        available_replicas=0,
        last_known=LastKnown(as_of=silence.since, ready_replicas=told.ready_replicas),
        blocked=[blocked] if told.desired_replicas else [],
    )


def unheard_instance(
    told: InstanceStatus, shown: InstanceStatus, silence: Silence, now: str
) -> InstanceStatus:
    """How it was set up and what was granted to it stays true; whether it serves nobody knows."""
    types = (READY, AVAILABLE)
    conditions = _unknown(told.conditions, shown.conditions, types, silence, now)
    return msgspec.structs.replace(told, conditions=conditions)


def _unknown(
    told: Sequence[Condition],
    shown: Sequence[Condition],
    types: Sequence[str],
    silence: Silence,
    now: str,
) -> list[Condition]:
    """``told`` with the given types Unknown; the time of a transition is kept from ``shown``."""
    found = []
    for condition in told:
        if condition.type in types:
            generation = condition.observed_generation
            new = decided(condition.type, silence.verdict, generation=generation, now=now)
            old = find_condition(shown, condition.type)
            (condition,) = with_condition([old] if old is not None else [], new)
        found.append(condition)
    return found
