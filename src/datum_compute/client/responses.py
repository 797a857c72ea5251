"""What the API answers, as values: lists, events of a watch, the Status of a refusal.

An ordinary event and a list are decoded once, straight into the model of the kind (fields that it
does not know, managedFields among them, never become objects); only what is neither (a bookmark,
an error) is looked at twice. ``*_of`` refuse an answer with an object that is not of its kind;
``*_with_unreadable`` hand such an object over as Unreadable, for those who must go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import msgspec

from datum_compute.api.errors import ApiError, InternalError, from_status
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.objects import ObjectMeta

M = TypeVar("M")

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class ListResult(Generic[M]):
    """``version`` is the version of the plane at which these were all the objects."""

    items: list[M]
    version: str


@dataclass(frozen=True, slots=True)
class UndecodableObject:
    """An object that is there, but not of the shape its kind has; only its metadata is known."""

    metadata: ObjectMeta
    body: bytes
    error: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[M]):
    """``object`` is the new (or last) state, and None for a bookmark."""

    type: EventType
    version: str
    object: M | None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Described(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Page(msgspec.Struct, Generic[M], frozen=True):
    items: list[M] | None = None  # servers written in Go say null for none
    metadata: _Meta = _Meta()


class _Change(msgspec.Struct, Generic[M], frozen=True):
    type: ChangeType
    object: M


class _Mark(msgspec.Struct, frozen=True):
    """A bookmark."""

    object: _Versioned


class _OtherEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_BOOKMARK = b'{"type":"BOOKMARK",'
_marks = msgspec.json.Decoder(_Mark)


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """One part of a list; ``more`` is the token that asks for the next, empty on the last."""

    items: list[M]
    version: str
    more: str


def page_of(response: Response, model: type[M]) -> Page[M]:
    return _checked(_decoded(response.body, _decoders(model).page))


def page_with_unreadable(response: Response, model: type[M]) -> Page[M | UndecodableObject]:
    try:
        return _checked(_decoders(model).page.decode(response.body))
    except msgspec.DecodeError:
        raw = _checked(_decoded(response.body, _decoders(msgspec.Raw).page))
    items = [_readable(bytes(item), model) for item in raw.items]
    return Page(items, raw.version, raw.more)


def object_of(response: Response, model: type[M]) -> M:
    found: M = _decoded(response.body, _decoders(model).alone)
    return found


def event_of(line: bytes, model: type[M]) -> WatchEvent[M]:
    """One line of a watch; an ERROR event is raised as the error it stands for."""
    if line.startswith(_BOOKMARK):
        # As our server and Kubernetes write them: most of what a quiet watch has to say.
        return WatchEvent("BOOKMARK", _decoded(line, _marks).object.metadata.resource_version, None)
    try:
        change = _decoders(model).change.decode(line)
    except msgspec.DecodeError:
        return _other_event(line)
    return WatchEvent(change.type, _version(change.object), change.object)


def event_with_unreadable(line: bytes, model: type[M]) -> WatchEvent[M | UndecodableObject]:
    try:
        return event_of(line, model)
    except InternalError:
        event = _decoded(line, _decoders(_OtherEvent).alone)
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise
        found = _readable(bytes(event.object), model)
        return WatchEvent(event.type, _version(found), found)


def version_of(response: Response) -> str:
    """The version that an answer carries, of a list or of an object; empty without one."""
    found: _Versioned = _decoded(response.body, _decoders(_Versioned).alone)
    return found.metadata.resource_version


def refusal_of(response: Response) -> ApiError:
    """The error that an answer of 400 and above stands for."""
    try:
        body = decode(response.body)
    except DecodeError:
        body = None
    if not isinstance(body, dict):
        body = {"message": response.body[:200].decode(errors="replace").strip()}
    error = from_status(response.status, body)
    error.request_id = response.headers.get("audit-id", "")
    return error


async def lines_of(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines of a chunked stream, however it was cut; half a line at its end is dropped."""
    parts: list[bytes] = []  # of a line that has not ended yet
    async for chunk in stream:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            line = b"".join(parts)
            if line:
                yield line
            parts = [other]


def _checked(page: _Page[M]) -> Page[M]:
    meta = page.metadata
    if meta.remaining_item_count and not meta.continue_token:
        raise InternalError(
            f"the list lacks {meta.remaining_item_count} objects and does not say how to get them"
        )
    return Page(page.items or [], meta.resource_version, meta.continue_token)


def _readable(body: bytes, model: type[M]) -> M | UndecodableObject:
    try:
        found: M = _decoders(model).alone.decode(body)
    except msgspec.DecodeError as error:
        metadata = _decoded(body, _decoders(_Described).alone).metadata
        return UndecodableObject(metadata, body, str(error))
    return found


def _other_event(line: bytes) -> WatchEvent[Any]:
    event = _decoded(line, _decoders(_OtherEvent).alone)
    body = bytes(event.object)
    if event.type == "BOOKMARK":
        return WatchEvent(
            "BOOKMARK", _decoded(body, _decoders(_Versioned).alone).metadata.resource_version, None
        )
    if event.type == "ERROR":
        status = _decoded(body, _decoders(JsonObject).alone)
        raise from_status(_code(status), status)
    raise InternalError(f"the server sent an event of type {event.type!r} that cannot be read")


def _code(status: JsonObject) -> int:
    code = status.get("code")
    return code if isinstance(code, int) else 500


def _version(obj: Any) -> str:
    if isinstance(obj, dict):
        metadata = obj.get("metadata")
        return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""
    version: str = obj.metadata.resource_version
    return version


def _decoded(body: bytes, decoder: msgspec.json.Decoder[M]) -> M:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InternalError(f"the server's answer cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Decoders:
    """Of one model: by itself, in a page of a list, in an event."""

    alone: msgspec.json.Decoder[Any]
    page: msgspec.json.Decoder[_Page[Any]]
    change: msgspec.json.Decoder[_Change[Any]]


@cache
def _made_decoders(model: Any) -> _Decoders:
    return _Decoders(
        msgspec.json.Decoder(model),
        msgspec.json.Decoder(_Page[model]),
        msgspec.json.Decoder(_Change[model]),
    )


def _decoders(model: Any) -> _Decoders:
    return _made_decoders(model)
