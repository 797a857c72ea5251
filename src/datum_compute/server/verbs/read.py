"""GET of one object and of a list.

A list names the version it shows. Without a version it is the newest; a number means not older
than that; ``resourceVersionMatch=Exact`` and continue tokens mean exactly that one, from the
watch log.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api.errors import BadRequest, Cause, Invalid, Timeout
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode_as, encode
from datum_compute.api.planes import PlaneName
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.list_body import ENCODED_BYTES_MAX
from datum_compute.server.encoding.representation import Representation, select_representation
from datum_compute.server.encoding.request_options import choice, number
from datum_compute.server.encoding.responses import (
    field_forbidden,
    json_response,
    list_response,
    not_found,
)
from datum_compute.server.flowcontrol.control import filter_in_turns
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import scale
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Snapshot, Store

# --- Continue tokens: the version a paged list is pinned to and the last object it showed


class _Wire(msgspec.Struct, frozen=True):
    v: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Continuation:
    version: int
    namespace: str
    name: str


def continue_token(at: Continuation) -> str:
    body = encode(_Wire(at.version, at.namespace, at.name))
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_continue_token(token: str) -> Continuation:
    try:
        body = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        wire = decode_as(body, _Wire)
    except (binascii.Error, UnicodeError, ValueError, DecodeError) as error:
        raise BadRequest("continue key is not valid: start the list again without it") from error
    if wire.v < 0:
        raise BadRequest("continue key is not valid: start the list again without it")
    return Continuation(wire.v, wire.namespace, wire.name)


# --- A list at an earlier version, as far back as the watch log reaches
# The pages of one list and exact versions need it.
#
# The log has the previous record of every change, so the list is the present one with the changes
# since then undone.


async def snapshot_at(
    store: Store, plane: PlaneName, resource: str, namespace: str | None, version: int
) -> Snapshot:
    """Return the records of a resource at a version. Raises Expired if that is too long ago."""
    check_reached(store, plane, version)
    changes = store.watch(plane, resource, version)
    present = store.snapshot(plane, resource, namespace)
    if present.version == version:
        return present
    records: dict[ObjectKey, Record | None] = {record.key: record for record in present.records}
    events = []
    while more := await changes.next_events(0):
        events += more
    for event in reversed(events):
        if namespace in (None, event.record.key.namespace):
            records[event.record.key] = event.previous
    kept = [record for _, record in sorted(records.items()) if record is not None]
    return Snapshot(version, kept)


def check_reached(store: Store, plane: PlaneName, version: int) -> None:
    """A version from the future cannot be answered; the caller may come back for it."""
    present = store.version(plane)
    if version > present:
        raise Timeout(
            f"Too large resource version: {version}, current: {present}",
            causes=[Cause("", "ResourceVersionTooLarge", "Too large resource version")],
            retry_after_s=1,
        )


# --- read


EXACT, NOT_OLDER = "Exact", "NotOlderThan"


async def get(context: ServerContext, request: ApiRequest) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    check_reached(context.store, request.plane, number(request.query, "resourceVersion") or 0)
    record = context.store.get(request.plane, request.key) or context.builtin_definitions.get(
        request.key
    )
    if record is None:
        raise not_found(request.kind, request.route.name)
    if scale.is_scale(request):
        return json_response(
            scale.scale_of(request.resource, request.resource.conversion.decode_served(record))
        )
    return json_response(representation.single(request.resource.conversion.encode_served(record)))


async def list_objects(context: ServerContext, request: ApiRequest) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    if "sendInitialEvents" in request.query:
        why = "sendInitialEvents is forbidden for list"
        raise Invalid(why, causes=[field_forbidden("sendInitialEvents", why)])
    limit = number(request.query, "limit") or 0
    token = request.query.get("continue", "")
    after = read_continue_token(token) if token else None
    snapshot = await _wanted_snapshot(context, request, after)
    snapshot = context.builtin_definitions.added_to(snapshot, request.kind.storage)
    found = snapshot.records
    selection = request.parse_selection()
    if selection.has_selector:
        found = await filter_in_turns(request.work, selection.matches, found)
    if after is not None:
        found = [r for r in found if _place(r) > (after.namespace, after.name)]
    items = await _encode_items(request, representation, found[:limit] if limit else found)
    if not limit and len(items) < len(found):
        raise BadRequest(
            f"the list has more than {ENCODED_BYTES_MAX // 2**20} MiB in this form; request pages"
            " with the parameter limit"
        )
    metadata = _list_metadata(
        found, len(items), snapshot.version, counts=not selection.has_selector
    )
    return list_response(request.http, representation.listed(metadata, items))


async def _encode_items(
    request: ApiRequest, representation: Representation, records: Sequence[Record]
) -> list[bytes]:
    """Encode the items, at most about ``ENCODED_BYTES_MAX`` of those that are not stored in this
    form: they occupy memory until they are sent."""
    conversion = request.resource.conversion
    if representation.is_verbatim and conversion.is_verbatim:
        return [record.body for record in records]
    room = ENCODED_BYTES_MAX
    items: list[bytes] = []
    for record in records:
        items.append(representation.item(conversion.encode_served(record)))
        room -= len(items[-1])
        if room < 0:
            break
        if request.work.has_used_slice():
            await request.work.yield_loop()
    return items


async def _wanted_snapshot(
    context: ServerContext, request: ApiRequest, after: Continuation | None
) -> Snapshot:
    store, resource, namespace = (
        context.store,
        request.kind.storage,
        request.route.namespace or None,
    )
    version = number(request.query, "resourceVersion")
    match = choice(request.query, "resourceVersionMatch", (EXACT, NOT_OLDER))
    if after is not None:
        if version or match:
            raise BadRequest("specifying resource version is not allowed when using continue")
        if after.version > store.version(request.plane):
            raise BadRequest("continue key is not from this server: start the list again")
        return await snapshot_at(store, request.plane, resource, namespace, after.version)
    if match and version is None:
        raise _invalid_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == EXACT:
        if not version:
            raise _invalid_match('resourceVersionMatch "Exact" is forbidden for resourceVersion 0')
        return await snapshot_at(store, request.plane, resource, namespace, version)
    check_reached(store, request.plane, version or 0)
    return store.snapshot(request.plane, resource, namespace)


def _list_metadata(
    found: Sequence[Record], listed: int, version: int, *, counts: bool
) -> JsonObject:
    """Return the metadata of a list of the first records; the rest is on the next pages."""
    metadata: JsonObject = {"resourceVersion": str(version)}
    if listed < len(found):
        last = found[listed - 1].key
        metadata["continue"] = continue_token(Continuation(version, last.namespace, last.name))
        if counts:
            metadata["remainingItemCount"] = len(found) - listed
    return metadata


def _place(record: Record) -> tuple[str, str]:
    return (record.key.namespace, record.key.name)


def _invalid_match(why: str) -> Invalid:
    return Invalid(why, causes=[Cause("resourceVersionMatch", "FieldValueForbidden", why)])
