"""The way of a checked object into the store, how large it may be, and what happens when two
writes meet.

What is accepted must also be carried out: of the platform's own kinds with a status, what is asked
for may take CONTENT_BYTES_MAX, marks in the metadata a little more, and the status the rest.

The store refuses a write of an object that is being written. Nobody gains from hearing that, so
the whole attempt (read, change, check, write) waits for the other write and runs again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from datum_compute.api.errors import AlreadyExists, Conflict, NotFound, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.access.escalation import ObjectWrite, check_write
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.server.encoding.responses import already_exists, conflict, not_found
from datum_compute.server.routing import ApiRequest
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record

ATTEMPTS = 32
OBJECT_BYTES_MAX = 1536 * 1024
CONTENT_BYTES_MAX = 1024 * 1024
METADATA_BYTES_MAX = CONTENT_BYTES_MAX + 128 * 1024
_DELETION_BYTES = 64 * 1024
_WAIT_S = 0.25  # until the next commit of the kind is seen, at most

R = TypeVar("R")


class ConcurrentWrite(Exception):
    """Another write of the same object is under way or has just landed."""


async def retry_on_conflict(
    context: ServerContext, request: ApiRequest, name: str, attempt: Callable[[], Awaitable[R]]
) -> R:
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except ConcurrentWrite:
            news = context.store.watch(
                request.plane, request.kind.storage, context.store.version(request.plane)
            )
            await news.next_events(_WAIT_S)
    raise conflict(request.kind, name)


async def put(
    context: ServerContext,
    request: ApiRequest,
    key: ObjectKey,
    obj: JsonObject,
    *,
    old: Record | None,
    dry_run: bool,
) -> bytes:
    """The body as it is served; a dry run stops just before the store."""
    check_write(
        context.authorizer, ObjectWrite(request.user, request.plane, request.kind, obj, old)
    )
    if dry_run:
        _check_absent(context, request, key, old)
        return _sized(request, obj, encode(obj), old)
    expected = old.version if old else 0
    stored = request.resource.conversion.to_stored(obj)
    try:
        record = await context.store.put(
            request.plane,
            key,
            expected,
            lambda v: _sized(request, obj, encode_at_version(stored, v), old),
            stored["metadata"],
        )
    except Conflict as error:
        raise ConcurrentWrite from error
    except AlreadyExists as error:
        raise already_exists(request.kind, key.name) from error
    return request.resource.conversion.convert_current(record.body)


async def remove(
    context: ServerContext, request: ApiRequest, obj: JsonObject, *, old: Record, dry_run: bool
) -> bytes:
    """The last state of the object, which is what watchers are told."""
    if dry_run:
        return encode(obj)
    stored = request.resource.conversion.to_stored(obj)
    try:
        record = await context.store.delete(
            request.plane, old.key, old.version, lambda v: encode_at_version(stored, v)
        )
    except Conflict as error:
        raise ConcurrentWrite from error
    except NotFound as error:
        raise not_found(request.kind, old.key.name) from error
    return request.resource.conversion.convert_current(record.body)


def _sized(request: ApiRequest, obj: JsonObject, body: bytes, old: Record | None) -> bytes:
    """The body, if it is not too large to be kept. What is on its way out gets a little more, so
    that the marks of that always fit."""
    if len(body) <= CONTENT_BYTES_MAX:
        return body
    metadata = obj["metadata"]
    room = _DELETION_BYTES if "deletionTimestamp" in metadata else 0
    if len(body) > OBJECT_BYTES_MAX + room:
        raise _too_large(request, metadata, f"{len(body)} bytes; an object", OBJECT_BYTES_MAX)
    if (
        request.kind.has_status
        and not request.kind.defined
        and request.route.subresource != "status"
    ):
        _check_leaves_room(request, obj, len(body), old)
    return body


def _check_leaves_room(request: ApiRequest, obj: JsonObject, size: int, old: Record | None) -> None:
    """For the status, and for what controllers note in the metadata."""
    metadata = obj["metadata"]
    if old is not None and (size <= len(old.body) or "deletionTimestamp" in metadata):
        return
    before = decode(old.body)["metadata"] if old is not None else {}
    same_content = old is not None and before.get("generation") == metadata.get("generation")
    limit = METADATA_BYTES_MAX if same_content else CONTENT_BYTES_MAX
    size -= len(encode(obj["status"])) if "status" in obj else 0
    if size > limit:
        what = f"{size} bytes; without its status, which needs room too, it"
        raise _too_large(request, metadata, what, limit)


def _too_large(
    request: ApiRequest, metadata: JsonObject, size: str, limit: int
) -> RequestEntityTooLarge:
    name = metadata.get("name", "")
    return RequestEntityTooLarge(
        f'{request.kind.resource} "{name}" would be {size} may have {limit}. Keep large data '
        "elsewhere and refer to it",
        name=name,
        group=request.kind.group,
        kind=request.kind.plural,
    )


def _check_absent(
    context: ServerContext, request: ApiRequest, key: ObjectKey, old: Record | None
) -> None:
    if old is None and context.store.get(request.plane, key) is not None:
        raise already_exists(request.kind, key.name)
