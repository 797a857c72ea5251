"""The JSON documents and events of the command line, with the meaning of each field.

Each entry of a list is a Struct: commands build it, and JSON, docs/reference/cli-output.md and the
contract test derive from it. Documents and events are described by the names of their fields.
Fields are only added. A field that no longer applies stays, with an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import DateTime, doc


class OutputDocument(msgspec.Struct, rename="camel"):
    """A JSON object that a command prints, with its fields in the order of the output."""


def to_document(value: OutputDocument) -> JsonObject:
    document: JsonObject = msgspec.to_builtins(value)
    return document


class WorkloadEntry(OutputDocument):
    name: Annotated[str, doc("Name of the workload.")]
    namespace: Annotated[str, doc("Namespace of the workload.")]
    uid: Annotated[str, doc("Unique id of the workload.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]
    generation: Annotated[int, doc("Generation of the workload.")]
    observed_generation: Annotated[
        int, doc("Generation of the workload that the status reports on.")
    ]
    health: Annotated[str, doc("Available, Degraded, Unavailable, Unknown or Terminating.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    ready: Annotated[int, doc("Ready instances.")]
    updated: Annotated[int, doc("Instances with the current template.")]
    replicas: Annotated[int, doc("Instances that exist.")]
    desired: Annotated[int, doc("Desired number of instances.")]
    cities: Annotated[list[str], doc("City codes of the placements.")]
    images: Annotated[list[str], doc("Images of the containers.")]
    instance_type: Annotated[str, doc("Size of the instances.")]


class InstanceEntry(OutputDocument):
    name: Annotated[str, doc("Name of the instance.")]
    namespace: Annotated[str, doc("Namespace of the instance.")]
    uid: Annotated[str, doc("Unique id of the instance.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]
    workload: Annotated[str, doc("Name of the workload.")]
    city: Annotated[str, doc("Code of the city.")]
    placement: Annotated[str, doc("Name of the placement.")]
    address: Annotated[str, doc("Address of the instance; empty before it has one.")]
    status: Annotated[str, doc("The state in one word.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    instance_type: Annotated[str, doc("Size of the instance.")]
    images: Annotated[list[str], doc("Images of the containers.")]


class InstanceUsage(OutputDocument):
    name: Annotated[str, doc("Name of the instance.")]
    city: Annotated[str, doc("Code of the city.")]
    cpu_millicores: Annotated[int | None, doc("CPU usage; null if it is unknown.")]
    memory_mebibytes: Annotated[int | None, doc("Memory usage; null if it is unknown.")]
    memory_limit_mebibytes: Annotated[int | None, doc("Memory limit; null if it is unknown.")]
    asleep: Annotated[bool, doc("Whether the instance sleeps; a connection wakes it.")]


class CellEntry(OutputDocument):
    name: Annotated[str, doc("Name of the cell.")]
    city: Annotated[str, doc("Code of the city.")]
    status: Annotated[str, doc("The state in one word, and why the cell accepts no new work.")]
    version: Annotated[str, doc("Version of the API server of the cell.")]
    endpoint: Annotated[str, doc("Address of the API of the cell.")]
    last_heartbeat: Annotated[
        DateTime | None, doc("Last heartbeat of the cell; null if there was none.")
    ]
    allocatable: Annotated[dict[str, str], doc("Capacity of the cell by resource.")]
    allocated: Annotated[dict[str, str], doc("Capacity of the cell that is used, by resource.")]
    instances: Annotated[
        int | None, doc("Number of instances; null if the user may not list them.")
    ]


class CityEntry(OutputDocument):
    city: Annotated[str, doc("Code of the city.")]
    name: Annotated[str, doc("Name of the LocationBinding.")]
    display_name: Annotated[str, doc("Display name.")]
    available: Annotated[str, doc("Whether workloads can run there: True, False or Unknown.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]


class InstanceTypeEntry(OutputDocument):
    name: Annotated[str, doc("Name of the instance type.")]
    cpu: Annotated[int | str, doc("CPUs, such as 500m.")]
    memory: Annotated[int | str, doc("Memory, such as 2Gi.")]
    phase: Annotated[str, doc("Active, Deprecated or Disabled.")]
    replacement: Annotated[str, doc("The instance type to use instead.")]
    display_name: Annotated[str, doc("Display name.")]


class QuotaEntry(OutputDocument):
    resource: Annotated[str, doc("Name of the resource, such as instances.")]
    resource_type: Annotated[str, doc("Full name of the resource.")]
    unit: Annotated[str, doc("Base unit of the numbers.")]
    limit: Annotated[int, doc("The limit, in base units.")]
    used: Annotated[int, doc("Amount that is used, in base units.")]
    available: Annotated[int, doc("Amount that is not used, in base units.")]
    claims: Annotated[int, doc("Claims that use it.")]


class EventEntry(OutputDocument):
    last_seen: Annotated[DateTime, doc("When it happened last.")]
    type: Annotated[str, doc("Normal or Warning.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    kind: Annotated[str, doc("Kind of the object.")]
    name: Annotated[str, doc("Name of the object.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    count: Annotated[int, doc("How often it happened.")]


class CheckEntry(OutputDocument):
    check: Annotated[str, doc("What was checked.")]
    state: Annotated[str, doc("ok, warning, failed or skipped.")]
    text: Annotated[str, doc("Result of the check, for people.")]
    next: Annotated[str, doc("The next command to run; empty if there is no problem.")]
    cause: Annotated[
        JsonObject, doc("The root cause, with the fields of the event `blocked`; or empty.")
    ]


class RevisionDocument(OutputDocument):
    """A revision as ``rollout show`` prints it."""

    revision: Annotated[int, doc("Number of the revision.")]
    name: Annotated[str, doc("Name of the revision on the command line.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]
    actor: Annotated[str, doc("User who made the change.")]
    restores: Annotated[int | None, doc("The revision that an undo restored, or null.")]
    changes: Annotated[list[str], doc("Fields that change, one line each; secrets are masked.")]
    template_hash: Annotated[str, doc("Hash of the template.")]
    template: Annotated[JsonObject, doc("Template of the instances.")]
    placements: Annotated[list[JsonObject], doc("Placements as in the spec of the workload.")]


class RevisionEntry(RevisionDocument):
    active: Annotated[bool, doc("Whether it is the current revision.")]


class DifferenceEntry(OutputDocument):
    workload: Annotated[str, doc("Name of the workload.")]
    changes: Annotated[list[str], doc("Fields that change, one line each; secrets are masked.")]


# The entries of ``items`` with ``-o json``, by command.
LISTS: Mapping[str, type[OutputDocument]] = {
    "workloads list": WorkloadEntry,
    "instances list": InstanceEntry,
    "instances top": InstanceUsage,
    "cell list": CellEntry,
    "cities": CityEntry,
    "instance-types": InstanceTypeEntry,
    "quota": QuotaEntry,
    "events": EventEntry,
    "doctor": CheckEntry,
    "rollout history": RevisionEntry,
    "diff": DifferenceEntry,
}

# Fields of the documents and events below: type and meaning.
FIELDS: Mapping[str, tuple[str, str]] = {
    "action": ("string", "created, updated, unchanged or deleted."),
    "address": ("string", "Address of the instance; empty before it has one."),
    "asleep": ("boolean", "Whether the instance sleeps; a connection wakes it."),
    "at": ("time", "When the event was printed."),
    "available": ("string or integer", "Amount that is not used, or whether it can be used."),
    "awaited": ("string", "What the platform waits for."),
    "cause": ("object", "The root cause: the last link."),
    "cell": ("string", "The cell that runs it."),
    "changes": ("list of strings", "Fields that change, one line each; secrets masked."),
    "cities": ("list", "City codes; in status and done with counts."),
    "city": ("string", "Code of the city."),
    "command": ("string or list", "The next command to run; for a container its command."),
    "condition": ("string", "Type of the condition."),
    "conditions": ("list", "Conditions: type, status, reason, message, since."),
    "containers": ("list", "Containers: name, image and more."),
    "created": ("integer", "Number of instances that would be created."),
    "crashes": ("list", "Crash reports of the last day, the newest last."),
    "earlierCrashes": ("list", "Crash reports with earlier templates, the newest last."),
    "createdAt": ("time", "When it was created."),
    "description": ("string", "What the service does."),
    "desired": ("integer", "Desired number of instances."),
    "differs": ("boolean", "Whether there is any difference."),
    "elapsedSeconds": ("number", "Duration of the wait."),
    "endpoints": ("list", "Published ports: city and url."),
    "entitlement": ("object", "Status of the request for access."),
    "event": ("string", "Type of the event."),
    "gates": ("list of strings", "Scheduling gates of the instance."),
    "generation": ("integer", "Generation of the workload."),
    "health": ("string", "Available, Degraded, Unavailable, Unknown or Terminating."),
    "images": ("list of strings", "Images of the containers; in a plan the result of their check."),
    "instanceType": ("string", "Size of the instances."),
    "instances": (
        "list or integer",
        "Instances: name, city, status and more; of a cell their number, or null.",
    ),
    "items": ("list", "One entry for each row."),
    "kind": ("string", "Kind of the object."),
    "lastWake": ("object", "The last wake from sleep: at, mode, milliseconds, failure; or null."),
    "left": ("list of strings", "Objects that are not deleted yet."),
    "links": ("list", "The chain from the requested object to the root cause."),
    "message": ("string", "The reason in a sentence, for people."),
    "move": (
        "string",
        "Who has to act: you, platform, wait (a change is in progress) or none (all is well).",
    ),
    "name": ("string", "Name of the object."),
    "namespace": ("string", "Namespace of the object."),
    "observedGeneration": ("integer", "Generation of the workload that the status reports on."),
    "plane": ("string", "The plane of the object."),
    "place": ("string", "The project, with the namespace if it is not default."),
    "placement": ("string", "Name of the placement."),
    "placements": ("list", "Placements in their cities, with counts; in revisions as in the spec."),
    "plan": ("list of strings", "The next steps of the platform."),
    "planAsOf": ("time", "Time of the report that the plan is based on; empty if it is current."),
    "problems": ("list of strings", "Problems that prevent instances from starting."),
    "project": ("string", "The project."),
    "quota": ("list of strings", "Quota usage after the change."),
    "ready": ("integer or string", "Ready instances; for an instance its Ready condition."),
    "reason": ("string", "The reason in one word, for programs."),
    "recreated": (
        "list of strings",
        "Instances that would be replaced, in the order of each city.",
    ),
    "references": ("list of strings", "ConfigMaps and Secrets, and whether they exist."),
    "removals": ("list of strings", "Fields or cities that would be removed."),
    "removed": ("list of strings", "Instances that would be deleted."),
    "removing": ("list", "Cities whose instances are being removed."),
    "replicas": ("integer", "Instances that exist."),
    "requestedAt": ("time", "When access was requested."),
    "revision": ("integer or string", "Number of the revision."),
    "rollout": ("string", "Waiting, Updating, Done or Removing."),
    "rolloutDone": ("boolean", "Whether the rollout is done in all cities."),
    "schema": ("string", "Version of the event format."),
    "service": ("string", "The service."),
    "since": ("time", "Last transition of the condition."),
    "state": ("string", "For a check ok, warning, failed or skipped; for access its state."),
    "status": ("string", "The state in one word; for a condition True, False or Unknown."),
    "type": ("string", "Normal or Warning; for a condition its type."),
    "uid": ("string", "Unique id of the object."),
    "undoWith": ("string", "The command that undoes the change."),
    "updated": ("integer", "Instances with the current template."),
    "url": ("string", "The first address."),
    "urls": ("list of strings", "All addresses."),
    "version": ("string", "The version."),
    "waiting": ("list", "Instances that wait for quota: city, instance, reason, message."),
    "warnings": ("list of strings", "Problems that do not prevent the change."),
    "workload": ("string", "Name of the workload."),
}

_PLACE = (
    *("city", "placement", "rollout", "ready", "updated", "replicas", "desired"),
    *("reason", "message"),
)
_CAUSE = ("kind", "name", "reason", "message", "since", "move", "awaited", "command")
_WORKLOAD = (
    *("name", "namespace", "uid", "createdAt", "generation", "observedGeneration", "health"),
    *(
        "reason",
        "message",
        "ready",
        "updated",
        "replicas",
        "desired",
        "cities",
        "images",
        "instanceType",
    ),
)
_INSTANCE = (
    *("name", "namespace", "uid", "createdAt", "workload", "city", "placement", "address"),
    *("status", "reason", "message", "instanceType", "images"),
)

# Fields of ``-o json``.
DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "status": (
        *("name", "place", "uid", "createdAt", "generation", "observedGeneration", "health"),
        *("reason", "message", "revision", "rolloutDone", "containers", "cities", "removing"),
        *("instances", "endpoints"),
    ),
    "workloads describe": (
        *_WORKLOAD,
        *("place", "revision", "rolloutDone", "placements", "removing", "containers"),
    ),
    "instances describe": (
        *(*_INSTANCE, "cell", "containers", "conditions", "gates", "lastWake", "crashes"),
    ),
    "explain": ("links", "cause", "plan", "planAsOf", "crashes", "earlierCrashes"),
    "access status": (
        *("service", "description", "project", "state", "message", "requestedAt", "entitlement"),
    ),
    "open": ("workload", "url", "urls"),
    "version": ("version",),
}
# Fields of the events that changes and waits print with ``-o json``, besides schema, event and at.
EVENTS: Mapping[str, tuple[str, ...]] = {
    "plan": ("workload", "place", "action", "changes", "removals"),
    "undo": ("workload", "revision", "undoWith"),
    "applied": ("workload", "place", "action", "uid"),
    "waiting": ("generation",),
    "row": _PLACE,
    "blocked": _CAUSE,
    "silent": ("message",),
    "answering": (),
    "removing": ("left",),
    "unconfirmed": ("message",),
    "paused": ("workload", "generation", "elapsedSeconds", "cities", "removing"),
    "done": ("workload",),
    "access": DOCUMENTS["access status"],
}
EVENT_MEANINGS: Mapping[str, str] = {
    "plan": "The changes; for a deploy also their effect on instances and quota.",
    "undo": "The revision that is being restored.",
    "applied": "The change was written.",
    "waiting": "The platform has not observed the change yet.",
    "row": "Counts, phase or reason of a city changed.",
    "blocked": "No progress for a while: the cause, who has to act, and the next command.",
    "silent": "The platform does not respond; the request is retried.",
    "answering": "The platform responds again.",
    "removing": "Objects of a workload that are not deleted yet.",
    "unconfirmed": "The workload is deleted, but may still run on an unreachable cell.",
    "paused": "The rollout is paused, and waits to be resumed.",
    "done": "The operation is complete.",
    "access": "The access of the project, after a request.",
}
