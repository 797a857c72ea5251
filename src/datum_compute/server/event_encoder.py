"""Encodes watch events, once for all watches that show an object in the same form.

A change of an object that many watches select is one event for each of them. The line of the first
one is kept and shared by the others, up to a number of bytes; the oldest lines are dropped first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count

from datum_compute.store.record import Record

CACHE_BYTES_MAX = 8 * 1024 * 1024
_FORMS_MAX = 1024

_Key = tuple[int, int, bytes, int, Hashable]


class EventEncoder:
    """``encoded`` and ``shared`` count the lines that were made and those that were reused."""

    def __init__(self, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._cache_bytes_max = cache_bytes_max
        self._forms: dict[Hashable, int] = {}
        self._numbers = count()
        # The records are kept as well: while they are, no other object has their id.
        self._lines: dict[_Key, tuple[Record, bytes]] = {}
        self.cached_bytes = 0
        self.encoded = 0
        self.shared = 0

    def form_number(self, form: Hashable) -> int:
        """The number of a form: watches with the same number share their lines."""
        number = self._forms.get(form)
        if number is None:
            if len(self._forms) >= _FORMS_MAX:
                self._forms.clear()
            number = self._forms[form] = next(self._numbers)
        return number

    def line(
        self,
        record: Record,
        version: int,
        event_type: bytes,
        form: tuple[int, Hashable],
        encode_object: Callable[[], bytes],
    ) -> bytes:
        """One event with its object. ``form`` is the number of the form and its variant."""
        key = (id(record), version, event_type, *form)
        known = self._lines.get(key)
        if known is not None:
            self.shared += 1
            return known[1]
        line = event_line(event_type, encode_object())
        self.encoded += 1
        if len(line) <= self._cache_bytes_max // 8:
            self._lines[key] = (record, line)
            self.cached_bytes += len(line)
            while self.cached_bytes > self._cache_bytes_max:
                self._drop_oldest()
        return line

    def _drop_oldest(self) -> None:
        _, line = self._lines.pop(next(iter(self._lines)))
        self.cached_bytes -= len(line)


def event_line(event_type: bytes, body: bytes) -> bytes:
    return b'{"type":"' + event_type + b'","object":' + body + b"}\n"
