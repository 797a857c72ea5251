"""Garbage collection, as Kubernetes does it. For planes without a Kubernetes beside them.

- An object goes when every owner it names is gone; owners that are gone beside living ones are
  only struck off. An owner counts in the same namespace, or without one; one of a kind that
  nobody serves is taken for alive, and so is one in a namespace that something without a
  namespace names: that one is told of.
- What may not go (the namespace ``default``) stays, with one line in the log now and then.
- Foreground: the owner stays until its dependents are gone, at least those that block it.
- Orphan: the dependents lose their owner, then it goes.
Everything is read from what the plane holds now, so absence is proven and costs no request. Owners
and finalizers are taken away by the server itself: no role that lets a controller do so on every
kind would keep it from changing roles.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import closing

from datum_compute.api.corefields import ObjectReference
from datum_compute.api.errors import BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound
from datum_compute.api.holdings import Changed, Held, Holdings, Wanted
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta import OwnerReference, Ref
from datum_compute.api.plane import ROLES, PlaneName
from datum_compute.controllers.context import Context
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue
from datum_compute.runtime.event_recorder import EventRequest

INVALID_NAMESPACE = "OwnerRefInvalidNamespace"
REFUSED_S = 600.0
# What a plane refuses for good: asking again at once would get the same answer.
_REFUSALS = (BadRequest, Forbidden, Invalid, MethodNotAllowed)

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    view, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    held = holdings.find(key.resource, key.ref)
    if held is None:
        return Done()
    try:
        await _tend(context, view, holdings, held)
    except _REFUSALS as refusal:
        _log.warning("garbage %s: %s; again in %.0f s", key, refusal, REFUSED_S)
        return Requeue(REFUSED_S)
    return Done()


async def _tend(context: Context, view: CachedClient, holdings: Holdings, held: Held) -> None:
    if not held.terminating:
        for owner in held.owners:
            _tell_of_unreachable(context, view, holdings, held, owner)
        await _collect(view, holdings, held)
    elif ORPHAN_FINALIZER in held.finalizers:
        await _orphan(holdings, held)
    elif FOREGROUND_FINALIZER in held.finalizers:
        await _delete_dependents(view, holdings, held)


async def _collect(view: CachedClient, holdings: Holdings, held: Held) -> None:
    if not held.owners:
        return
    lost: list[OwnerReference] = []
    leaving: list[OwnerReference] = []
    for owner in held.owners:
        if _is_gone(holdings, held, owner):
            lost.append(owner)
        elif _is_leaving(holdings, held, owner):
            leaving.append(owner)
    if len(lost) + len(leaving) < len(held.owners):
        if lost:
            await holdings.strike_off(held, {o.uid for o in lost})
        return
    # An owner that waits for its dependents waits for theirs too.
    policy = "Foreground" if leaving and holdings.dependents(held.uid) else _own_policy(held)
    await _delete(view, held, policy)


async def _orphan(holdings: Holdings, owner: Held) -> None:
    for dependent in holdings.dependents(owner.uid):
        await holdings.strike_off(dependent, {owner.uid})
    await holdings.release(owner, ORPHAN_FINALIZER)


async def _delete_dependents(view: CachedClient, holdings: Holdings, owner: Held) -> None:
    """The dependents' own turn deletes them; here the owner is released when none blocks it."""
    dependents = [d for d in holdings.dependents(owner.uid) if _counts(holdings, d, owner)]
    for dependent in dependents:
        if not dependent.terminating:
            await _collect(view, holdings, dependent)
    if not any(_blocks(d, owner) for d in dependents if _is_there(holdings, d)):
        await holdings.release(owner, FOREGROUND_FINALIZER)


