"""Decode responses of the API: objects, lists, watch events and errors.

Events and lists are decoded directly into the model of the kind. Unknown fields such as
managedFields are skipped without creating objects. Only bookmarks and errors are decoded twice.
``*_of`` raise InternalError if an object does not match its model. ``*_with_unreadable`` return an
UndecodableObject instead, for callers that must continue.
"""

from __future__ import annotations

import re
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
    """All objects of a list, and the version of the plane at which it was read."""

    items: list[M]
    version: str


@dataclass(frozen=True, slots=True)
class UndecodableObject:
    """An object that does not match the model of its kind. Only its metadata is decoded."""

    metadata: ObjectMeta
    body: bytes
    error: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[M]):
    """A watch event. ``object`` is the new or last state, or None for a bookmark."""

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
    items: list[M] | None = None  # Go encodes an empty list as null
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


# Code, agent and text of one warning; the text is a quoted string.
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_BOOKMARK = b'{"type":"BOOKMARK",'
_marks = msgspec.json.Decoder(_Mark)


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """One page of a list. ``more`` is the continue token, which is empty on the last page."""

    items: list[M]
    version: str
    more: str


def page_of(response: Response, model: type[M]) -> Page[M]:
    return _check_complete(_decode(response.body, _decoders(model).page))


def page_with_unreadable(response: Response, model: type[M]) -> Page[M | UndecodableObject]:
    try:
        return _check_complete(_decoders(model).page.decode(response.body))
    except msgspec.DecodeError:
        raw = _check_complete(_decode(response.body, _decoders(msgspec.Raw).page))
    items = [_decode_lenient(bytes(item), model) for item in raw.items]
    return Page(items, raw.version, raw.more)


def object_of(response: Response, model: type[M]) -> M:
    found: M = _decode(response.body, _decoders(model).alone)
    return found


def event_of(line: bytes, model: type[M]) -> WatchEvent[M]:
    """Decode one line of a watch. Raise an ERROR event as its error."""
    if line.startswith(_BOOKMARK):
        # The encoding of our server and of Kubernetes. Most events of an idle watch are bookmarks.
        return WatchEvent("BOOKMARK", _decode(line, _marks).object.metadata.resource_version, None)
    try:
        change = _decoders(model).change.decode(line)
    except msgspec.DecodeError:
        return _other_event(line)
    return WatchEvent(change.type, _version(change.object), change.object)


def event_with_unreadable(line: bytes, model: type[M]) -> WatchEvent[M | UndecodableObject]:
    try:
        return event_of(line, model)
    except InternalError:
        event = _decode(line, _decoders(_OtherEvent).alone)
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise
        found = _decode_lenient(bytes(event.object), model)
        return WatchEvent(event.type, _version(found), found)


def version_of(response: Response) -> str:
    """Return the version of a list or object in a response, or an empty string."""
    found: _Versioned = _decode(response.body, _decoders(_Versioned).alone)
    return found.metadata.resource_version


def warnings_of(response: Response) -> list[str]:
    """Return the texts of the Warning headers, which an API server adds to a response."""
    found = _WARNING.findall(response.headers.get("warning", ""))
    return [re.sub(r"\\(.)", r"\1", text) for text in found]


def refusal_of(response: Response) -> ApiError:
    """Return the error of a response with a status of 400 and above."""
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
    """Yield the lines of a chunked stream. A partial line at its end is dropped."""
    parts: list[bytes] = []  # of the current line
    async for chunk in stream:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            line = b"".join(parts)
            if line:
                yield line
            parts = [other]


def _check_complete(page: _Page[M]) -> Page[M]:
    meta = page.metadata
    if meta.remaining_item_count and not meta.continue_token:
        raise InternalError(
            f"the list omits {meta.remaining_item_count} objects and has no continue token"
        )
    return Page(page.items or [], meta.resource_version, meta.continue_token)


def _decode_lenient(body: bytes, model: type[M]) -> M | UndecodableObject:
    try:
        found: M = _decoders(model).alone.decode(body)
    except msgspec.DecodeError as error:
        metadata = _decode(body, _decoders(_Described).alone).metadata
        return UndecodableObject(metadata, body, str(error))
    return found


def _other_event(line: bytes) -> WatchEvent[Any]:
    event = _decode(line, _decoders(_OtherEvent).alone)
    body = bytes(event.object)
    if event.type == "BOOKMARK":
        return WatchEvent(
            "BOOKMARK", _decode(body, _decoders(_Versioned).alone).metadata.resource_version, None
        )
    if event.type == "ERROR":
        status = _decode(body, _decoders(JsonObject).alone)
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


def _decode(body: bytes, decoder: msgspec.json.Decoder[M]) -> M:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InternalError(f"cannot decode the response of the server: {error}") from error


@dataclass(frozen=True, slots=True)
class _Decoders:
    """The decoders of a model: for an object, for a page of a list, and for an event."""

    alone: msgspec.json.Decoder[Any]
    page: msgspec.json.Decoder[_Page[Any]]
    change: msgspec.json.Decoder[_Change[Any]]


@cache
def _cached_decoders(model: Any) -> _Decoders:
    return _Decoders(
        msgspec.json.Decoder(model),
        msgspec.json.Decoder(_Page[model]),
        msgspec.json.Decoder(_Change[model]),
    )


def _decoders(model: Any) -> _Decoders:
    return _cached_decoders(model)
