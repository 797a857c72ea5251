"""The protobuf encoding: a message is a row of numbered fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
    """Number, wire type and raw value of every field, in the order they were written."""
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


def signed(value: int) -> int:
    """Negative numbers are written as 64 bits in two's complement."""
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
