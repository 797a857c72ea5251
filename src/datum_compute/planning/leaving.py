"""How a cell leaves the hub: first what was placed on it, then what was kept for it, then itself.

A Work is the hub's note that its cell has a copy, so a cell is empty when it has no Works. One that
answers confirms each removal. One that does not is waited for, unless it was told to leave by
force: then its tombstones are given up, because nobody will ever confirm them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api import labels
from datum_compute.api.cluster import CREDENTIALS_NAMESPACE, Cluster
from datum_compute.api.conditions import is_true
from datum_compute.api.identity import execution_namespace
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLUSTER, INSTANCE, LEASE, NAMESPACE, SECRET, WORK
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import HUB
from datum_compute.api.work import Work
from datum_compute.planning.plan import Action, Delete, Plan, Wait, drop_finalizer

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
