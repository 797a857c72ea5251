"""Event (core): something that happened to an object. Kept for an hour after it last happened.

The store keeps every event in this form; ``eventsv1.py`` is another view of the same objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import DateTime, MicroTime, ObjectReference
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Selectable

REFERENCE_FIELDS = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)


# The reason of the event that tells of a deployment which was deleted while its cell was silent.
DELETION_UNCONFIRMED = "DeletionUnconfirmed"


class EventSource(ApiStruct, frozen=True, kw_only=True):
    component: str = ""
    host: str = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    count: int = 0
    last_observed_time: MicroTime | None = None


class Event(ApiObject, frozen=True, kw_only=True):
    """Event (core): something that happened to an object. Kept for an hour after it last
    happened.
    """

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: DateTime | None = None
    last_timestamp: DateTime | None = None
    count: int | None = None
    type: str = ""
    event_time: MicroTime | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


EVENT = KindInfo(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    model=Event,
    has_status=False,
    built_in=True,
    needs_version=False,
    put_creates=True,
    has_generation=False,
    short_names=("ev",),
    selectable=(
        *(Selectable(f"involvedObject.{f}", f".involvedObject.{f}") for f in REFERENCE_FIELDS),
        Selectable("reason", ".reason"),
        Selectable("reportingComponent", ".reportingComponent"),
        Selectable("source", ".source.component,.reportingComponent"),
        Selectable("type", ".type"),
    ),
    columns=(
        Column(
            "Last Seen",
            ".series.lastObservedTime,.lastTimestamp,.firstTimestamp,.eventTime",
            "date",
        ),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".involvedObject", "object"),
        Column("Source", ".source.component,.reportingComponent", wide=True),
        Column("Message", ".message"),
        Column("Count", ".series.count,.count", "integer", wide=True),
    ),
)


# --- Event (events.k8s.io): the newer words for the events of the core group, the same objects
# ``RENAMED`` says which field of this view is which field of the stored form.


RENAMED: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


class EventV1(ApiObject, frozen=True, kw_only=True):
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
    deprecated_first_timestamp: DateTime | None = None
    deprecated_last_timestamp: DateTime | None = None
    deprecated_count: int | None = None


EVENTS_V1 = KindInfo(
    group="events.k8s.io",
    version="v1",
    kind="Event",
    plural="events",
    model=EventV1,
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
