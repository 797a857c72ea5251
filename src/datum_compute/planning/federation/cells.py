"""Cells of the hub: scheduling of deployments, health, removal of a cell, and orphaned claims.

Scheduling:

- A city has one cell. If two cells match, nothing new is scheduled, so that no deployment runs
  twice. Karmada would schedule to every matching cluster; the policies of
  planning/federation/hub_namespaces.py limit it to one.
- An object that is scheduled stays on its cell. The condition of an object that cannot be scheduled
  states the reason.
- A drained cell (a NoSchedule taint, as in Karmada) receives nothing new.

Conditions of a Cluster (Ready results from probes of its cell, Serving from its city and taints):

- A cell that responds is Ready. A cell that was Ready becomes not ready only after it has not
  responded for `grace_s`. The transition time is then that of its last response.
- A cell that never responded is not ready from its first failed probe.
- Serving is omitted while it is true and was never set, so that most Clusters do not have it.

Removal of a cell:

- The hub deletes the Works of the cell, then the objects that it needs to reach the cell, then the
  Cluster. A Work records that the cell has a copy, so a cell without Works is empty.
- A reachable cell confirms each deletion. The hub waits for an unreachable cell, unless the cell
  leaves by force: then the hub releases its Works, because no confirmation will arrive.

Orphaned claims: a quota claim that no cell will release, because the cell or its namespace is gone,
is deleted. While the cell is a member and has the namespace, its claims stay, even if the cell is
unreachable, because their instances may still run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, NO_SCHEDULE, Cluster, Work
from datum_compute.api.kinds import CLAIM, CLUSTER, INSTANCE, LEASE, NAMESPACE, SECRET, WORK
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import HUB, PlaneName, execution_namespace
from datum_compute.api.quota import ResourceClaim
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.unreachable import find_unreachable
from datum_compute.planning.plan import Action, Delete, Plan, Wait, drop_finalizer

_OF_KARMADA = "cluster.karmada.io/"
_SCHEDULED = ConditionValue(TRUE, "Success", "Binding has been scheduled successfully")
_NO_CLUSTER = ConditionValue(FALSE, "NoClusterFit", "No cluster matches the policy")


@dataclass(frozen=True, slots=True)
class SchedulingResult:
    """The selected clusters, and the value of the binding's Scheduled condition."""

    targets: tuple[str, ...]
    verdict: ConditionValue


def is_drained(cluster: Cluster) -> bool:
    """Return True if an operator drained the cell.

    Karmada taints unreachable clusters with keys of its own, which do not count.
    """
    return any(
        taint.effect == NO_SCHEDULE and not taint.key.startswith(_OF_KARMADA)
        for taint in cluster.spec.taints
    )


def unschedulable_reason(cells: Sequence[Cluster]) -> ConditionValue | None:
    """Return why no cell of a city accepts new deployments.

    Return None if the city has no cell, or has one that accepts them. Karmada reports only that no
    cluster fits, so the reason is computed here.
    """
    if not cells or any(find_unreachable(c) is None and not is_drained(c) for c in cells):
        return None
    unreachable_cells = (find_unreachable(cell) for cell in cells if not is_drained(cell))
    unreachable = next(filter(None, unreachable_cells), None)
    return (
        unreachable.verdict
        if unreachable is not None
        else drained_condition(cells[0].metadata.name)
    )


def drained_condition(cell: str) -> ConditionValue:
    message = f"Cell {cell} is drained: nothing new is placed there"
    return ConditionValue(FALSE, Reason.CELL_DRAINED, message)


def schedule_to_all(matching: Sequence[Cluster]) -> SchedulingResult:
    """Schedule an object to every matching cell.

    This is for objects that deployments need on each of their cells: namespaces, ConfigMaps and
    Secrets.
    """
    names = tuple(sorted(cluster.metadata.name for cluster in matching))
    return SchedulingResult(names, _SCHEDULED if names else _NO_CLUSTER)


def schedule_to_one(matching: Sequence[Cluster], bound: Collection[str]) -> SchedulingResult:
    """Schedule a deployment to one cell.

    A cell in ``bound`` already has the deployment and keeps it, even if the cell is drained.
    """
    names = sorted(cluster.metadata.name for cluster in matching)
    current = [name for name in names if name in bound]
    if current:
        return SchedulingResult((current[0],), _SCHEDULED)
    open_ = sorted(c.metadata.name for c in matching if not is_drained(c))
    if len(open_) == 1 and len(names) == 1:
        return SchedulingResult((open_[0],), _SCHEDULED)
    if len(names) > 1:
        message = f"Cells {' and '.join(names)} serve the same city; only one of them may"
        return SchedulingResult(
            (), ConditionValue(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message)
        )
    if names:
        return SchedulingResult((), drained_condition(names[0]))
    return SchedulingResult((), _NO_CLUSTER)


def serving_condition(cluster: Cluster, others: Sequence[Cluster]) -> ConditionValue:
    """Return the value of Serving. ``others`` are the other clusters of the city."""
    if others:
        names = ", ".join(sorted(other.metadata.name for other in others))
        message = f"The city is also served by {names}: nothing new is placed until one has left"
        return ConditionValue(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message)
    if is_drained(cluster):
        message = "Nothing new is placed on this cell; running instances stay"
        return ConditionValue(FALSE, Reason.CELL_DRAINED, message)
    return ConditionValue(TRUE, "ServesCity", "The cell receives the deployments of its city")


# ---- Health

READY = "Ready"
SERVING = "Serving"

REACHABLE_RESULT = ConditionValue(TRUE, "ClusterReady", "the cell is reachable")


