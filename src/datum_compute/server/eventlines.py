"""Watch events as lines of JSON. Objects that are shown as they are stored are never decoded."""

from __future__ import annotations

from collections.abc import Callable

from datum_compute.api.codec import JsonObject, decode, encode
from datum_compute.api.errors import ApiError, to_status
from datum_compute.server.document import stamped
from datum_compute.server.representation import Representation
from datum_compute.server.selectors import Matches
from datum_compute.store.record import Record
from datum_compute.store.watchlog import StoreEvent

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class EventLines:
    """The lines of one watch: what it selects, in the form it asked for."""

    def __init__(
        self, shown: Representation, matches: Matches, body_of: Callable[[Record], bytes]
    ) -> None:
        self._shown = shown
        self._matches = matches
        self._body_of = body_of
        # The first object of each phase: kubectl drops the first of one that it watches by name.
        self._first_added = True
        self._first_change = True

    def added(self, record: Record) -> bytes | None:
        """An object that was there before the watch began."""
        if not self._matches(record):
            return None
        first, self._first_added = self._first_added, False
        return _line(b"ADDED", self._shown.event(self._body_of(record), first=first))

    def of(self, event: StoreEvent) -> bytes | None:
        """None for a change outside the selection. An object that a change moves out of the
        selection is DELETED as it was, at the version of the change."""
        before = event.previous is not None and self._matches(event.previous)
        now = not event.deleted and self._matches(event.record)
        match (before, now):
            case (False, True):
                return self._object(b"ADDED", self._body_of(event.record))
            case (True, True):
                return self._object(b"MODIFIED", self._body_of(event.record))
            case (True, False) if event.deleted:
                return self._object(b"DELETED", self._body_of(event.record))
            case (True, False):
                assert event.previous is not None
                last = stamped(decode(self._body_of(event.previous)), event.version)
                return self._object(b"DELETED", last)
            case _:
                return None

    def bookmark(self, version: int, *, initial_events_end: bool = False) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(version)}
        if initial_events_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        return _line(b"BOOKMARK", self._shown.bookmark(metadata))

    def _object(self, event_type: bytes, body: bytes) -> bytes:
        first, self._first_change = self._first_change, False
        return _line(event_type, self._shown.event(body, first=first))


def error_line(error: ApiError) -> bytes:
    return _line(b"ERROR", encode(to_status(error)))


def _line(event_type: bytes, body: bytes) -> bytes:
    return b'{"type":"' + event_type + b'","object":' + body + b"}\n"
