"""Probes the cells, and deletes the objects of a cell that leaves.

The rules are in planning/federation/cells.py. One controller sets the Ready and Serving conditions
of a Cluster. It probes the cell periodically, because a disconnected cell causes no event. The
other controller deletes the objects that the hub has for a terminating Cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, ConditionValue
from datum_compute.api.core import Namespace
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    INSTANCE,
    NAMESPACE,
    WORK,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import execution_namespace
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.federation.cells import (
    REACHABLE_RESULT,
    CellObjects,
    CellProbe,
    infrastructure_refs,
    not_reachable_result,
    plan_cell_health,
    plan_cluster_removal,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, reads, watches
from datum_compute.runtime.informer import ObjectChange

# Upper limit for a probe, even if the transport has a longer timeout.
PROBE_TIMEOUT_S = 5.0
_DEFAULT_NAMESPACE = Ref("", "default")

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None:
        context.state.unreachable_since_s.pop(key.ref.name, None)
        context.state.last_response_s.pop(key.ref.name, None)
        return Done()
    probe_s, grace_s = context.cell_probing.probe_s, context.cell_probing.grace_s
    timeout_s = min(PROBE_TIMEOUT_S, probe_s)
    probe_started_s = context.elapsed_s()
    result = await probe_cell(context.planes.cell(key.ref.name), timeout_s)
    unreachable_s = _unreachable_s(context, key.ref.name, result, probe_started_s)
    probe = CellProbe(
        result, unreachable_s, interval_s=probe_s, timeout_s=timeout_s, grace_s=grace_s
    )
    others = _other_clusters_of_city(hub, cluster)
    plan = plan_cell_health(cluster, others, probe, context.unix_s())
    return await apply_plan(context.planes, plan)


def _other_clusters_of_city(hub: CachedClient, cluster: Cluster) -> list[Cluster]:
    city = cluster.metadata.labels.get(labels.TOPOLOGY_CITY, "")
    same = hub.read(CLUSTER).list_with_label(labels.TOPOLOGY_CITY, city) if city else []
    return [c for c in same if ref_of(c) != ref_of(cluster) and not c.is_terminating]


def map_same_city_clusters(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Enqueue all clusters of a city when a cluster joins, leaves or moves."""
    seen = [c for c in (change.old, change.new) if c is not None]
    cities = [c.metadata.labels.get(labels.TOPOLOGY_CITY, "") for c in seen]
    if len(seen) == 2 and cities[0] == cities[1]:
        return
    for city in dict.fromkeys(filter(None, cities)):
        for cluster in client.read_unsynced(CLUSTER).list_with_label(labels.TOPOLOGY_CITY, city):
            yield Key(client.plane, ref_of(cluster))


def _unreachable_s(
    context: Context, cell: str, verdict: ConditionValue, probe_started_s: float
) -> float:
    """Return how long the cell has not responded; 0 if the probe succeeded.

    The time before the first failed probe counts for one interval only: if this process was
    suspended for longer, the cell may have responded meanwhile.
    """
    state, now_s = context.state, context.elapsed_s()
    if verdict.status == TRUE:
        state.unreachable_since_s.pop(cell, None)
        state.last_response_s[cell] = now_s
        return 0.0
    last_response_s = state.last_response_s.get(cell, probe_started_s)
    earliest_s = probe_started_s - context.cell_probing.probe_s
    since_s = state.unreachable_since_s.setdefault(cell, max(last_response_s, earliest_s))
    return max(0.001, now_s - since_s)  # greater than 0, because 0 means reachable


async def probe_cell(cell: CachedClient | None, timeout_s: float) -> ConditionValue:
    if cell is None:
        return not_reachable_result("the cell is not connected")
    try:
        async with asyncio.timeout(timeout_s):
            found = await cell.uncached.get(NAMESPACE, _DEFAULT_NAMESPACE)
    except (ApiError, Unreachable) as error:
        return not_reachable_result(str(error))
    except TimeoutError:
        return not_reachable_result(f"no answer within {timeout_s:g} s")
    relist_if_replaced(cell, found)
    return REACHABLE_RESULT


def relist_if_replaced(cell: CachedClient, found: Namespace) -> None:
    """Relist a cell that lost its data.

    Every plane has the namespace ``default``, and its uid identifies the plane. Watches alone may
    not detect the loss: they resume at a resource version that the new plane may have exceeded.
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


CLUSTER_CONTROLLER = Controller(
    name="cluster",
    role="hub",
    reconcile=reconcile,
    edges=(for_(CLUSTER), watches(CLUSTER, map_same_city_clusters)),
    lane=_by_cell,  # one unreachable cell does not delay the others
)


async def reconcile_cluster_removal(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None or not cluster.is_terminating:
        return Done()
    cell = cluster.metadata.name
    found = CellObjects(
        works=hub.read(WORK).list_in_namespace(execution_namespace(cell)),
        bindings=frozenset(
            (*hub.read(BINDING).uids().values(), *hub.read(CLUSTER_BINDING).uids().values())
        ),
        copies=hub.read(INSTANCE).list_with_label(labels.CELL, cell),
        infrastructure=await _read_infrastructure(hub, cell),
    )
    return await apply_plan(context.planes, plan_cluster_removal(cluster, found))


async def _read_infrastructure(
    hub: CachedClient, cell: str
) -> list[tuple[KindInfo[Any], ApiObject]]:
    """Read the objects live, because Leases change so often that they are not cached."""
    found = [(kind, await hub.get_uncached(kind, ref)) for kind, ref in infrastructure_refs(cell)]
    return [(kind, obj) for kind, obj in found if obj is not None]


def map_work(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted Work to the Cluster of its cell."""
    if change.new is None:
        space = change.latest.metadata.namespace
        yield Key(client.plane, Ref("", space.removeprefix(execution_namespace(""))))


CLUSTER_REMOVAL_CONTROLLER = Controller(
    name="leaving",
    role="hub",
    reconcile=reconcile_cluster_removal,
    edges=(
        for_(CLUSTER),
        watches(WORK, map_work),
        reads(INSTANCE),
        reads(BINDING),
        reads(CLUSTER_BINDING),
    ),
    finalizers=(labels.CLUSTER_FINALIZER,),
)
