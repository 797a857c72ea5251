"""Carries out plans, and tells users what that means. The only file of the room that writes to
planes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TypeVar, assert_never

import msgspec

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Conflict, Invalid
from datum_compute.api.meta import ApiObject
from datum_compute.controllers.notices import is_told_about, notices
from datum_compute.planes.planes import Planes
from datum_compute.planning.actions import (
    Action,
    Create,
    Delete,
    Patch,
    PatchLabels,
    PatchStatus,
    Plan,
    RemoveItems,
    Wait,
    is_skipped,
)
from datum_compute.runtime.controller import Done, Requeue

T = TypeVar("T", bound=ApiObject)

_BATCH_SIZE = 64


async def carry_out(planes: Planes, plan: Plan) -> Done | Requeue:
    """All actions in order; the first failure ends it, and the next pass plans anew.

    Neighbouring creates of one kind do not depend on each other, nor do neighbouring deletes:
    those go out together. So does all of a plan whose actions are independent.
    """
    begun = [a for a in plan.actions if not isinstance(a, Wait) and not is_skipped(a)]
    if len(begun) == 1:  # as of nearly all plans
        await _carry_out_and_tell(planes, begun[0])
    else:
        same = (lambda _action: ()) if plan.independent else _group
        for _, actions in groupby(begun, key=same):
            await _run_in_batches(
                [partial(_carry_out_and_tell, planes, action) for action in actions]
            )
    return Done() if plan.requeue_after_s is None else Requeue(plan.requeue_after_s)


def _group(action: Action) -> tuple[object, ...]:
    """Equal for neighbours that may go out together; else unlike any other."""
    if isinstance(action, Create | Delete):
        return type(action), action.plane, action.kind.resource
    return (id(action),)


async def _run_in_batches(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Wait for every call of a batch, then raise its first error and start no further batch."""
    if len(calls) == 1:
        await calls[0]()
        return
    for start in range(0, len(calls), _BATCH_SIZE):
        started = (call() for call in calls[start : start + _BATCH_SIZE])
        for result in await asyncio.gather(*started, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


async def _carry_out_and_tell(planes: Planes, action: Action) -> None:
    if isinstance(action, Wait) or not is_told_about(action.plane, action.kind):
        await _carry_out(planes, action)
        return
    observed = _observed(planes, action)
    made = await _carry_out(planes, action)
    for notice in notices(action, made or observed):
        planes.record_event(notice)


async def _carry_out(planes: Planes, action: Action) -> ApiObject | None:
    """What was made, of an object that says something of itself from the beginning."""
    match action:
        case Wait():
            pass
        case Create(plane, kind, obj, with_status=True):
            view, whole = planes.require(plane), _releasable(planes, obj)
            made: ApiObject = await view.create_with_status(kind, whole)
            return made
        case Create(plane, kind, obj):
            await planes.require(plane).create(kind, _releasable(planes, obj))
        case Delete(plane, kind, ref, uid, _, version):
            await planes.require(plane).delete(kind, ref, uid=uid, version=version)
        case Patch(plane, kind, ref, patch):
            await planes.require(plane).patch(kind, ref, patch)
        case PatchLabels(plane, kind, ref, uid, labels):
            await planes.require(plane).patch(
                kind, ref, {"metadata": {"uid": uid, "labels": dict(labels)}}
            )
        case RemoveItems():
            await _remove_items(planes, action)
        case PatchStatus(plane, kind, ref, version, status):
            await planes.require(plane).patch_status(kind, ref, status, version=version)
        case _:
            assert_never(action)
    return None


def _releasable(planes: Planes, obj: T) -> T:
    """Without the finalizers that would hold it for ever."""
    metadata = obj.metadata
    kept = [name for name in metadata.finalizers if name not in planes.unmanaged_finalizers]
    if kept == metadata.finalizers:
        return obj
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, finalizers=kept))


def _observed(planes: Planes, action: Action) -> ApiObject | None:
    """The object before the action, for those that users are told about."""
    if isinstance(action, Wait | Create):
        return None
    view = planes.get(action.plane)
    if view is None or view.informer(action.kind) is None:
        return None
    observed: ApiObject | None = view.cached(action.kind).get(action.ref)
    return observed


async def _remove_items(planes: Planes, removal: RemoveItems) -> None:
    """From the last one on, so that no removal moves the next; each only if it is still there."""
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
        # What was seen is no longer so; the next pass sees what is.
        raise Conflict(f"{removal.kind.kind} {removal.ref} has changed: {error}") from error
