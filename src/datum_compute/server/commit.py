"""The way of a checked object into the store, and what happens when two writes meet.

The store refuses a write of an object that is being written. Nobody gains from hearing that, so
the whole attempt (read, change, check, write) waits for the other write and runs again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from datum_compute.api.codec import JsonObject, encode
from datum_compute.api.errors import AlreadyExists, Conflict, NotFound, RequestEntityTooLarge
from datum_compute.server import problems
from datum_compute.server.access.escalation import check_grant
from datum_compute.server.call import Call
from datum_compute.server.document import stamped
from datum_compute.server.ports import Ports
from datum_compute.store.journal import ObjectKey
from datum_compute.store.record import Record

ATTEMPTS = 32
OBJECT_BYTES_MAX = 1536 * 1024
_DELETION_BYTES = 64 * 1024
_WAIT_S = 0.25  # until the next commit of the kind is seen, at most

R = TypeVar("R")


class Raced(Exception):
    """Another write of the same object is under way or has just landed."""


async def until_settled(
    ports: Ports, call: Call, name: str, attempt: Callable[[], Awaitable[R]]
) -> R:
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except Raced:
            news = ports.store.watch(call.plane, call.kind.storage, ports.store.version(call.plane))
            await news.next_events(_WAIT_S)
    raise problems.conflict(call.kind, name)


async def put(
    ports: Ports,
    call: Call,
    key: ObjectKey,
    obj: JsonObject,
    *,
    old: Record | None,
    dry_run: bool,
) -> bytes:
    """The body as it is served; a dry run stops just before the store."""
    check_grant(ports.authorizer, call, obj, old)
    if dry_run:
        _check_absent(ports, call, key, old)
        return _sized(call, obj, encode(obj))
    expected = old.version if old else 0
    stored = call.served.conversion.to_stored(obj)
    try:
        record = await ports.store.put(
            call.plane, key, expected, lambda v: _sized(call, obj, stamped(stored, v))
        )
    except Conflict as error:
        raise Raced from error
    except AlreadyExists as error:
        raise problems.already_exists(call.kind, key.name) from error
    return call.served.conversion.of_written(record.body)


async def remove(ports: Ports, call: Call, obj: JsonObject, *, old: Record, dry_run: bool) -> bytes:
    """The last state of the object, which is what watchers are told."""
    if dry_run:
        return encode(obj)
    stored = call.served.conversion.to_stored(obj)
    try:
        record = await ports.store.delete(
            call.plane, old.key, old.version, lambda v: stamped(stored, v)
        )
    except Conflict as error:
        raise Raced from error
    except NotFound as error:
        raise problems.not_found(call.kind, old.key.name) from error
    return call.served.conversion.of_written(record.body)


def _sized(call: Call, obj: JsonObject, body: bytes) -> bytes:
    """The body, if it is not too large to be kept. What is on its way out gets a little more, so
    that the marks of that always fit."""
    metadata = obj["metadata"]
    room = _DELETION_BYTES if "deletionTimestamp" in metadata else 0
    if len(body) > OBJECT_BYTES_MAX + room:
        raise RequestEntityTooLarge(
            f'{call.kind.resource} "{metadata.get("name", "")}" would be {len(body)} bytes; an '
            f"object may have {OBJECT_BYTES_MAX}. Keep large data elsewhere and refer to it",
            name=metadata.get("name", ""),
            group=call.kind.group,
            kind=call.kind.plural,
        )
    return body


def _check_absent(ports: Ports, call: Call, key: ObjectKey, old: Record | None) -> None:
    if old is None and ports.store.get(call.plane, key) is not None:
        raise problems.already_exists(call.kind, key.name)
