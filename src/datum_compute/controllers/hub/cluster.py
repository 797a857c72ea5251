"""Cluster -> whether its cell answers. Probed, because a silent cell sends no events.

One answer that is missing says little: a cell that answered before is called silent only when it
has not answered for a while (``Patience``), and then from the first moment of that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.cluster import Cluster
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
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from datum_compute.api.timestamps import timestamp
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.objects import plan_status
from datum_compute.planning.placing import serving
from datum_compute.runtime.controller import Controller, for_, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

SERVING = "Serving"
# However patient the transport is: what takes longer is no answer.
ANSWER_S = 5.0
_PROBED = Ref("", "default")

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.need(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None:
        context.silent_since_s.pop(key.ref.name, None)
        return Done()
    probe_s, grace_s = context.patience.probe_s, context.patience.grace_s
    asked_s = context.elapsed_s()
    verdict = await probe_cell(context.planes.cell(key.ref.name), min(ANSWER_S, probe_s))
    silent_s = _silent_s(context, key.ref.name, verdict, asked_s)
    conditions: Sequence[Condition] = cluster.status.conditions
    requeue_after_s = probe_s
    if 0 < silent_s < grace_s and is_true(conditions, "Ready"):
        requeue_after_s = min(probe_s, grace_s - silent_s)  # Ready stays until the grace is over
    else:
        now = timestamp(context.unix_s() - silent_s)
        ready = decided("Ready", verdict, generation=cluster.metadata.generation, now=now)
        conditions = with_condition(conditions, ready)
    conditions = _with_serving(hub, cluster, conditions, context.now())
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    plan = Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s)
    return await carry_out(context.planes, plan)


def _with_serving(
    hub: View, cluster: Cluster, conditions: Sequence[Condition], now: str
) -> list[Condition]:
    """Whether new work comes to the cell; not said of one that nothing keeps it from."""
    city = cluster.metadata.labels.get(labels.TOPOLOGY_CITY, "")
    same = hub.read(CLUSTER).labelled(labels.TOPOLOGY_CITY, city) if city else []
    others = [c for c in same if ref_of(c) != ref_of(cluster) and not c.is_terminating]
    verdict = serving(cluster, others)
    if verdict.status == TRUE and find_condition(conditions, SERVING) is None:
        return list(conditions)
    said = decided(SERVING, verdict, generation=cluster.metadata.generation, now=now)
    return with_condition(conditions, said)


def from_neighbour(view: View, change: Change[Any]) -> Iterable[Key]:
    """Those of its city hear of a cluster that comes, goes or moves."""
    seen = [c for c in (change.old, change.new) if c is not None]
    cities = [c.metadata.labels.get(labels.TOPOLOGY_CITY, "") for c in seen]
    if len(seen) == 2 and cities[0] == cities[1]:
        return
    for city in dict.fromkeys(filter(None, cities)):
        for cluster in view.cached(CLUSTER).labelled(labels.TOPOLOGY_CITY, city):
            yield Key(view.plane, ref_of(cluster))


def _silent_s(context: Context, cell: str, verdict: Verdict, asked_s: float) -> float:
    """For how long it has not answered, since it was first asked in vain; 0 if it just has."""
    if verdict.status == TRUE:
        context.silent_since_s.pop(cell, None)
        return 0.0
    now_s = context.elapsed_s()
    # A moment at least, so that the first failure is one.
    return max(0.001, now_s - context.silent_since_s.setdefault(cell, asked_s))


async def probe_cell(cell: View | None, patience_s: float) -> Verdict:
    if cell is None:
        return Verdict(FALSE, "ClusterNotReachable", "the cell is not connected")
    try:
        async with asyncio.timeout(patience_s):
            found = await cell.client.get(NAMESPACE, _PROBED)
    except (ApiError, Unreachable) as error:
        return Verdict(FALSE, "ClusterNotReachable", str(error))
    except TimeoutError:
        return Verdict(FALSE, "ClusterNotReachable", f"no answer within {patience_s:g} s")
    relist_if_replaced(cell, found)
    return Verdict(TRUE, "ClusterReady", "the cell answers")


def relist_if_replaced(cell: View, found: Namespace) -> None:
    """Relist a cell that lost its data.

    Every plane has the namespace ``default``, and its uid identifies the plane. Watches alone may
    miss the loss: they resume at a resource version, which the new plane may have passed already.
    """
    informer, uid = cell.informer(NAMESPACE), found.metadata.uid
    cached = informer.cache.entry(_PROBED) if informer is not None else None
    known = {cell.identity or uid, cached.uid if cached is not None else uid}
    cell.identity = uid
    if known != {uid}:
        _log.warning("%s lost its data or was replaced; listing it again", cell.plane)
        cell.relist()


def _by_cell(key: Key) -> str:
    return key.ref.name


CONTROLLER = Controller(
    name="cluster",
    role="hub",
    reconcile=reconcile,
    edges=(for_(CLUSTER), watches(CLUSTER, from_neighbour)),
    lane=_by_cell,  # one cell that never answers holds up no other
)
