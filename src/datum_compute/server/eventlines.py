"""Selects the events of one watch, and their types, and encodes them as lines of JSON."""

from __future__ import annotations

from datum_compute.api.errors import ApiError, to_status
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.discovery.conversion import Conversion
from datum_compute.server.encoding.body import stamped
from datum_compute.server.encoding.representation import Representation
from datum_compute.server.encoding.selectors import Matches
from datum_compute.server.verbs.event_encoder import EventEncoder, event_line
from datum_compute.store.records import Record
from datum_compute.store.watch_log import StoreEvent

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class EventLines:
    """The lines of one watch: what it selects, in the form it asked for."""

    def __init__(
        self,
        shown: Representation,
        matches: Matches,
        conversion: Conversion,
        encoder: EventEncoder,
    ) -> None:
        self._shown = shown
        self._matches = matches
        self._body_of = conversion.body_of
        self._encoder = encoder
        self._form = encoder.form_number((shown.form_key, conversion))
        # The first object of each phase: kubectl drops the first of one that it watches by name.
        self._first_added = True
        self._first_change = True

    def added(self, record: Record) -> bytes:
        """Return the line of an object that existed before the watch began; an empty one if the
        object is not selected."""
        if not self._matches(record):
            return b""
        first, self._first_added = self._first_added, False
        return self._line(b"ADDED", record, record.version, first=first)

    def of(self, event: StoreEvent) -> bytes:
        """Return the line of a change; an empty one if it concerns no selected object. An object
        that a change moves out of the selection is DELETED as it was, at the version of the
        change."""
        before = event.previous is not None and self._matches(event.previous)
        now = not event.deleted and self._matches(event.record)
        match (before, now):
            case (False, True):
                event_type = b"ADDED"
            case (True, True):
                event_type = b"MODIFIED"
            case (True, False):
                event_type = b"DELETED"
            case _:
                return b""
        record = event.record if now or event.deleted else event.previous
        assert record is not None
        first, self._first_change = self._first_change, False
        return self._line(event_type, record, event.version, first=first)

    def bookmark(self, version: int, *, initial_events_end: bool = False) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(version)}
        if initial_events_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        return event_line(b"BOOKMARK", self._shown.bookmark(metadata))

    def _line(self, event_type: bytes, record: Record, version: int, *, first: bool) -> bytes:
        def encode_object() -> bytes:
            body = self._body_of(record)
            if record.version != version:  # the object has left the selection
                body = stamped(decode(body), version)
            return self._shown.event(body, first=first)

        form = (self._form, self._shown.event_variant(first=first))
        return self._encoder.line(record, version, event_type, form, encode_object)


def error_line(error: ApiError) -> bytes:
    return event_line(b"ERROR", encode(to_status(error)))
