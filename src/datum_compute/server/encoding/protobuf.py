"""Decode protobuf messages to JSON by tables of their numbered fields.

Go encodes empty fields unless they are pointers, and JSON omits them. An empty value is therefore
only kept for a field that is ``optional`` (a pointer in Go).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from datum_compute.api.meta.codec import DecodeError, JsonObject, decode

# --- The protobuf encoding: a message is a row of numbered fields


VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_FIXED = {EIGHT_BYTES: 8, FOUR_BYTES: 4}

Value = int | bytes


FIELDS_MAX = 30_000  # in a message, including nested messages


class WireError(ValueError):
    """The bytes are not a protobuf message."""


class TooManyFields(ValueError):
    """The message has more than ``FIELDS_MAX`` fields."""


# Fields that the current message may still have, shared with its nested messages.
_fields_left: ContextVar[list[int]] = ContextVar("fields_left")


@contextmanager
def limit_fields() -> Iterator[None]:
    """Limit the fields of all messages that are read inside this context."""
    token = _fields_left.set([FIELDS_MAX])
    try:
        yield
    finally:
        _fields_left.reset(token)


def fields(body: bytes) -> Iterator[tuple[int, int, Value]]:
    """Yield number, wire type and raw value of every field, in order."""
    place, end = 0, len(body)
    left = _fields_left.get(None) or [FIELDS_MAX]
    while place < end:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyFields
        key, place = _varint(body, place)
        number, wire_type = key >> 3, key & 7
        value: Value
        if wire_type == VARINT:
            value, place = _varint(body, place)
        elif wire_type == LENGTH or wire_type in _FIXED:
            if wire_type == LENGTH:
                size, place = _varint(body, place)
            else:
                size = _FIXED[wire_type]
            if size > end - place:
                raise WireError(f"field {number} ends after the message")
            value, place = body[place : place + size], place + size
        else:
            raise WireError(f"field {number} has the unknown wire type {wire_type}")
        if not number:
            raise WireError("a field has no number")
        yield number, wire_type, value


def to_signed(value: int) -> int:
    """Return the signed number. Negative numbers are encoded as two's complement of 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _varint(body: bytes, place: int) -> tuple[int, int]:
    result = 0
    for count in range(_VARINT_BYTES_MAX):
        if place + count >= len(body):
            raise WireError("the message ends inside a number")
        byte = body[place + count]
        result |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return result, place + count + 1
    raise WireError("a number is longer than ten bytes")


# --- Messages and their fields


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND_NS = 1000


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    wire_type: int
    read: Callable[[Any], Any]
    repeated: bool = False
    optional: bool = False
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    fields: Mapping[int, Field]

    def read(self, body: bytes) -> JsonObject:
        """Return the JSON object. Unknown fields, which newer clients may send, are skipped."""
        result: JsonObject = {}
        for number, wire_type, value in fields(body):
            field = self.fields.get(number)
            if field is not None:
                _take(result, field, wire_type, value)
        return result


def text(name: str, *, optional: bool = False) -> Field:
    return Field(name, LENGTH, _text, optional=optional)


def texts(name: str) -> Field:
    return Field(name, LENGTH, _text, repeated=True)


def number(name: str, *, optional: bool = False) -> Field:
    return Field(name, VARINT, to_signed, optional=optional)


def flag(name: str, *, optional: bool = False) -> Field:
    return Field(name, VARINT, bool, optional=optional)


def time(name: str) -> Field:
    return Field(name, LENGTH, _time)


def micro_time(name: str) -> Field:
    return Field(name, LENGTH, _micro_time)


def json_text(name: str) -> Field:
    """A field whose message contains JSON, such as fieldsV1."""
    return Field(name, LENGTH, _json_text)


def one(name: str, message: Message, *, optional: bool = False) -> Field:
    return Field(name, LENGTH, message.read, optional=optional)


def many(name: str, message: Message) -> Field:
    return Field(name, LENGTH, message.read, repeated=True)


def text_map(name: str) -> Field:
    return Field(name, LENGTH, _entry_reader(text("value")), is_map=True)


def data_map(name: str) -> Field:
    """A map from names to bytes, which are base64 in JSON."""
    value = Field("value", LENGTH, lambda raw: base64.b64encode(raw).decode())
    return Field(name, LENGTH, _entry_reader(value), is_map=True)


def texts_map(name: str) -> Field:
    """A map from names to lists of texts. Each list is a message."""
    items = Message({1: texts("items")})
    value = Field("value", LENGTH, lambda raw: items.read(raw).get("items", []))
    return Field(name, LENGTH, _entry_reader(value), is_map=True)


def _take(result: JsonObject, field: Field, wire_type: int, value: Value) -> None:
    if wire_type != field.wire_type:
        raise WireError(f"{field.name} has the wire type {wire_type}")
    found = field.read(value)
    if field.is_map:
        result.setdefault(field.name, {}).update([found])
    elif field.repeated:
        result.setdefault(field.name, []).append(found)
    elif found or (field.optional and found is not None):
        result[field.name] = found
    else:
        result.pop(field.name, None)


def _entry_reader(value: Field) -> Callable[[bytes], tuple[str, Any]]:
    entry = Message({1: text("key"), 2: value})
    empty = value.read(b"")

    def read(raw: bytes) -> tuple[str, Any]:
        found = entry.read(raw)
        return found.get("key", ""), found.get("value", empty)

    return read


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError("a text is not UTF-8") from error


_TIME = Message({1: number("seconds"), 2: number("nanoseconds")})


def _moment(raw: bytes) -> datetime | None:
    """Return the time of a message, or None if it is empty."""
    if not raw:
        return None
    found = _TIME.read(raw)
    micros = found.get("nanoseconds", 0) // _MICROSECOND_NS
    try:
        return _EPOCH + timedelta(seconds=found.get("seconds", 0), microseconds=micros)
    except OverflowError as error:
        raise WireError("a time is out of range") from error


def _time(raw: bytes) -> str | None:
    moment = _moment(raw)
    return None if moment is None else f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _micro_time(raw: bytes) -> str | None:
    moment = _moment(raw)
    if moment is None:
        return None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


_JSON_TEXT = Message({1: Field("raw", LENGTH, bytes)})


def _json_text(raw: bytes) -> Any:
    inner = _JSON_TEXT.read(raw).get("raw", b"")
    try:
        return decode(inner) if inner else None
    except DecodeError as error:
        raise WireError(f"a field does not hold valid JSON: {error}") from error
