"""Garbage collection, as in Kubernetes, on planes of the embedded server.

The rules are in planning/cluster/garbage_collector.py.

- Objects are read from the store of the plane and not from a cache. An object that is not found is
  therefore proven to be gone, and no request is needed.
- The server itself removes owner references and finalizers. A role that allows a controller to
  patch objects of every kind would also allow it to change roles.
- An object that the plane refuses to delete (the namespace ``default``) stays. The refusal is
  logged, and the deletion is retried every `REFUSED_RETRY_S`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, assert_never

from datum_compute.api.errors import BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound
from datum_compute.api.inventory import ChangeFilter, CommittedChange, Holdings, StoredObject
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import KindInfo, OwnerReference, Ref
from datum_compute.api.planes import ROLES, PlaneName
from datum_compute.controllers.context import Context
from datum_compute.planning.cluster.garbage_collector import (
    DeleteDependent,
    GarbageAction,
    ObservedOwner,
    OwnerState,
    ReleaseOwner,
    RemoveOwners,
    is_dependent,
    is_unreachable,
    owner_state,
    plan_collection,
    plan_foreground_release,
    plan_orphaning,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue
from datum_compute.runtime.event_recorder import EventRequest

INVALID_NAMESPACE = "OwnerRefInvalidNamespace"
REFUSED_RETRY_S = 600.0
# Permanent errors: an immediate retry would get the same response.
_REFUSALS = (BadRequest, Forbidden, Invalid, MethodNotAllowed)

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    client, holdings = context.planes.require(key.plane), context.holdings(key.plane)
    held = holdings.find(key.resource, key.ref)
    if held is None:
        return Done()
    try:
        await _collect_garbage(context, client, holdings, held)
    except _REFUSALS as refusal:
        _log.warning("garbage %s: %s; again in %.0f s", key, refusal, REFUSED_RETRY_S)
        return Requeue(REFUSED_RETRY_S)
    return Done()


async def _collect_garbage(
    context: Context, client: CachedClient, holdings: Holdings, held: StoredObject
) -> None:
    if not held.terminating:
        owners = observe_owners(holdings, held.ref, held.owners)
        for owner in owners:
            if is_unreachable(held.ref.namespace, owner):
                context.planes.record_event(_unreachable_owner(client.plane, held, owner.reference))
        await _apply_action(client, holdings, _plan_collection(holdings, held, owners))
    elif ORPHAN_FINALIZER in held.finalizers:
        await _apply_action(client, holdings, plan_orphaning(held, holdings.dependents(held.uid)))
    elif FOREGROUND_FINALIZER in held.finalizers:
        await _delete_in_foreground(client, holdings, held)


async def _delete_in_foreground(
    client: CachedClient, holdings: Holdings, owner: StoredObject
) -> None:
    """Delete the dependents, then release the owner unless a remaining dependent blocks it.

    The remaining dependents are read after the deletes, because most of them are gone by then.
    """
    dependents = [
        dependent
        for dependent in holdings.dependents(owner.uid)
        if is_dependent(owner, observe_owners(holdings, dependent.ref, dependent.owners))
    ]
    for dependent in dependents:
        if not dependent.terminating:
            # Read the owners again: this dependent may also be owned by one deleted before.
            owners = observe_owners(holdings, dependent.ref, dependent.owners)
            await _apply_action(client, holdings, _plan_collection(holdings, dependent, owners))
    remaining = [dependent for dependent in dependents if _object_exists(holdings, dependent)]
    await _apply_action(client, holdings, plan_foreground_release(owner, remaining))


def observe_owners(
    holdings: Holdings, ref: Ref, references: Sequence[OwnerReference]
) -> list[ObservedOwner]:
    """Return the owners of the object ``ref``, as its references resolve now."""
    owners = []
    for reference in references:
        kind = holdings.kind_named(reference.api_version, reference.kind)
        found = None
        if kind is not None:
            found = holdings.find(kind.storage, _owner_ref(kind, ref.namespace, reference))
        owners.append(ObservedOwner(reference, kind, found))
    return owners


def _owner_ref(kind: KindInfo[Any], namespace: str, reference: OwnerReference) -> Ref:
    return Ref(namespace if kind.namespaced else "", reference.name)


def _plan_collection(
    holdings: Holdings, held: StoredObject, owners: Sequence[ObservedOwner]
) -> list[GarbageAction]:
    """Plan the collection of an object.

    Its dependents are read only if they affect the plan, because an object may have many.
    """
    waits = any(owner_state(held.ref.namespace, o) is OwnerState.WAITING for o in owners)
    has_dependents = waits and bool(holdings.dependents(held.uid))
    return plan_collection(held, owners, has_dependents=has_dependents)


def _object_exists(holdings: Holdings, held: StoredObject) -> bool:
    found = holdings.find(held.kind.storage, held.ref)
    return found is not None and found.uid == held.uid


async def _apply_action(
    client: CachedClient, holdings: Holdings, actions: Sequence[GarbageAction]
) -> None:
    for action in actions:
        match action:
            case RemoveOwners(held, uids):
                await holdings.remove_owners(held, uids)
            case ReleaseOwner(held, finalizer):
                await holdings.release(held, finalizer)
            case DeleteDependent(held, policy):
                with suppress(NotFound):
                    await client.uncached.delete(held.kind, held.ref, uid=held.uid, policy=policy)
            case _:
                assert_never(action)


def _unreachable_owner(plane: PlaneName, held: StoredObject, owner: OwnerReference) -> EventRequest:
    """Return the event about a reference that can never be resolved, as Kubernetes reports it."""
    about = ObjectReference(
        api_version=held.kind.api_version, kind=held.kind.kind, name=held.ref.name, uid=held.uid
    )
    note = (
        f"ownerRef {owner.kind} {owner.name} (uid {owner.uid}) is in a namespace, but an object "
        "without a namespace can only be owned by one without; remove it from "
        "metadata.ownerReferences"
    )
    return EventRequest(plane, about, "Warning", INVALID_NAMESPACE, note)


def affected_keys(holdings: Holdings, plane: PlaneName, change: CommittedChange) -> Iterable[Key]:
    """Yield the objects that may be garbage after a change, and owners that wait for its object.

    A new object whose owners exist and are not terminating causes no reconcile. Nearly all new
    objects are like that.
    """
    if change.gone:
        for dependent in holdings.dependents(change.uid):
            yield Key(plane, dependent.ref, dependent.kind.storage)
        for reference in change.owners:
            kind = holdings.kind_named(reference.api_version, reference.kind)
            if kind is not None:
                yield Key(plane, _owner_ref(kind, change.ref.namespace, reference), kind.storage)
        return
    owners = observe_owners(holdings, change.ref, change.owners)
    if change.deletion_started or not all(o.object and not o.object.terminating for o in owners):
        yield Key(plane, change.ref, change.resource)


async def external_keys(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    holdings = context.holdings(client.plane)
    with closing(holdings.changes(ChangeFilter(gone=True, ownership=True))) as changes:
        async for change in changes:
            for key in affected_keys(holdings, client.plane, change):
                yield key


CONTROLLERS = tuple(
    Controller(
        name=f"garbage-{role}", role=role, reconcile=reconcile, external_sources=(external_keys,)
    )
    for role in ROLES
)
