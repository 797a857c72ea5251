"""Controller of IPAllocations: deletes the allocation of an unused prefix whose holder is gone.

Usually the controller of the holder releases the allocation. It does not if the prefix was in use
when the holder was deleted, if a user removed the finalizer, or if a crash interrupted it. A live
read confirms that the holder is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, IP_ALLOCATION, NETWORK, SUBNET, WORK
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.networking.network import IPAllocation
from datum_compute.api.planes import PLATFORM
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.prefix_ledger import USER_EDGES, USER_INDEXES, observe_prefix_user
from datum_compute.planning.network.prefixes import (
    addressed_prefixes,
    allocation_name,
    attached_prefixes,
    carried_prefixes,
    plan_allocation_release,
    pool_label,
)
from datum_compute.planning.network.subnets import prefix_of
from datum_compute.planning.plan import Plan
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_, watches
from datum_compute.runtime.informer import ObjectChange

# Interval of checks that the holder still exists.
HOLDER_RECHECK_S = 600.0
USE_RECHECK_S = 60.0
_HOLDER_KINDS: dict[str, KindInfo[Any]] = {kind.kind: kind for kind in (NETWORK, SUBNET)}


async def reconcile(context: Context, key: Key) -> Outcome:
    found = context.planes.require(key.plane).read(IP_ALLOCATION).get(key.ref)
    if found is None:
        return Done()
    project = None
    if labels.PROJECT_REMOVED not in found.metadata.labels:
        project = context.planes.project(found.spec.project)
        kind = _HOLDER_KINDS.get(found.spec.holder.kind)
        if project is None or kind is None or await _holder_exists(project, kind, found):
            return Requeue(HOLDER_RECHECK_S)
    if _is_used(context, project, found):
        return Requeue(USE_RECHECK_S)
    return await carry_out(context.planes, Plan(tuple(plan_allocation_release([found]))))


async def _holder_exists(project: CachedClient, kind: KindInfo[Any], found: IPAllocation) -> bool:
    reference = found.spec.holder
    try:
        holder = await project.client.get(kind, Ref(reference.namespace, reference.name))
    except NotFound:
        return False
    return bool(holder.metadata.uid == found.spec.holder_uid)


def _is_used(context: Context, project: CachedClient | None, found: IPAllocation) -> bool:
    """Return True if an object uses the prefix, or prefixes were cut from it."""
    cidr = found.spec.cidr
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    if recorded.with_label(labels.POOL, pool_label(cidr)):
        return True
    return bool(observe_prefix_user(context, project, cidr))


def from_subnet(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    prefix = prefix_of(change.latest) if change.new is None else ""
    return [_key(prefix)] if prefix else []


def from_work(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted Work to its prefixes, which the cell no longer uses."""
    return map(_key, carried_prefixes(change.latest)) if change.new is None else []


def from_deployment(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted deployment to its prefixes, which the project may no longer use."""
    return map(_key, attached_prefixes(change.latest)) if change.new is None else []


def from_instance(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted instance to its prefixes.

    If the watches are slow, the instance may be the last user that is removed from the caches.
    """
    return map(_key, addressed_prefixes(change.latest)) if change.new is None else []


def _key(cidr: str) -> Key:
    return Key(PLATFORM, Ref("", allocation_name(cidr)))


CONTROLLER = Controller(
    name="ip-allocation",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(IP_ALLOCATION),
        watches(SUBNET, from_subnet, on="project"),
        watches(WORK, from_work, on="hub"),
        watches(DEPLOYMENT, from_deployment, on="project"),
        watches(INSTANCE, from_instance, on="hub"),
        *USER_EDGES,
    ),
    indexes=USER_INDEXES,
)
