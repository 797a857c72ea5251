"""Status of deployments and instances whose cell is unreachable.

The hub keeps the last status that a cell reported. While the Cluster of the cell is not Ready, the
project shows that status with Unknown conditions and no ready replicas, and keeps the last known
counts in `lastKnown`. The cell's own status returns with its next report.

The message contains only the time since which the cell is unreachable, so that the status is
written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api.compute.deployment import LastKnown, WorkloadDeploymentStatus
from datum_compute.api.compute.instance import AVAILABLE, READY, InstanceStatus
from datum_compute.api.compute.workload import BlockedReplicas
from datum_compute.api.conditions import (
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.karmada import Cluster


@dataclass(frozen=True, slots=True)
class UnreachableCell:
    cell: str
    since: str

    @property
    def verdict(self) -> ConditionValue:
        message = f"Cell {self.cell} has not answered since {self.since}"
        return ConditionValue(UNKNOWN, Reason.CELL_UNREACHABLE, message)


def find_unreachable(cluster: Cluster | None) -> UnreachableCell | None:
    """Return None if the cell is Ready or was never probed."""
    ready = find_condition(cluster.status.conditions, "Ready") if cluster is not None else None
    if cluster is None or ready is None or ready.status == TRUE:
        return None
    return UnreachableCell(cluster.metadata.name, ready.last_transition_time)


def same_reachability(old: Cluster | None, new: Cluster | None) -> bool:
    """Return True if an update of a Cluster changes neither Ready nor the start of the outage."""
    if old is None or new is None:
        return False
    old_ready, new_ready = (is_true(cluster.status.conditions, "Ready") for cluster in (old, new))
    return old_ready == new_ready and find_unreachable(old) == find_unreachable(new)


def mark_deployment_unknown(
    last_report: WorkloadDeploymentStatus,
    current: WorkloadDeploymentStatus,
    unreachable: UnreachableCell,
    now: str,
) -> WorkloadDeploymentStatus:
    """Return the last report of the cell with Unknown conditions and no ready replicas.

    Transition times are kept from `current`, the status that the project shows.
    """
    types = tuple(condition.type for condition in last_report.conditions)
    replicas = last_report.desired_replicas
    verdict = unreachable.verdict
    blocked = BlockedReplicas(reason=verdict.reason, replicas=replicas, message=verdict.message)
    return msgspec.structs.replace(
        last_report,
        conditions=_with_unknown(
            last_report.conditions, current.conditions, types, unreachable, now
        ),
        ready_replicas=0,
        available_replicas=0,
        covered_replicas=0,
        last_known=LastKnown(as_of=unreachable.since, ready_replicas=last_report.ready_replicas),
        blocked=[blocked] if replicas else [],
    )


def mark_instance_unknown(
    last_report: InstanceStatus, current: InstanceStatus, unreachable: UnreachableCell, now: str
) -> InstanceStatus:
    """Return the last report of the cell with Ready and Available Unknown.

    Other conditions stay: a granted quota or a programmed machine does not depend on reachability.
    """
    types = (READY, AVAILABLE)
    conditions = _with_unknown(last_report.conditions, current.conditions, types, unreachable, now)
    return msgspec.structs.replace(last_report, conditions=conditions)


def _with_unknown(
    last_report: Sequence[Condition],
    current: Sequence[Condition],
    types: Sequence[str],
    unreachable: UnreachableCell,
    now: str,
) -> list[Condition]:
    conditions = []
    for condition in last_report:
        if condition.type in types:
            generation = condition.observed_generation
            unknown = make_condition(
                condition.type, unreachable.verdict, generation=generation, now=now
            )
            old = find_condition(current, condition.type)
            (condition,) = with_condition([old] if old is not None else [], unknown)
        conditions.append(condition)
    return conditions
