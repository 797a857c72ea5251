"""Stores a validated object: size limits, and retries after concurrent writes.

Kinds of the platform with a status have three limits: CONTENT_BYTES_MAX for what users write,
METADATA_BYTES_MAX if only metadata changes, and OBJECT_BYTES_MAX for everything. So there is always
room for the status and for the metadata that controllers add.

The store rejects a write to an object while another write to it is in progress. Callers do not see
that conflict: the whole attempt (read, change, validate, write) waits for the other write and runs
again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from datum_compute.api.errors import AlreadyExists, Conflict, NotFound, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.access.authorization import ObjectWrite, check_write
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
_DELETION_BYTES = 64 * 1024  # extra room for the marks of a deletion
_RETRY_AFTER_MAX_S = 0.25  # retry earlier if a commit of the kind is observed

R = TypeVar("R")


class ConcurrentWrite(Exception):
    """Another write to the same object is in progress or has just been committed."""


async def retry_on_conflict(
    context: ServerContext, request: ApiRequest, name: str, attempt: Callable[[], Awaitable[R]]
) -> R:
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except ConcurrentWrite:
            await wait_for_change(context, request)
    raise conflict(request.kind, name)


async def wait_for_change(context: ServerContext, request: ApiRequest) -> None:
    """Wait until an object of the kind changes, or for a short time."""
    version = context.store.version(request.plane)
    changes = context.store.watch(request.plane, request.kind.storage, version)
    await changes.next_events(_RETRY_AFTER_MAX_S)


async def put(
    context: ServerContext,
    request: ApiRequest,
    key: ObjectKey,
    obj: JsonObject,
    *,
    old: Record | None,
    dry_run: bool,
) -> bytes:
    """Store an object and return its body in the served form. A dry run does not store it."""
    check_write(
        context.authorizer, ObjectWrite(request.user, request.plane, request.kind, obj, old)
    )
    if dry_run:
        _check_absent(context, request, key, old)
        return _check_size(request, obj, encode(obj), old)
    expected = old.version if old else 0
    conversion = request.resource.conversion
    stored = conversion.to_stored(obj) if conversion.differs else obj

    def encode_body(version: int) -> bytes:
        body = encode_at_version(stored, version)
        return body if len(body) <= CONTENT_BYTES_MAX else _check_size(request, obj, body, old)

    try:
        record = await context.store.put(
            request.plane, key, expected, encode_body, stored["metadata"]
        )
    except Conflict as error:
        raise ConcurrentWrite from error
    except AlreadyExists as error:
        raise already_exists(request.kind, key.name) from error
    return conversion.convert_current(record.body) if conversion.differs else record.body


async def remove(
    context: ServerContext, request: ApiRequest, obj: JsonObject, *, old: Record, dry_run: bool
) -> bytes:
    """Remove an object and return its last state, which watches receive."""
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


def _check_size(request: ApiRequest, obj: JsonObject, body: bytes, old: Record | None) -> bytes:
    """Return the body. Raise RequestEntityTooLarge if it is too large. An object that is being
    deleted may be larger, so that the marks of the deletion always fit."""
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
        _check_content_size(request, obj, len(body), old)
    return body


def _check_content_size(
    request: ApiRequest, obj: JsonObject, size: int, old: Record | None
) -> None:
    """Leave room for the status, and for the metadata that controllers add."""
    metadata = obj["metadata"]
    if old is not None and (size <= len(old.body) or "deletionTimestamp" in metadata):
        return
    old_metadata = decode(old.body)["metadata"] if old is not None else {}
    has_same_spec = old is not None and old_metadata.get("generation") == metadata.get("generation")
    limit = METADATA_BYTES_MAX if has_same_spec else CONTENT_BYTES_MAX
    size -= len(encode(obj["status"])) if "status" in obj else 0
    if size > limit:
        size_text = f"{size} bytes without its status, which needs room too; it"
        raise _too_large(request, metadata, size_text, limit)


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
