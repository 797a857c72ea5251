"""GET of one object and of a list.

A list states its version. Without ``resourceVersion`` it is the newest one. With a number the list
is not older than that version. ``resourceVersionMatch=Exact`` and continue tokens request exactly
one version, which is restored from the watch log.
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
from datum_compute.server.encoding.request_options import parse_choice, parse_number
from datum_compute.server.encoding.responses import (
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

# --- Continue tokens: the version of a paged list, and the last object of the previous page


class _TokenBody(msgspec.Struct, frozen=True):
    v: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Continuation:
    version: int
    namespace: str
    name: str


def encode_continue_token(position: Continuation) -> str:
    body = encode(_TokenBody(position.version, position.namespace, position.name))
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_continue_token(token: str) -> Continuation:
    try:
        body = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        token_body = decode_as(body, _TokenBody)
    except (binascii.Error, UnicodeError, ValueError, DecodeError) as error:
        raise BadRequest("continue key is not valid: start the list again without it") from error
    if token_body.v < 0:
        raise BadRequest("continue key is not valid: start the list again without it")
    return Continuation(token_body.v, token_body.namespace, token_body.name)


# --- A list at an earlier version, for the pages of one list and for exact versions. The watch log
# has the previous record of each change, so the later changes of the present list can be undone.


async def snapshot_at(
    store: Store, plane: PlaneName, resource: str, namespace: str | None, version: int
) -> Snapshot:
    """Return the records of a resource at a version. Raises Expired if that is too long ago."""
    check_reached(store, plane, version)
    changes = store.watch(plane, resource, version)
    newest = store.snapshot(plane, resource, namespace)
    if newest.version == version:
        return newest
    records: dict[ObjectKey, Record | None] = {record.key: record for record in newest.records}
    events = []
    while next_events := await changes.next_events(0):
        events += next_events
    for event in reversed(events):
        if namespace in (None, event.record.key.namespace):
            records[event.record.key] = event.previous
    remaining = [record for _, record in sorted(records.items()) if record is not None]
    return Snapshot(version, remaining)


def check_reached(store: Store, plane: PlaneName, version: int) -> None:
    """Raise Timeout for a version that the plane has not reached yet. The client retries."""
    newest = store.version(plane)
    if version > newest:
        raise Timeout(
            f"Too large resource version: {version}, current: {newest}",
            causes=[Cause("", "ResourceVersionTooLarge", "Too large resource version")],
            retry_after_s=1,
        )


# --- Verbs


EXACT, NOT_OLDER = "Exact", "NotOlderThan"


async def get(context: ServerContext, request: ApiRequest) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    check_reached(context.store, request.plane, parse_number(request.query, "resourceVersion") or 0)
    record = context.store.get(request.plane, request.key) or context.builtin_definitions.get(
        request.key
    )
    if record is None:
        raise not_found(request.kind, request.route.name)
    if scale.is_scale(request):
        return json_response(
            scale.scale_of(request.resource, request.resource.conversion.decode_served(record))
        )
    return json_response(
        representation.encode_response(request.resource.conversion.encode_served(record))
    )


async def list_objects(context: ServerContext, request: ApiRequest) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    if "sendInitialEvents" in request.query:
        why = "sendInitialEvents is forbidden for list"
        raise Invalid(why, causes=[Cause.forbidden("sendInitialEvents", why)])
    limit = parse_number(request.query, "limit") or 0
    token = request.query.get("continue", "")
    after = read_continue_token(token) if token else None
    snapshot = await _select_snapshot(context, request, after)
    snapshot = context.builtin_definitions.add_to(snapshot, request.kind.storage)
    records = snapshot.records
    selection = request.parse_selection()
    if selection.has_selector:
        records = await filter_in_turns(request.work, selection.matches, records)
    if after is not None:
        records = [r for r in records if _position(r) > (after.namespace, after.name)]
    items = await _encode_items(request, representation, records[:limit] if limit else records)
    if not limit and len(items) < len(records):
        raise BadRequest(
            f"the list has more than {ENCODED_BYTES_MAX // 2**20} MiB in this form; request pages"
            " with the parameter limit"
        )
    metadata = _list_metadata(
        records, len(items), snapshot.version, has_count=not selection.has_selector
    )
    return list_response(request.http, representation.encode_list(metadata, items))


async def _encode_items(
    request: ApiRequest, representation: Representation, records: Sequence[Record]
) -> list[bytes]:
    """Encode the items, at most about ``ENCODED_BYTES_MAX`` of those that are not stored in this
    form: they occupy memory until they are sent."""
    conversion = request.resource.conversion
    if representation.is_verbatim and conversion.is_verbatim:
        return [record.body for record in records]
    bytes_left = ENCODED_BYTES_MAX
    items: list[bytes] = []
    for record in records:
        items.append(representation.encode_item(conversion.encode_served(record)))
        bytes_left -= len(items[-1])
        if bytes_left < 0:
            break
        if request.work.has_used_slice():
            await request.work.yield_loop()
    return items


async def _select_snapshot(
    context: ServerContext, request: ApiRequest, after: Continuation | None
) -> Snapshot:
    store, resource, namespace = (
        context.store,
        request.kind.storage,
        request.route.namespace or None,
    )
    version = parse_number(request.query, "resourceVersion")
    match = parse_choice(request.query, "resourceVersionMatch", (EXACT, NOT_OLDER))
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
    records: Sequence[Record], listed: int, version: int, *, has_count: bool
) -> JsonObject:
    """Return the metadata of a list of the first records; the rest is on the next pages."""
    metadata: JsonObject = {"resourceVersion": str(version)}
    if listed < len(records):
        last = records[listed - 1].key
        metadata["continue"] = encode_continue_token(
            Continuation(version, last.namespace, last.name)
        )
        if has_count:
            metadata["remainingItemCount"] = len(records) - listed
    return metadata


def _position(record: Record) -> tuple[str, str]:
    return (record.key.namespace, record.key.name)


def _invalid_match(why: str) -> Invalid:
    return Invalid(why, causes=[Cause("resourceVersionMatch", "FieldValueForbidden", why)])