def _tell_of_unreachable(
    context: Context, view: CachedClient, holdings: Holdings, held: Held, owner: OwnerReference
) -> None:
    """As Kubernetes does: the reference leads nowhere, and nothing will ever come of it."""
    kind = holdings.kind_named(owner.api_version, owner.kind)
    if kind is None or not kind.namespaced or held.ref.namespace:
        return
    about = ObjectReference(
        api_version=held.kind.api_version, kind=held.kind.kind, name=held.ref.name, uid=held.uid
    )
    note = (
        f"ownerRef {owner.kind} {owner.name} (uid {owner.uid}) is in a namespace, but an object "
        "without a namespace can only be owned by one without; remove it from "
        "metadata.ownerReferences"
    )
    context.planes.record_event(EventRequest(view.plane, about, "Warning", INVALID_NAMESPACE, note))


def _is_gone(holdings: Holdings, dependent: Held, owner: OwnerReference) -> bool:
    kind = holdings.kind_named(owner.api_version, owner.kind)
    if kind is None or (kind.namespaced and not dependent.ref.namespace):
        return False
    return _owner_of(holdings, dependent, owner) is None


def _is_leaving(holdings: Holdings, dependent: Held, owner: OwnerReference) -> bool:
    found = _owner_of(holdings, dependent, owner)
    return found is not None and found.terminating and FOREGROUND_FINALIZER in found.finalizers


def _owner_of(holdings: Holdings, dependent: Held, owner: OwnerReference) -> Held | None:
    kind = holdings.kind_named(owner.api_version, owner.kind)
    if kind is None:
        return None
    ref = Ref(dependent.ref.namespace if kind.namespaced else "", owner.name)
    found = holdings.find(kind.storage, ref)
    return found if found is not None and found.uid == owner.uid else None


def _counts(holdings: Holdings, dependent: Held, owner: Held) -> bool:
    """Whether the reference leads to this owner; one from another namespace does not."""
    return any(
        o.uid == owner.uid and _owner_of(holdings, dependent, o) is not None
        for o in dependent.owners
    )


def _blocks(dependent: Held, owner: Held) -> bool:
    return any(o.uid == owner.uid and o.block_owner_deletion for o in dependent.owners)


def _is_there(holdings: Holdings, held: Held) -> bool:
    found = holdings.find(held.kind.storage, held.ref)
    return found is not None and found.uid == held.uid


def _own_policy(held: Held) -> str:
    """What an earlier wish, kept as a finalizer, says about the object's own dependents."""
    if ORPHAN_FINALIZER in held.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in held.finalizers else "Background"


async def _delete(view: CachedClient, held: Held, policy: str) -> None:
    try:
        await view.client.delete(held.kind, held.ref, uid=held.uid, policy=policy)
    except NotFound:
        return


def wakes(holdings: Holdings, plane: PlaneName, change: Changed) -> Iterable[Key]:
    """Those whose owner is gone or begins to leave, those with an owner who is not there, and those
    that wait for one that is gone."""
    if change.gone:
        for dependent in holdings.dependents(change.uid):
            yield Key(plane, dependent.ref, dependent.kind.storage)
        for owner in change.owners:
            kind = holdings.kind_named(owner.api_version, owner.kind)
            if kind is not None:
                namespace = change.ref.namespace if kind.namespaced else ""
                yield Key(plane, Ref(namespace, owner.name), kind.storage)
    elif change.begins_to_end or not all(_lives(holdings, change, o) for o in change.owners):
        yield Key(plane, change.ref, change.resource)


def _lives(holdings: Holdings, change: Changed, owner: OwnerReference) -> bool:
    """Whether the owner is there and stays, as it is for nearly every object that is new."""
    kind = holdings.kind_named(owner.api_version, owner.kind)
    if kind is None:
        return False
    ref = Ref(change.ref.namespace if kind.namespaced else "", owner.name)
    found = holdings.find(kind.storage, ref)
    return found is not None and found.uid == owner.uid and not found.terminating


async def outside(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    holdings = context.holdings(view.plane)
    with closing(holdings.changes(Wanted(gone=True, ties=True))) as changes:
        async for change in changes:
            for key in wakes(holdings, view.plane, change):
                yield key


CONTROLLERS = tuple(
    Controller(name=f"garbage-{role}", role=role, reconcile=reconcile, external_sources=(outside,))
    for role in ROLES
)
