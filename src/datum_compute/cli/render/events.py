"""The events that changes and waits print with ``-o json``, one per line, with their fields.

Each event is a Struct like the documents in ``documents.py``. The session adds ``schema``,
``event`` and ``at``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType

from datum_compute.api.meta.fields import doc
from datum_compute.cli.render.documents import (
    AccessDocument,
    CauseDocument,
    OutputDocument,
    PlaceDocument,
)


class PlanEvent(OutputDocument):
    """The changes; for a deploy and a scale also their effect on instances and quota."""

    workload: Annotated[str, doc("Name of the workload.")]
    place: Annotated[str, doc("The project, with the namespace if it is not default.")]
    action: Annotated[str, doc("created, updated, unchanged or deleted.")]
    changes: Annotated[list[str], doc("Fields that change, one line each; secrets are masked.")]
    removals: Annotated[list[str], doc("Fields or cities that would be removed.")]
    recreated: Annotated[
        list[str] | UnsetType,
        doc("Instances that would be replaced, in the order of each city."),
    ] = UNSET
    removed: Annotated[list[str] | UnsetType, doc("Instances that would be deleted.")] = UNSET
    created: Annotated[int | UnsetType, doc("Number of instances that would be created.")] = UNSET
    quota: Annotated[list[str] | UnsetType, doc("Quota usage after the change.")] = UNSET
    references: Annotated[
        list[str] | UnsetType, doc("ConfigMaps and Secrets, and whether they exist.")
    ] = UNSET
    images: Annotated[list[str] | UnsetType, doc("Results of the check of the images.")] = UNSET
    warnings: Annotated[list[str] | UnsetType, doc("Problems that do not prevent the change.")] = (
        UNSET
    )
    problems: Annotated[
        list[str] | UnsetType, doc("Problems that prevent instances from starting.")
    ] = UNSET


class UndoEvent(OutputDocument):
    """The revision that is being restored."""

    workload: Annotated[str, doc("Name of the workload.")]
    revision: Annotated[str, doc("Number of the revision.")]
    undo_with: Annotated[str, doc("The command that undoes the change.")]


class AppliedEvent(OutputDocument):
    """The change was written."""

    workload: Annotated[str, doc("Name of the workload.")]
    place: Annotated[str, doc("The project, with the namespace if it is not default.")]
    action: Annotated[str, doc("created, updated, unchanged or deleted.")]
    uid: Annotated[str, doc("Unique id of the workload.")]
    generation: Annotated[
        int | UnsetType, doc("Generation of the workload; not after a deletion.")
    ] = UNSET


class WaitingEvent(OutputDocument):
    """The platform has not observed the change yet."""

    generation: Annotated[int, doc("Generation of the workload.")]


class RowEvent(PlaceDocument):
    """Counts, phase or reason of a city changed."""


class BlockedEvent(CauseDocument):
    """No progress for a while: the cause, who has to act, and the next command."""

    explain: Annotated[str, doc("The command that explains the cause.")]


class SilentEvent(OutputDocument):
    """The platform does not respond; the request is retried."""

    message: Annotated[str, doc("The error in a sentence, for people.")]


class AnsweringEvent(OutputDocument):
    """The platform responds again."""


class RemovingEvent(OutputDocument):
    """Objects of a workload that are not deleted yet."""

    left: Annotated[list[str], doc("Objects that are not deleted yet.")]


class UnconfirmedEvent(OutputDocument):
    """The workload is deleted, but may still run on an unreachable cell."""

    message: Annotated[str, doc("The reason in a sentence, for people.")]


class PausedEvent(OutputDocument):
    """The rollout is paused, and waits to be resumed."""

    workload: Annotated[str, doc("Name of the workload.")]
    generation: Annotated[int, doc("Generation of the workload.")]
    elapsed_seconds: Annotated[float, doc("Duration of the wait.")]
    cities: Annotated[list[PlaceDocument], doc("Placements in their cities, with counts.")]
    removing: Annotated[list[PlaceDocument], doc("Cities whose instances are being removed.")]


class DoneEvent(PausedEvent):
    """The rollout is complete."""


class HaltedEvent(OutputDocument):
    """The instances of the workload are stopped."""

    workload: Annotated[str, doc("Name of the workload.")]
    generation: Annotated[int, doc("Generation of the workload.")]
    elapsed_seconds: Annotated[float, doc("Duration of the wait.")]
    instances: Annotated[int, doc("Number of instances that are kept.")]


class DeletedEvent(OutputDocument):
    """The workload is deleted."""

    workload: Annotated[str, doc("Name of the workload.")]
    place: Annotated[str, doc("The project, with the namespace if it is not default.")]
    uid: Annotated[str, doc("Unique id of the workload.")]


class AccessEvent(AccessDocument):
    """The access of the project, after a request."""


# The value of ``event`` for each event.
EVENTS: Mapping[type[OutputDocument], str] = {
    PlanEvent: "plan",
    UndoEvent: "undo",
    AppliedEvent: "applied",
    WaitingEvent: "waiting",
    RowEvent: "row",
    BlockedEvent: "blocked",
    SilentEvent: "silent",
    AnsweringEvent: "answering",
    RemovingEvent: "removing",
    UnconfirmedEvent: "unconfirmed",
    PausedEvent: "paused",
    DoneEvent: "done",
    HaltedEvent: "stopped",
    DeletedEvent: "done",
    AccessEvent: "access",
}
