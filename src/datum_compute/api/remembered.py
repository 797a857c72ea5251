"""What pure functions made of JSON values that come again: the spec of all replicas of a template.

Looking at the bytes of a value costs a fiftieth of walking through it. The value itself is never
kept, only its bytes, so nobody can change what is remembered; equal bytes are equal values. Few and
small values are kept, and all are forgotten when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import orjson

V = TypeVar("V")

VALUES_MAX = 32
VALUE_BYTES_MAX = 8 * 1024


def key_of(value: Any) -> bytes:
    """The bytes under which something is remembered; empty for what is not worth it."""
    try:
        key = orjson.dumps(value)
    except orjson.JSONEncodeError:  # numbers and texts that JSON has no bytes for
        return b""
    return key if len(key) <= VALUE_BYTES_MAX else b""


class Remembered(Generic[V]):
    """Values by key. A key is empty when there is none to be kept."""

    def __init__(self) -> None:
        self._known: dict[bytes, V] = {}

    def recalled(self, value: Any, make: Callable[[Any], V]) -> V:
        """What ``make`` makes of a value, made once for equal values."""
        key = key_of(value)
        known = self._known.get(key)
        if known is None:
            known = make(value)
            self.put(key, known)
        return known

    def get(self, key: bytes) -> V | None:
        return self._known.get(key)

    def put(self, key: bytes, value: V) -> None:
        if not key:
            return
        if len(self._known) >= VALUES_MAX:
            self._known.clear()
        self._known[key] = value
