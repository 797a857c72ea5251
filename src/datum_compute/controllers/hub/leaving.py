"""Cluster that is being deleted -> gone, with all that the hub holds of its cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.cluster import CREDENTIALS_NAMESPACE
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    INSTANCE,
    LEASE,
    NAMESPACE,
    SECRET,
    WORK,
)
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.leaving import Belongings, plan_leaving
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, reads, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None or not cluster.is_terminating:
        return Done()
    cell = cluster.metadata.name
    space = execution_namespace(cell)
    found = Belongings(
        works=hub.read(WORK).in_namespace(space),
        bindings=frozenset(
            binding.metadata.uid
            for binding in (*hub.read(BINDING).all(), *hub.read(CLUSTER_BINDING).all())
        ),
        copies=hub.read(INSTANCE).with_label(labels.CELL, cell),
        kept=await _kept(hub, cell, space),
    )
    return await carry_out(context.planes, plan_leaving(cluster, found))


async def _kept(hub: CachedClient, cell: str, space: str) -> list[tuple[KindInfo[Any], ApiObject]]:
    """Asked of the hub itself: Leases are written all the time, and cached by nobody."""
    wanted: list[tuple[KindInfo[Any], Ref]] = [
        (NAMESPACE, Ref("", space)),
        (SECRET, Ref(CREDENTIALS_NAMESPACE, cell)),
        (LEASE, Ref(CREDENTIALS_NAMESPACE, cell)),
    ]
    found = [(kind, await hub.get_uncached(kind, ref)) for kind, ref in wanted]
    return [(kind, obj) for kind, obj in found if obj is not None]


def from_work(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The last Work of a cell is gone."""
    if change.new is None:
        space = change.latest.metadata.namespace
        yield Key(view.plane, Ref("", space.removeprefix(execution_namespace(""))))


CONTROLLER = Controller(
    name="leaving",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(CLUSTER),
        watches(WORK, from_work),
        reads(INSTANCE),
        reads(BINDING),
        reads(CLUSTER_BINDING),
    ),
    finalizers=(labels.CLUSTER_FINALIZER,),
)
