"""Encodes each watch event once for all watches that show its object in the same form.

Many watches can select the same object. The first watch encodes the line of an event and caches it
for the others. The cache is limited in bytes and drops the oldest lines first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count

from datum_compute.store.records import Record

CACHE_BYTES_MAX = 8 * 1024 * 1024
# The cache has room for this many of the largest lines: a line with an object of the largest size
# (1.5 MiB) is shared, and does not drop all others.
LARGEST_LINES_MIN = 4
_FORMS_MAX = 1024

_Key = tuple[int, int, bytes, int, Hashable]


class EventEncoder:
    """``encoded`` counts encoded lines, ``shared`` lines from the cache."""

    def __init__(self, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._cache_bytes_max = cache_bytes_max
        self._forms: dict[Hashable, int] = {}
        self._numbers = count()
        # Each entry refers to its record, so that no other object gets the same ``id``.
        self._lines: dict[_Key, tuple[Record, bytes]] = {}
        self.cached_bytes = 0
        self.encoded = 0
        self.shared = 0

    def form_number(self, form: Hashable) -> int:
        """Return the number of a form. Watches with the same number share their lines."""
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
        """Return the line of an event. ``form`` is the number of the form and its variant."""
        key = (id(record), version, event_type, *form)
        known = self._lines.get(key)
        if known is not None:
            self.shared += 1
            return known[1]
        line = event_line(event_type, encode_object())
        self.encoded += 1
        if len(line) <= self._cache_bytes_max // LARGEST_LINES_MIN:
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
