"""Sets the Ready condition of a Cluster by probing its cell, and the Serving condition.

A disconnected cell sends no events, so the controller probes periodically. A Ready cell becomes not
ready only after ``grace_s`` without a response; the transition time is that of the first failed
probe.
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
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

SERVING = "Serving"
# Upper limit for a probe, even if the transport has a longer timeout.
PROBE_TIMEOUT_S = 5.0
_DEFAULT_NAMESPACE = Ref("", "default")

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None:
        context.silent_since_s.pop(key.ref.name, None)
        return Done()
    probe_s, grace_s = context.patience.probe_s, context.patience.grace_s
    probe_started_s = context.elapsed_s()
    verdict = await probe_cell(context.planes.cell(key.ref.name), min(PROBE_TIMEOUT_S, probe_s))
    unreachable_s = _unreachable_s(context, key.ref.name, verdict, probe_started_s)
    conditions: Sequence[Condition] = cluster.status.conditions
    requeue_after_s = probe_s
    if 0 < unreachable_s < grace_s and is_true(conditions, "Ready"):
        requeue_after_s = min(
            probe_s, grace_s - unreachable_s
        )  # Ready stays until the grace is over
    else:
        changed_at = timestamp(context.unix_s() - unreachable_s)
        ready = decided("Ready", verdict, generation=cluster.metadata.generation, now=changed_at)
        conditions = with_condition(conditions, ready)
    conditions = _with_serving(hub, cluster, conditions, context.now())
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    plan = Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s)
    return await carry_out(context.planes, plan)


def _with_serving(
    hub: CachedClient, cluster: Cluster, conditions: Sequence[Condition], now: str
) -> list[Condition]:
    """Add the Serving condition. Omit it while it is true and was never set."""
    city = cluster.metadata.labels.get(labels.TOPOLOGY_CITY, "")
    same = hub.read(CLUSTER).with_label(labels.TOPOLOGY_CITY, city) if city else []
    others = [c for c in same if ref_of(c) != ref_of(cluster) and not c.is_terminating]
    verdict = serving(cluster, others)
    if verdict.status == TRUE and find_condition(conditions, SERVING) is None:
        return list(conditions)
    condition = decided(SERVING, verdict, generation=cluster.metadata.generation, now=now)
    return with_condition(conditions, condition)


def map_same_city_clusters(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Enqueue all clusters of a city when a cluster joins, leaves or moves."""
    seen = [c for c in (change.old, change.new) if c is not None]
    cities = [c.metadata.labels.get(labels.TOPOLOGY_CITY, "") for c in seen]
    if len(seen) == 2 and cities[0] == cities[1]:
        return
    for city in dict.fromkeys(filter(None, cities)):
        for cluster in view.cached(CLUSTER).with_label(labels.TOPOLOGY_CITY, city):
            yield Key(view.plane, ref_of(cluster))


def _unreachable_s(context: Context, cell: str, verdict: Verdict, probe_started_s: float) -> float:
    """Return how long probes have failed; 0 if the last one succeeded."""
    if verdict.status == TRUE:
        context.silent_since_s.pop(cell, None)
        return 0.0
    now_s = context.elapsed_s()
    # Greater than 0, because 0 means reachable.
    return max(0.001, now_s - context.silent_since_s.setdefault(cell, probe_started_s))


async def probe_cell(cell: CachedClient | None, timeout_s: float) -> Verdict:
    if cell is None:
        return Verdict(FALSE, "ClusterNotReachable", "the cell is not connected")
    try:
        async with asyncio.timeout(timeout_s):
            found = await cell.client.get(NAMESPACE, _DEFAULT_NAMESPACE)
    except (ApiError, Unreachable) as error:
        return Verdict(FALSE, "ClusterNotReachable", str(error))
    except TimeoutError:
        return Verdict(FALSE, "ClusterNotReachable", f"no answer within {timeout_s:g} s")
    relist_if_replaced(cell, found)
    return Verdict(TRUE, "ClusterReady", "the cell answers")


def relist_if_replaced(cell: CachedClient, found: Namespace) -> None:
    """Relist a cell that lost its data.

    Every plane has the namespace ``default``, and its uid identifies the plane. Watches alone may
    miss the loss: they resume at a resource version, which the new plane may have passed already.
    """
    informer, uid = cell.informer(NAMESPACE), found.metadata.uid
    cached = informer.cache.entry(_DEFAULT_NAMESPACE) if informer is not None else None
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
    edges=(for_(CLUSTER), watches(CLUSTER, map_same_city_clusters)),
    lane=_by_cell,  # one unreachable cell does not delay the others
)
