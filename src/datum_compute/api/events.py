"""Events of the core group and of events.k8s.io.

Both kinds are views of the same objects. The store contains them in the form of the core group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import DateTime, MicroTime, ObjectReference, doc
from datum_compute.api.meta.objects import ApiObject, KindInfo, Selectable, TableColumn

REFERENCE_FIELDS = (
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
)


# Reason of the event for a deployment that was deleted while its cell was unreachable.
DELETION_UNCONFIRMED = "DeletionUnconfirmed"


class EventSource(ApiStruct, frozen=True, kw_only=True):
    """Component that reported the event."""

    component: Annotated[str, doc("Name of the component.")] = ""
    host: Annotated[str, doc("Name of the host of the component.")] = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    """Repeated occurrences of an event."""

    count: Annotated[int, doc("Number of occurrences.")] = 0
    last_observed_time: Annotated[MicroTime | None, doc("Time of the last occurrence.")] = None


class Event(ApiObject, frozen=True, kw_only=True):
    """An Event reports something that happened to an object. It is deleted an hour after its last
    occurrence.
    """

    involved_object: Annotated[ObjectReference, doc("Object that the event is about.")] = (
        ObjectReference()
    )
    reason: Annotated[str, doc("One-word cause of the event in CamelCase, for programs.")] = ""
    message: Annotated[str, doc("Description of the event, for people.")] = ""
    source: Annotated[EventSource, doc("Component that reported the event.")] = EventSource()
    first_timestamp: Annotated[DateTime | None, doc("Time of the first occurrence.")] = None
    last_timestamp: Annotated[DateTime | None, doc("Time of the last occurrence.")] = None
    count: Annotated[int | None, doc("Number of occurrences.")] = None
    type: Annotated[str, doc("Normal or Warning.")] = ""
    event_time: Annotated[
        MicroTime | None, doc("Time of the first occurrence, with microseconds.")
    ] = None
    series: Annotated[
        EventSeries | None, doc("Repeated occurrences. Unset if the event occurred once.")
    ] = None
    action: Annotated[str, doc("Action that was taken or failed, in CamelCase.")] = ""
    related: Annotated[ObjectReference | None, doc("Second object of the event.")] = None
    reporting_component: Annotated[
        str,
        doc(
            "Name of the controller that reported the event, such as "
            "compute.datumapis.com/workload."
        ),
    ] = ""
    reporting_instance: Annotated[str, doc("ID of the instance of that controller.")] = ""


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
        TableColumn(
            "Last Seen",
            ".series.lastObservedTime,.lastTimestamp,.firstTimestamp,.eventTime",
            "date",
        ),
        TableColumn("Type", ".type"),
        TableColumn("Reason", ".reason"),
        TableColumn("Object", ".involvedObject", "object"),
        TableColumn("Source", ".source.component,.reportingComponent", wide=True),
        TableColumn("Message", ".message"),
        TableColumn("Count", ".series.count,.count", "integer", wide=True),
    ),
)


# --- Event (events.k8s.io): the same objects with different field names
# ``RENAMED`` maps a field of this form to a field of the stored form.


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
    """An Event reports something that happened to an object. It is the same object as the Event of
    the core group, with different field names.
    """

    event_time: Annotated[
        MicroTime | None, doc("Time of the first occurrence, with microseconds.")
    ] = None
    series: Annotated[
        EventSeries | None, doc("Repeated occurrences. Unset if the event occurred once.")
    ] = None
    reporting_controller: Annotated[
        str,
        doc(
            "Name of the controller that reported the event, such as "
            "compute.datumapis.com/workload."
        ),
    ] = ""
    reporting_instance: Annotated[str, doc("ID of the instance of that controller.")] = ""
    action: Annotated[str, doc("Action that was taken or failed, in CamelCase.")] = ""
    reason: Annotated[str, doc("One-word cause of the event in CamelCase, for programs.")] = ""
    regarding: Annotated[ObjectReference, doc("Object that the event is about.")] = (
        ObjectReference()
    )
    related: Annotated[ObjectReference | None, doc("Second object of the event.")] = None
    note: Annotated[str, doc("Description of the event, for people.")] = ""
    type: Annotated[str, doc("Normal or Warning.")] = ""
    deprecated_source: Annotated[EventSource, doc("Source of an event of the core group.")] = (
        EventSource()
    )
    deprecated_first_timestamp: Annotated[
        DateTime | None, doc("First timestamp of an event of the core group.")
    ] = None
    deprecated_last_timestamp: Annotated[
        DateTime | None, doc("Last timestamp of an event of the core group.")
    ] = None
    deprecated_count: Annotated[int | None, doc("Count of an event of the core group.")] = None


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
        TableColumn(
            "Last Seen",
            ".series.lastObservedTime,.deprecatedLastTimestamp,.deprecatedFirstTimestamp,.eventTime",
            "date",
        ),
        TableColumn("Type", ".type"),
        TableColumn("Reason", ".reason"),
        TableColumn("Object", ".regarding", "object"),
        TableColumn("Message", ".note"),
    ),
)
