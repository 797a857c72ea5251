"""DELETE of an object and of a collection, and removal of expired events.

An object with finalizers is only marked; the write that removes the last finalizer removes the
object. The garbage collector deletes or orphans dependents: the policies Foreground and Orphan add
a finalizer that instructs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import BadRequest, Cause, Conflict, Invalid, NotFound, shorten
from datum_compute.api.http import Response
from datum_compute.api.kinds import EVENT
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, from_json
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import decode_body, encode_at_version, json_equal
from datum_compute.server.encoding.list_body import ENCODED_BYTES_MAX
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import (
    is_dry_run,
    parse_choice,
    parse_dry_run,
    parse_flag,
    parse_number,
)
from datum_compute.server.encoding.responses import conflict, json_response, list_response
from datum_compute.server.flowcontrol.control import filter_in_turns, map_in_turns
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import commit, definitions, namespaces
from datum_compute.server.verbs.metadata import mark_deleted_metadata, order_metadata
from datum_compute.server.verbs.prepare import check_deletion_rules
from datum_compute.server.verbs.update import has_finalizers, remove_object
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Store

# The finalizers that each policy adds.
_FINALIZERS = {
    "Background": (),
    "Foreground": (FOREGROUND_FINALIZER,),
    "Orphan": (ORPHAN_FINALIZER,),
}
_POLICIES = tuple(_FINALIZERS)
_BATCH_OBJECTS_MAX = 100
_BATCH_BYTES_MAX = 8 * 1024 * 1024
_SUCCESS: JsonObject = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
}


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _OptionsBody(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = "DeleteOptions"
    dry_run: list[str] | None = None
    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """``policy`` is empty if the finalizers that the object already has decide."""

    uid: str
    version: str
    dry_run: bool
    policy: str


@dataclass(frozen=True, slots=True)
class _Deleted:
    """The last state of an object or, while finalizers delay its removal, the present one."""

    body: bytes
    is_removed: bool


async def delete(context: ServerContext, request: ApiRequest) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    options = _delete_options(request)
    deleted = await _delete_one(context, request, request.key, options)
    if deleted.is_removed:
        return json_response(_success(request, decode(deleted.body)))
    return json_response(representation.encode_response(deleted.body))


async def delete_collection(context: ServerContext, request: ApiRequest) -> Response:
    """Delete all objects that the selectors match. Many deletes share one commit.

    The response lists the objects, or is a Status if they are too large together.
    """
    representation = select_representation(request.kind, request.http, context.clock)
    options = _delete_options(request)
    selection = request.parse_selection()
    snapshot = context.store.snapshot(
        request.plane, request.kind.storage, request.route.namespace or None
    )
    work = request.work
    records = await filter_in_turns(work, selection.matches, snapshot.records)
    bodies: list[bytes] = []
    bytes_left = ENCODED_BYTES_MAX
    for batch in _batches(records):
        results = await asyncio.gather(
            *(work.run_part(_delete_one(context, request, key, options)) for key in batch),
            return_exceptions=True,
        )
        for result in filter(None, map(_raise_failure, results)):
            bytes_left -= len(result.body)
            bodies.append(result.body if bytes_left >= 0 else b"")
    if bytes_left < 0:
        return json_response({**_SUCCESS, "details": _details(request)})
    metadata = {"resourceVersion": str(context.store.version(request.plane))}
    items = await map_in_turns(work, representation.encode_item, bodies)
    return list_response(request.http, representation.encode_list(metadata, items))


def _batches(records: Iterable[Record]) -> Iterator[list[ObjectKey]]:
    """Yield the keys of objects that are deleted together, limited in number and size."""
    batch: list[ObjectKey] = []
    size_bytes = 0
    for record in records:
        if batch and (
            len(batch) >= _BATCH_OBJECTS_MAX or size_bytes + len(record.body) > _BATCH_BYTES_MAX
        ):
            yield batch
            batch, size_bytes = [], 0
        batch.append(record.key)
        size_bytes += len(record.body)
    if batch:
        yield batch


def _raise_failure(result: _Deleted | BaseException) -> _Deleted | None:
    """Return the result; None if another request has deleted the object. Raise other errors."""
    if isinstance(result, NotFound):
        return None
    if isinstance(result, BaseException):
        raise result
    return result


async def _delete_one(
    context: ServerContext,
    request: ApiRequest,
    key: ObjectKey,
    options: DeleteOptions,
) -> _Deleted:
    if request.resource.is_namespace:
        namespaces.check_deletable(request.kind, key.name)

    async def attempt() -> _Deleted:
        record = context.store.get(request.plane, key)
        if record is None:
            raise context.builtin_definitions.missing_error(request.kind, key)
        old = request.resource.conversion.decode_served(record)
        _check_preconditions(request, old, options)
        check_deletion_rules(context, request, old)
        new = {**old, "metadata": _with_policy(old["metadata"], options.policy)}
        if has_finalizers(request, new):
            if "deletionTimestamp" not in old["metadata"]:
                new = _mark_deleted(context, request, new)
            elif json_equal(new, old):
                return _Deleted(request.resource.conversion.encode_served(record), is_removed=False)
            body = await commit.put(context, request, key, new, old=record, dry_run=options.dry_run)
            return _Deleted(body, is_removed=False)
        body = await remove_object(context, request, new, record, is_dry_run=options.dry_run)
        return _Deleted(body, is_removed=True)

    return await commit.retry_on_conflict(context, request, key.name, attempt)


def _with_policy(metadata: JsonObject, policy: str) -> JsonObject:
    if not policy:
        return metadata
    policy_finalizers = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
    others = [f for f in metadata.get("finalizers", ()) if f not in policy_finalizers]
    finalizers = [*others, *_FINALIZERS[policy]]
    rest = {name: value for name, value in metadata.items() if name != "finalizers"}
    return order_metadata({**rest, "finalizers": finalizers} if finalizers else rest)


def _mark_deleted(context: ServerContext, request: ApiRequest, old: JsonObject) -> JsonObject:
    metadata = mark_deleted_metadata(request.kind, old["metadata"], context.clock())
    new = {**old, "metadata": metadata}
    if request.resource.is_definition:
        return definitions.with_terminating_condition(new, context.clock())
    return namespaces.with_terminating_phase(new) if request.resource.is_namespace else new


def _delete_options(request: ApiRequest) -> DeleteOptions:
    """Return the options from the query and the optional body."""
    body = _decode_options(request) if request.http.body else _OptionsBody()
    if body.kind != "DeleteOptions":
        raise BadRequest(f"the body must be DeleteOptions, not {shorten(body.kind)}")
    parse_number(request.query, "gracePeriodSeconds")
    if (body.grace_period_seconds or 0) < 0:
        raise Invalid("gracePeriodSeconds: Invalid value: must be greater than or equal to 0")
    dry_runs = [is_dry_run(value) for value in body.dry_run or ()]
    preconditions = body.preconditions or _Preconditions()
    return DeleteOptions(
        uid=preconditions.uid or "",
        version=preconditions.resource_version or "",
        dry_run=any(dry_runs) or parse_dry_run(request.query),
        policy=_propagation_policy(request, body),
    )


def _decode_options(request: ApiRequest) -> _OptionsBody:
    try:
        return from_json(decode_body(request.http), _OptionsBody)
    except DecodeError as error:
        raise BadRequest(f"the DeleteOptions cannot be read: {error}") from error


def _propagation_policy(request: ApiRequest, body: _OptionsBody) -> str:
    """Return the policy. ``orphanDependents`` is the deprecated form of it."""
    policy = body.propagation_policy or parse_choice(request.query, "propagationPolicy", _POLICIES)
    orphans = body.orphan_dependents
    if orphans is None and "orphanDependents" in request.query:
        orphans = parse_flag(request.query, "orphanDependents")
    if policy and orphans is not None:
        why = "orphanDependents and propagationPolicy cannot be both set"
        cause = Cause.invalid("propagationPolicy", why)
        raise invalid(request.kind, request.route.name, [cause])
    if policy and policy not in _POLICIES:
        cause = Cause.unsupported("propagationPolicy", policy, _POLICIES)
        raise invalid(request.kind, request.route.name, [cause])
    return policy or {None: "", True: "Orphan", False: "Background"}[orphans]


def _check_preconditions(request: ApiRequest, old: JsonObject, options: DeleteOptions) -> None:
    metadata = old["metadata"]
    name = metadata["name"]
    if options.uid and options.uid != metadata["uid"]:
        raise conflict(request.kind, name, _mismatch("UID", options.uid, metadata["uid"]))
    present = metadata["resourceVersion"]
    if options.version and options.version != present:
        why = _mismatch("ResourceVersion", options.version, present)
        raise conflict(request.kind, name, why)


def _mismatch(what: str, wanted: str, present: str) -> str:
    return (
        f"Precondition failed: {what} in precondition: {shorten(wanted)}, "
        f"{what} in object meta: {present}"
    )


def _success(request: ApiRequest, last: JsonObject) -> JsonObject:
    metadata = last["metadata"]
    details = _details(request, name=metadata["name"], uid=metadata["uid"])
    return {**_SUCCESS, "details": details}


def _details(request: ApiRequest, name: str = "", uid: str = "") -> JsonObject:
    details = {"name": name, "group": request.kind.group, "kind": request.kind.plural, "uid": uid}
    return {field: value for field, value in details.items() if value}


# --- Expiry of events: an event is removed an hour after it last occurred
# It can occur again during the sweep, so each removal requires the version that was checked.


EVENT_LIFETIME_S = 3600.0
_EXPIRED_BATCH_MAX = 100  # removals that share commits


async def expire_events(store: Store, plane: str, now: float) -> int:
    """Remove the events that have expired, and return their number."""
    events = ((r, decode(r.body)) for r in store.snapshot(plane, EVENT.storage).records)
    expired = [(r, obj) for r, obj in events if now - _last_seen(obj, now) >= EVENT_LIFETIME_S]
    removed = 0
    for start in range(0, len(expired), _EXPIRED_BATCH_MAX):
        batch = (
            _remove_event(store, plane, r, obj)
            for r, obj in expired[start : start + _EXPIRED_BATCH_MAX]
        )
        removed += sum(await asyncio.gather(*batch))
    return removed


async def _remove_event(store: Store, plane: str, record: Record, obj: JsonObject) -> bool:
    try:
        await store.delete(plane, record.key, record.version, lambda v: encode_at_version(obj, v))
    except (Conflict, NotFound):
        return False  # changed or removed meanwhile; the next sweep checks it again
    return True


def _last_seen(event: JsonObject, now: float) -> float:
    """Return the latest time of the event.

    Times in the future are ignored, so that events of a reporter whose clock is ahead also expire.
    """
    times = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max((at for at in map(_seconds, times) if at <= now), default=0.0)


def _seconds(text: Any) -> float:
    return parse_timestamp(text) if isinstance(text, str) else 0.0
