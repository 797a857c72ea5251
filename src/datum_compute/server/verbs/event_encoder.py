"""Encodes each watch event once for all watches that show its object in the same form.

Many watches can select the same object. The first watch encodes the line of an event and caches it
for the others. The cache is limited in bytes and drops the oldest lines first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count

from datum_compute.api.errors import ApiError, to_status
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.discovery.resources import StorageConversion
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.server.encoding.representation import Representation
from datum_compute.server.encoding.selectors import Matches
from datum_compute.store.records import Record
from datum_compute.store.watch_log import StoreEvent

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


# --- Selects the events of one watch, and their types, and encodes them as lines of JSON


_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEventEncoder:
    """Encodes the events of one watch: those of selected objects, in the representation that it
    requested."""

    def __init__(
        self,
        representation: Representation,
        matches: Matches,
        conversion: StorageConversion,
        encoder: EventEncoder,
    ) -> None:
        self._representation = representation
        self._matches = matches
        self._encode_served = conversion.encode_served
        self._encoder = encoder
        self._form = encoder.form_number((representation.form_key, conversion))
        # kubectl drops the first object of each phase if it watches one object by name.
        self._first_added = True
        self._first_change = True

    def encode_existing(self, record: Record) -> bytes:
        """Return the line of an object that existed before the watch began; an empty one if the
        object is not selected."""
        if not self._matches(record):
            return b""
        first, self._first_added = self._first_added, False
        return self._line(b"ADDED", record, record.version, first=first)

    def encode_change(self, event: StoreEvent) -> bytes:
        """Return the line of a change; an empty one if it concerns no selected object. An object
        that a change moves out of the selection is DELETED as it was, at the version of the
        change."""
        was_selected = event.previous is not None and self._matches(event.previous)
        is_selected = not event.deleted and self._matches(event.record)
        match (was_selected, is_selected):
            case (False, True):
                event_type = b"ADDED"
            case (True, True):
                event_type = b"MODIFIED"
            case (True, False):
                event_type = b"DELETED"
            case _:
                return b""
        record = event.record if is_selected or event.deleted else event.previous
        assert record is not None
        first, self._first_change = self._first_change, False
        return self._line(event_type, record, event.version, first=first)

    def encode_bookmark(self, version: int, *, initial_events_end: bool = False) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(version)}
        if initial_events_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        return event_line(b"BOOKMARK", self._representation.encode_bookmark(metadata))

    def _line(self, event_type: bytes, record: Record, version: int, *, first: bool) -> bytes:
        def encode_object() -> bytes:
            body = self._encode_served(record)
            if record.version != version:  # the object has left the selection
                body = encode_at_version(decode(body), version)
            return self._representation.encode_event(body, first=first)

        form = (self._form, self._representation.event_variant(first=first))
        return self._encoder.line(record, version, event_type, form, encode_object)


def error_line(error: ApiError) -> bytes:
    return event_line(b"ERROR", encode(to_status(error)))
