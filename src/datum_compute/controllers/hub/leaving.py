"""Deletes what the hub has of a cell that leaves. The rules are in planning/leaving.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import execution_namespace
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    INSTANCE,
    WORK,
)
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.leaving import Belongings, infrastructure_refs, plan_leaving
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, reads, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    cluster = hub.read(CLUSTER).get(key.ref)
    if cluster is None or not cluster.is_terminating:
        return Done()
    cell = cluster.metadata.name
    found = Belongings(
        works=hub.read(WORK).in_namespace(execution_namespace(cell)),
        bindings=frozenset(
            binding.metadata.uid
            for binding in (*hub.read(BINDING).all(), *hub.read(CLUSTER_BINDING).all())
        ),
        copies=hub.read(INSTANCE).with_label(labels.CELL, cell),
        kept=await _read_infrastructure(hub, cell),
    )
    return await carry_out(context.planes, plan_leaving(cluster, found))


async def _read_infrastructure(
    hub: CachedClient, cell: str
) -> list[tuple[KindInfo[Any], ApiObject]]:
    """Read from the hub: Leases change all the time, and no cache has them."""
    found = [(kind, await hub.get_uncached(kind, ref)) for kind, ref in infrastructure_refs(cell)]
    return [(kind, obj) for kind, obj in found if obj is not None]


def from_work(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted Work to the Cluster of its cell."""
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
