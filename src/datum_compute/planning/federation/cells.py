"""Which cell a deployment of a city goes to: one, or none and the reason why.

Karmada would put it on every cluster that matches (planning/federation/hub_namespaces.py asks it
for one). Here a
city has one cell: where two match nothing is doubled. What is placed stays where it is; what is not
is held back and says so. A cell that is drained (a taint that says NoSchedule, as with Karmada)
gets nothing new.

Conditions of a Cluster: Ready from probes of its cell, Serving from its city and its taints.

- A cell that answers is Ready. A cell that was Ready becomes not ready only after it has been
  unreachable for `grace_s`. The transition time is then the start of the first failed probe.
- A cell that never answered is not ready from its first failed probe.
- Serving is omitted while it is true and was never set, so that most Clusters do not have it.

How a cell leaves the hub: first what was placed on it, then what was kept for it, then itself.

A Work is the hub's note that its cell has a copy, so a cell is empty when it has no Works. One that
answers confirms each removal. One that does not is waited for, unless it was told to leave by
force: then its tombstones are given up, because nobody will ever confirm them.

Quota claims that no cell will release, because the cell or its namespace is gone.

While the cell is a member and has the namespace, its claims are its own, whether it answers or not:
the instances they were granted for may run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.cluster import CREDENTIALS_NAMESPACE, NO_SCHEDULE, Cluster
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.identity import execution_namespace
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLAIM, CLUSTER, INSTANCE, LEASE, NAMESPACE, SECRET, WORK
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.api.timestamps import timestamp
from datum_compute.api.work import Work
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.unreachable import silence_of
from datum_compute.planning.plan import Action, Delete, Plan, Wait, drop_finalizer

_OF_KARMADA = "cluster.karmada.io/"
_PLACED = Verdict(TRUE, "Success", "Binding has been scheduled successfully")
_NOWHERE = Verdict(FALSE, "NoClusterFit", "No cluster matches the policy")


@dataclass(frozen=True, slots=True)
class Placing:
    """The clusters, and what the binding says of it."""

    targets: tuple[str, ...]
    verdict: Verdict


def is_drained(cluster: Cluster) -> bool:
    """By an operator. Karmada marks those that do not answer in the same way, in its own words."""
    return any(
        taint.effect == NO_SCHEDULE and not taint.key.startswith(_OF_KARMADA)
        for taint in cluster.spec.taints
    )


def refused(cells: Sequence[Cluster]) -> Verdict | None:
    """Why none of the cells of a city takes what is new, where the scheduler says no more than that
    none fits; None if there are none, or one that would."""
    if not cells or any(silence_of(c) is None and not is_drained(c) for c in cells):
        return None
    silences = (silence_of(cell) for cell in cells if not is_drained(cell))
    silence = next(filter(None, silences), None)
    return silence.verdict if silence is not None else drained(cells[0].metadata.name)


def drained(cell: str) -> Verdict:
    message = f"Cell {cell} is drained: nothing new is placed there"
    return Verdict(FALSE, Reason.CELL_DRAINED, message)


def placed_on_all(matching: Sequence[Cluster]) -> Placing:
    """For what goes along with deployments, wherever those are: namespaces, ConfigMaps, Secrets."""
    names = tuple(sorted(cluster.metadata.name for cluster in matching))
    return Placing(names, _PLACED if names else _NOWHERE)


def placed_on_one(matching: Sequence[Cluster], bound: Collection[str]) -> Placing:
    """``bound`` are the clusters it is placed on already: those keep it, drained or not."""
    names = sorted(cluster.metadata.name for cluster in matching)
    kept = [name for name in names if name in bound]
    if kept:
        return Placing((kept[0],), _PLACED)
    open_ = sorted(c.metadata.name for c in matching if not is_drained(c))
    if len(open_) == 1 and len(names) == 1:
        return Placing((open_[0],), _PLACED)
    if len(names) > 1:
        message = f"Cells {' and '.join(names)} serve the same city; only one of them may"
        return Placing((), Verdict(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message))
    if names:
        return Placing((), drained(names[0]))
    return Placing((), _NOWHERE)


def serving(cluster: Cluster, others: Sequence[Cluster]) -> Verdict:
    """What is to be said of a cluster; ``others`` are those of its city."""
    if others:
        names = ", ".join(sorted(other.metadata.name for other in others))
        message = f"The city is also served by {names}: nothing new is placed until one has left"
        return Verdict(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message)
    if is_drained(cluster):
        message = "Nothing new is placed on this cell; what runs there stays"
        return Verdict(FALSE, Reason.CELL_DRAINED, message)
    return Verdict(TRUE, "ServesCity", "The cell takes what is placed in its city")


READY = "Ready"
SERVING = "Serving"

REACHABLE = Verdict(TRUE, "ClusterReady", "the cell answers")


def unreachable(message: str) -> Verdict:
    return Verdict(FALSE, "ClusterNotReachable", message)


@dataclass(frozen=True, slots=True)
class CellProbe:
    """The last probe of a cell. ``unreachable_s`` is how long probes have failed, 0 if it
    succeeded. Probes are repeated after ``interval_s``."""

    result: Verdict
    unreachable_s: float
    interval_s: float
    grace_s: float


def plan_cell_health(
    cluster: Cluster, same_city: Sequence[Cluster], probe: CellProbe, unix_s: float
) -> Plan:
    """Plan the status of the Cluster, and the time of the next probe.

    ``same_city`` are the other clusters of the city.
    """
    conditions: Sequence[Condition] = cluster.status.conditions
    requeue_after_s = probe.interval_s
    if 0 < probe.unreachable_s < probe.grace_s and is_true(conditions, READY):
        requeue_after_s = min(probe.interval_s, probe.grace_s - probe.unreachable_s)
    else:
        changed_at = timestamp(unix_s - probe.unreachable_s)
        generation = cluster.metadata.generation
        ready = decided(READY, probe.result, generation=generation, now=changed_at)
        conditions = with_condition(conditions, ready)
    conditions = _with_serving(cluster, same_city, conditions, timestamp(unix_s))
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    return Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s)


def _with_serving(
    cluster: Cluster, same_city: Sequence[Cluster], conditions: Sequence[Condition], now: str
) -> list[Condition]:
    verdict = serving(cluster, same_city)
    if verdict.status == TRUE and find_condition(conditions, SERVING) is None:
        return list(conditions)
    condition = decided(SERVING, verdict, generation=cluster.metadata.generation, now=now)
    return with_condition(conditions, condition)


RECHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class Belongings:
    """What the hub holds of a cell. ``kept`` is what it needs to work with it: execution namespace,
    credentials, Lease."""

    works: Sequence[Work]
    copies: Sequence[Instance]
    kept: Sequence[tuple[KindInfo[Any], ApiObject]]
    bindings: frozenset[str] = frozenset()  # uids of those on the hub; each removes its own Works


def infrastructure_refs(cell: str) -> list[tuple[KindInfo[Any], Ref]]:
    """Return the objects that the hub needs to work with a cell, and deletes with it."""
    return [
        (NAMESPACE, Ref("", execution_namespace(cell))),
        (SECRET, Ref(CREDENTIALS_NAMESPACE, cell)),
        (LEASE, Ref(CREDENTIALS_NAMESPACE, cell)),
    ]


def plan_leaving(cluster: Cluster, belongings: Belongings) -> Plan:
    if not cluster.is_terminating or labels.CLUSTER_FINALIZER not in cluster.metadata.finalizers:
        return Plan()
    if belongings.works:
        waiting = Wait(f"{len(belongings.works)} Works of the cell are left")
        removed = _given_up(cluster, belongings.works) or _unbound(belongings)
        return Plan((*removed, waiting), requeue_after_s=RECHECK_S)
    left: list[Action] = [
        _delete(kind, obj, "its cell has left")
        for kind, obj in (*((INSTANCE, copy) for copy in belongings.copies), *belongings.kept)
        if not obj.is_terminating
    ]
    if left:
        return Plan(tuple(left), requeue_after_s=RECHECK_S)
    return Plan(tuple(drop_finalizer(HUB, CLUSTER, cluster, labels.CLUSTER_FINALIZER)))


def _given_up(cluster: Cluster, works: Sequence[Work]) -> list[Action]:
    forced = labels.FORCED_LEAVE in cluster.metadata.annotations
    if not forced or is_true(cluster.status.conditions, "Ready"):
        return []
    gone: list[Action] = []
    for work in works:
        if work.is_terminating:
            gone += drop_finalizer(HUB, WORK, work, labels.EXECUTION_FINALIZER)
        else:
            gone.append(_delete(WORK, work, "its cell leaves"))
    return gone


def _unbound(belongings: Belongings) -> list[Action]:
    """Works that no binding removes: those written by hand, or left by a binding that is gone."""
    return [
        _delete(WORK, work, "its cell leaves")
        for work in belongings.works
        if not work.is_terminating
        and work.metadata.labels.get(labels.BINDING_ID) not in belongings.bindings
    ]


def _delete(kind: KindInfo[Any], obj: ApiObject, reason: str) -> Delete:
    return Delete(HUB, kind, ref_of(obj), obj.metadata.uid, reason)


def plan_left_claims(project: PlaneName, claims: Sequence[ResourceClaim], reason: str) -> Plan:
    """Delete the claims, then remove their finalizer, as the cell would.

    The caller has proven that no instance can run on them.
    """
    actions: list[Action] = []
    for claim in claims:
        if claim.is_terminating:
            actions += drop_finalizer(project, CLAIM, claim, labels.CLAIM_FINALIZER)
        else:
            actions.append(Delete(project, CLAIM, ref_of(claim), claim.metadata.uid, reason))
    return Plan(tuple(actions))
