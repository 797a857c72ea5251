"""Event (events.k8s.io): the newer words for the events of the core group, the same objects.

``RENAMED`` says which field of this view is which field of the stored form.
"""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api.corefields import MicroTime, ObjectReference, Time
from datum_compute.api.events import EVENT, REFERENCE_FIELDS, EventSeries, EventSource
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Selectable

RENAMED: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


class Event(ApiObject, frozen=True, kw_only=True):
    """Event (events.k8s.io): the newer words for the events of the core group, the same objects."""

    event_time: MicroTime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""
    deprecated_source: EventSource = EventSource()
    deprecated_first_timestamp: Time | None = None
    deprecated_last_timestamp: Time | None = None
    deprecated_count: int | None = None


EVENTS_V1 = KindInfo(
    group="events.k8s.io",
    version="v1",
    kind="Event",
    plural="events",
    model=Event,
    has_status=False,
    built_in=True,
    needs_version=False,
    put_creates=True,
    has_generation=False,
    stored_as=EVENT.resource,
    short_names=("ev",),
    selectable=(
        *(Selectable(f"regarding.{f}", f".regarding.{f}") for f in REFERENCE_FIELDS),
        Selectable("reason", ".reason"),
        Selectable("reportingController", ".reportingController"),
        Selectable("source", ".deprecatedSource.component,.reportingController"),
        Selectable("type", ".type"),
    ),
    columns=(
        Column(
            "Last Seen",
            ".series.lastObservedTime,.deprecatedLastTimestamp,.deprecatedFirstTimestamp,.eventTime",
            "date",
        ),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".regarding", "object"),
        Column("Message", ".note"),
    ),
)
