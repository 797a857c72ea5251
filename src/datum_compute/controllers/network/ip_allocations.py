"""Controller of IPAllocations: deletes the allocation of an unused prefix whose holder is gone.

The rules are in planning/network/prefixes.py. A live read confirms that the holder, or its project,
is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import (
    DEPLOYMENT,
    INSTANCE,
    IP_ALLOCATION,
    NETWORK,
    PROJECT,
    SUBNET,
    WORK,
)
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.networking.network import IPAllocation
from datum_compute.api.planes import PLATFORM
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.prefix_ledger import USER_EDGES, USER_INDEXES, observe_prefix_user
from datum_compute.planning.network.prefixes import (
    HolderState,
    addressed_prefixes,
    allocation_name,
    attached_prefixes,
    is_project_removed,
    plan_orphaned_allocation,
    pool_label,
    prefixes_in_work,
)
from datum_compute.planning.network.subnets import prefix_of
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

_HOLDER_KINDS: dict[str, KindInfo[Any]] = {kind.kind: kind for kind in (NETWORK, SUBNET)}


async def reconcile(context: Context, key: Key) -> Outcome:
    allocation = context.planes.require(key.plane).read(IP_ALLOCATION).get(key.ref)
    if allocation is None:
        return Done()
    removed = is_project_removed(allocation)
    project = None if removed else context.planes.project(allocation.spec.project)
    if removed:
        holder = HolderState.GONE
    elif project is None:
        holder = await _observe_project(context, allocation)
    else:
        holder = await _observe_holder(project, allocation)
    user = _find_user(context, project, allocation) if holder is HolderState.GONE else ""
    return await apply_plan(context.planes, plan_orphaned_allocation(allocation, holder, user))


async def _observe_project(context: Context, allocation: IPAllocation) -> HolderState:
    """Read the project live. A create request may arrive after its project was deleted.

    If projects are listed in the configuration, another manager may work on this one.
    """
    if context.membership is None or not context.membership.follows_platform:
        return HolderState.UNKNOWN
    platform = context.planes.require(PLATFORM)
    project = await platform.get_uncached(PROJECT, Ref("", allocation.spec.project))
    return HolderState.GONE if project is None else HolderState.UNKNOWN


async def _observe_holder(project: CachedClient, allocation: IPAllocation) -> HolderState:
    """Read the holder live, because absence from a cache proves nothing."""
    reference = allocation.spec.holder
    kind = _HOLDER_KINDS.get(reference.kind)
    if kind is None:
        return HolderState.UNKNOWN
    try:
        holder = await project.uncached.get(kind, Ref(reference.namespace, reference.name))
    except NotFound:
        return HolderState.GONE
    is_same = holder.metadata.uid == allocation.spec.holder_uid
    return HolderState.EXISTS if is_same else HolderState.GONE


def _find_user(context: Context, project: CachedClient | None, allocation: IPAllocation) -> str:
    """Return an object or allocation that uses the prefix; the empty string if none does."""
    cidr = allocation.spec.cidr
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    for inner in recorded.list_with_label(labels.POOL, pool_label(cidr)):
        return f"IPAllocation {inner.metadata.name}"
    return observe_prefix_user(context, project, cidr)


def map_subnet(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    prefix = prefix_of(change.latest) if change.new is None else ""
    return [_key(prefix)] if prefix else []


def map_work(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted Work to its prefixes, which the cell no longer uses."""
    return map(_key, prefixes_in_work(change.latest)) if change.new is None else []


def map_deployment(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted deployment to its prefixes, which the project may no longer use."""
    return map(_key, attached_prefixes(change.latest)) if change.new is None else []


def map_instance(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
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
        watches(SUBNET, map_subnet, on="project"),
        watches(WORK, map_work, on="hub"),
        watches(DEPLOYMENT, map_deployment, on="project"),
        watches(INSTANCE, map_instance, on="hub"),
        *USER_EDGES,
    ),
    indexes=USER_INDEXES,
)
