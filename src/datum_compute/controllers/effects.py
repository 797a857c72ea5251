"""Apply plans: write their actions and record events about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar, assert_never

import msgspec

from datum_compute.api.errors import ApiError, Conflict, Invalid, Unreachable
from datum_compute.api.inventory import StoredObject
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ApiObject
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.controllers.events import has_events, user_events
from datum_compute.planes.planes import Planes
from datum_compute.planning.plan import (
    Action,
    Create,
    Delete,
    Patch,
    PatchStatus,
    Plan,
    RemoveListItems,
    Wait,
    is_deferred,
)
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Done, Requeue

_BATCH_SIZE = 64
DELETE_BATCH = 50

T = TypeVar("T", bound=ApiObject)


async def apply_plan(planes: Planes, plan: Plan) -> Done | Requeue:
    """Apply the actions of a plan in order, and return when to reconcile again.

    The first error is raised and ends the plan; the next reconcile makes a new one. Adjacent
    creates, deletes or status patches of one kind do not depend on each other and run concurrently.
    """
    active = [a for a in plan.actions if not isinstance(a, Wait) and not is_deferred(a)]
    if len(active) == 1:  # nearly all plans have one action
        await _apply_and_record(planes, active[0])
    else:
        for _, actions in groupby(active, key=_group):
            await _run_in_batches(
                [partial(_apply_and_record, planes, action) for action in actions]
            )
    return Done() if plan.requeue_after_s is None else Requeue(plan.requeue_after_s)


async def for_each_plane(
    planes: Planes, roles: Collection[str], reconcile: Callable[[PlaneName], Awaitable[None]]
) -> None:
    """Reconcile every engaged plane of the roles, one after the other.

    A plane that is not synced, is unreachable or refuses a request does not delay the others. The
    first such error is raised at the end, so that the worker retries the key.
    """
    first_error: Exception | None = None
    for plane in planes.engaged_planes():
        if plane_role(plane) in roles:
            try:
                await reconcile(plane)
            except (NotSynced, ApiError, Unreachable) as error:
                first_error = first_error or error
    if first_error is not None:
        raise first_error


async def delete_objects(client: CachedClient, objects: Sequence[StoredObject]) -> None:
    """Delete objects of any kind, a batch at a time, so that deletes share commits."""
    for start in range(0, len(objects), DELETE_BATCH):
        batch = objects[start : start + DELETE_BATCH]
        await asyncio.gather(*(client.delete(h.kind, h.ref, uid=h.uid) for h in batch))


def _group(action: Action) -> tuple[object, ...]:
    """Return a key that is equal for actions that may run concurrently, and otherwise unique."""
    if isinstance(action, Create | Delete | PatchStatus):
        return type(action), action.plane, action.kind.resource
    return (id(action),)


async def _run_in_batches(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Wait for every call of a batch, then raise its first error and start no further batch."""
    if len(calls) == 1:
        await calls[0]()
        return
    for start in range(0, len(calls), _BATCH_SIZE):
        running = (call() for call in calls[start : start + _BATCH_SIZE])
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


async def _apply_and_record(planes: Planes, action: Action) -> None:
    if isinstance(action, Wait) or not has_events(action.plane, action.kind):
        await _apply_action(planes, action)
        return
    observed = _cached_object(planes, action)
    created = await _apply_action(planes, action)
    for event in user_events(action, created or observed):
        planes.record_event(event)


async def _apply_action(planes: Planes, action: Action) -> ApiObject | None:
    """Apply one action. Return the created object if it was created with its status."""
    match action:
        case Wait():
            pass
        case Create(plane, kind, obj, with_status=True):
            client, prepared = planes.require(plane), _drop_unmanaged_finalizers(planes, obj)
            created: ApiObject = await client.create_with_status(kind, prepared)
            return created
        case Create(plane, kind, obj):
            await planes.require(plane).create(kind, _drop_unmanaged_finalizers(planes, obj))
        case Delete(plane, kind, ref, uid, _, version):
            await planes.require(plane).delete(kind, ref, uid=uid, version=version)
        case Patch(plane, kind, ref, patch):
            await planes.require(plane).patch(kind, ref, patch)
        case RemoveListItems():
            await _remove_list_items(planes, action)
        case PatchStatus(plane, kind, ref, version, status):
            await planes.require(plane).patch_status(kind, ref, status, version=version)
        case _:
            assert_never(action)
    return None


def _drop_unmanaged_finalizers(planes: Planes, obj: T) -> T:
    """Return the object without the finalizers that no running controller removes."""
    metadata = obj.metadata
    kept = [name for name in metadata.finalizers if name not in planes.unmanaged_finalizers]
    if kept == metadata.finalizers:
        return obj
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, finalizers=kept))


def _cached_object(planes: Planes, action: Action) -> ApiObject | None:
    """Return the cached object before the action; None if the action creates it."""
    if isinstance(action, Wait | Create):
        return None
    client = planes.get(action.plane)
    if client is None or client.informer(action.kind) is None:
        return None
    observed: ApiObject | None = client.read_unsynced(action.kind).get(action.ref)
    return observed


async def _remove_list_items(planes: Planes, removal: RemoveListItems) -> None:
    """Remove the items from last to first, so that no removal changes the index of the next one.

    Each removal tests that the item is still there.
    """
    operations: list[JsonObject] = [
        {"op": "test", "path": "/metadata/uid", "value": removal.uid},
    ]
    for item in sorted(removal.items, key=lambda item: int(item.path.rpartition("/")[2]))[::-1]:
        operations += [
            {"op": "test", "path": f"{item.path}/{item.key}", "value": item.value},
            {"op": "remove", "path": item.path},
        ]
    operations += [
        {"op": "add", "path": f"/spec/{name}", "value": value}
        for name, value in removal.fields.items()
    ]
    try:
        await planes.require(removal.plane).patch(removal.kind, removal.ref, operations)
    except Invalid as error:
        # The object has changed; the next reconcile reads it again.
        raise Conflict(f"{removal.kind.kind} {removal.ref} has changed: {error}") from error