def not_reachable_result(message: str) -> ConditionValue:
    return ConditionValue(FALSE, "ClusterNotReachable", message)


@dataclass(frozen=True, slots=True)
class CellProbe:
    """The last probe of a cell.

    ``unreachable_s`` is how long the cell has not responded; 0 if this probe succeeded. Probes are
    repeated after ``interval_s`` and take at most ``timeout_s``.
    """

    result: ConditionValue
    unreachable_s: float
    interval_s: float
    timeout_s: float
    grace_s: float

    @property
    def next_in_grace_s(self) -> float:
        """When to probe next, so that the last probe of the grace period ends with it."""
        remaining_s = self.grace_s - self.unreachable_s
        if remaining_s <= self.timeout_s:
            return min(self.interval_s, remaining_s)
        return min(self.interval_s, remaining_s - self.timeout_s)


def plan_cell_health(
    cluster: Cluster, same_city: Sequence[Cluster], probe: CellProbe, unix_s: float
) -> Plan:
    """Plan the status of the Cluster, and the time of the next probe.

    ``same_city`` are the other clusters of the city.
    """
    conditions: Sequence[Condition] = cluster.status.conditions
    requeue_after_s = probe.interval_s
    if 0 < probe.unreachable_s < probe.grace_s and is_true(conditions, READY):
        requeue_after_s = probe.next_in_grace_s
    else:
        changed_at = timestamp(unix_s - probe.unreachable_s)
        generation = cluster.metadata.generation
        ready = make_condition(READY, probe.result, generation=generation, now=changed_at)
        conditions = with_condition(conditions, ready)
    conditions = _with_serving(cluster, same_city, conditions, timestamp(unix_s))
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    return Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s)


def _with_serving(
    cluster: Cluster, same_city: Sequence[Cluster], conditions: Sequence[Condition], now: str
) -> list[Condition]:
    verdict = serving_condition(cluster, same_city)
    if verdict.status == TRUE and find_condition(conditions, SERVING) is None:
        return list(conditions)
    condition = make_condition(SERVING, verdict, generation=cluster.metadata.generation, now=now)
    return with_condition(conditions, condition)


# ---- Removal of a cell

RECHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class CellObjects:
    """Objects of a cell on the hub.

    ``infrastructure`` are the execution namespace, the credentials and the Lease of the cell.
    ``bindings`` are the uids of all bindings on the hub; each binding deletes its own Works.
    """

    works: Sequence[Work]
    copies: Sequence[Instance]
    infrastructure: Sequence[tuple[KindInfo[Any], ApiObject]]
    bindings: frozenset[str] = frozenset()


def infrastructure_refs(cell: str) -> list[tuple[KindInfo[Any], Ref]]:
    """Return the objects that the hub needs to work with a cell, and deletes with it."""
    return [
        (NAMESPACE, Ref("", execution_namespace(cell))),
        (SECRET, Ref(CREDENTIALS_NAMESPACE, cell)),
        (LEASE, Ref(CREDENTIALS_NAMESPACE, cell)),
    ]


def plan_cluster_removal(cluster: Cluster, cell_objects: CellObjects) -> Plan:
    if not cluster.is_terminating or labels.CLUSTER_FINALIZER not in cluster.metadata.finalizers:
        return Plan()
    if cell_objects.works:
        waiting = Wait(f"the cell still has {len(cell_objects.works)} Works")
        removed = _force_release_works(cluster, cell_objects.works) or _delete_unbound_works(
            cell_objects
        )
        return Plan((*removed, waiting), requeue_after_s=RECHECK_S)
    left: list[Action] = [
        _delete_object(kind, obj, "its cell has left")
        for kind, obj in (
            *((INSTANCE, copy) for copy in cell_objects.copies),
            *cell_objects.infrastructure,
        )
        if not obj.is_terminating
    ]
    if left:
        return Plan(tuple(left), requeue_after_s=RECHECK_S)
    return Plan(tuple(drop_finalizer(HUB, CLUSTER, cluster, labels.CLUSTER_FINALIZER)))


def _force_release_works(cluster: Cluster, works: Sequence[Work]) -> list[Action]:
    forced = labels.FORCED_LEAVE in cluster.metadata.annotations
    if not forced or is_true(cluster.status.conditions, "Ready"):
        return []
    gone: list[Action] = []
    for work in works:
        if work.is_terminating:
            gone += drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
        else:
            gone.append(_delete_object(WORK, work, "its cell leaves"))
    return gone


def _delete_unbound_works(cell_objects: CellObjects) -> list[Action]:
    """Delete Works that no binding deletes: written by hand, or left by a binding that is gone."""
    return [
        _delete_object(WORK, work, "its cell leaves")
        for work in cell_objects.works
        if not work.is_terminating
        and work.metadata.labels.get(labels.BINDING_ID) not in cell_objects.bindings
    ]


def _delete_object(kind: KindInfo[Any], obj: ApiObject, reason: str) -> Delete:
    return Delete(HUB, kind, ref_of(obj), obj.metadata.uid, reason)


# ---- Orphaned claims


def plan_orphaned_claims(project: PlaneName, claims: Sequence[ResourceClaim], reason: str) -> Plan:
    """Delete the claims, then remove their finalizer, as the cell would.

    The caller has proven that no instance can still use the claims.
    """
    actions: list[Action] = []
    for claim in claims:
        if claim.is_terminating:
            actions += drop_finalizer(project, CLAIM, claim, labels.CLAIM_FINALIZER)
        else:
            actions.append(Delete(project, CLAIM, ref_of(claim), claim.metadata.uid, reason))
    return Plan(tuple(actions))
