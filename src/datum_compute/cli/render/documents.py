"""The JSON documents of the command line, with the meaning of each field.

Each document is a Struct. Commands build it; JSON, docs/reference/cli-output.md and the contract
test derive from it. An optional field that is UNSET is omitted. Fields are only added: a field that
no longer applies stays, with an empty value. The events of changes and waits are in ``events.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import DateTime, doc
from datum_compute.cli.errors import UsageError

D = TypeVar("D", bound="OutputDocument")


class OutputDocument(msgspec.Struct, rename="camel"):
    """A JSON object that a command prints, with its fields in the order of the output."""


def to_document(value: OutputDocument) -> JsonObject:
    document: JsonObject = msgspec.to_builtins(value)
    return document


def extend_document(type_: type[D], value: OutputDocument, **fields: Any) -> D:
    """Return a document of another type with the fields of this one, and further ones."""
    return type_(**msgspec.structs.asdict(value), **fields)


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


class LogEntry(OutputDocument):
    """A line as ``logs -o json`` prints it."""

    time: Annotated[DateTime, doc("When it was written.")]
    instance: Annotated[str, doc("Name of the instance.")]
    container: Annotated[str, doc("Name of the container.")]
    stream: Annotated[str, doc("out or err.")]
    text: Annotated[str, doc("The line, without its end.")]


class CheckEntry(OutputDocument):
    check: Annotated[str, doc("What was checked.")]
    state: Annotated[str, doc("ok, warning, failed or skipped.")]
    text: Annotated[str, doc("Result of the check, for people.")]
    next: Annotated[str, doc("The next command to run; empty if there is no problem.")]
    cause: Annotated[
        JsonObject, doc("The root cause, with the fields of the event `blocked`; or empty.")
    ]
    as_of: Annotated[
        DateTime,
        doc(
            "Last heartbeat of a cell on which the result depends and that does not respond; "
            "empty if the result is current, or if there was no heartbeat."
        ),
    ]


class RevisionDocument(OutputDocument):
    """A revision as ``rollout show`` prints it."""

    revision: Annotated[int, doc("Number of the revision.")]
    name: Annotated[str, doc("Name of the revision on the command line.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]
    actor: Annotated[str, doc("User who made the change.")]
    restores: Annotated[int | None, doc("The revision that an undo restored, or null.")]
    cause: Annotated[str, doc("Change, or AutomaticRollback after a failed rollout.")]
    changes: Annotated[list[str], doc("Fields that change, one line each; secrets are masked.")]
    template_hash: Annotated[str, doc("Hash of the template.")]
    template: Annotated[JsonObject, doc("Template of the instances.")]
    placements: Annotated[list[JsonObject], doc("Placements as in the spec of the workload.")]
    images: Annotated[
        list[JsonObject], doc("Digest of the image of each container, once it is known.")
    ]


class RevisionEntry(RevisionDocument):
    active: Annotated[bool, doc("Whether it is the current revision.")]


class DifferenceEntry(OutputDocument):
    workload: Annotated[str, doc("Name of the workload.")]
    changes: Annotated[list[str], doc("Fields that change, one line each; secrets are masked.")]


class WaitingInstance(OutputDocument):
    instance: Annotated[str, doc("Name of the instance.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]


class CityQuota(OutputDocument):
    city: Annotated[str, doc("Code of the city.")]
    granted: Annotated[int, doc("Number of instances that have their quota.")]
    millicores: Annotated[int, doc("Thousandths of a CPU that these instances use.")]
    mebibytes: Annotated[int, doc("Memory that these instances use, in MiB.")]
    waiting_replicas: Annotated[
        int, doc("Number of desired instances without quota, created or not.")
    ]
    waiting: Annotated[list[WaitingInstance], doc("Instances to which quota was denied.")]


class QuotaSummary(OutputDocument):
    cities: Annotated[list[CityQuota], doc("Instances by city.")]


class DifferenceSummary(OutputDocument):
    differs: Annotated[bool, doc("Whether there is any difference.")]


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
# The fields of lists beside ``items``.
LIST_SUMMARIES: Mapping[str, type[OutputDocument]] = {
    "quota": QuotaSummary,
    "diff": DifferenceSummary,
}


# --- Parts of documents


class PlaceDocument(OutputDocument):
    city: Annotated[str, doc("Code of the city.")]
    placement: Annotated[str, doc("Name of the placement.")]
    rollout: Annotated[str, doc("Waiting, Updating, Done, Failed, Skipped or Removing.")]
    ready: Annotated[int, doc("Ready instances.")]
    available: Annotated[int, doc("Available instances.")]
    updated: Annotated[int, doc("Instances with the current template.")]
    replicas: Annotated[int, doc("Instances that exist.")]
    desired: Annotated[int, doc("Desired number of instances.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]


class PortDocument(OutputDocument):
    name: Annotated[str, doc("Name of the port.")]
    port: Annotated[int, doc("Number of the port.")]
    protocol: Annotated[str, doc("Protocol, such as TCP.")]


class VariableDocument(OutputDocument):
    name: Annotated[str, doc("Name of the environment variable.")]
    value: Annotated[str, doc("Value; masked without --show-values.")]


class ContainerDocument(OutputDocument):
    name: Annotated[str, doc("Name of the container.")]
    image: Annotated[str, doc("Image of the container.")]
    command: Annotated[list[str], doc("Command of the container.")]
    args: Annotated[list[str], doc("Arguments of the command.")]
    ports: Annotated[list[PortDocument], doc("Ports that the container listens on.")]
    env: Annotated[list[VariableDocument], doc("Environment variables.")]


class ContainerImage(OutputDocument):
    name: Annotated[str, doc("Name of the container.")]
    image: Annotated[str, doc("Image of the container.")]


class EndpointDocument(OutputDocument):
    city: Annotated[str, doc("Code of the city.")]
    url: Annotated[str, doc("Address of the published port.")]


class InstanceSummary(OutputDocument):
    name: Annotated[str, doc("Name of the instance.")]
    city: Annotated[str, doc("Code of the city.")]
    placement: Annotated[str, doc("Name of the placement.")]
    status: Annotated[str, doc("The state in one word.")]
    asleep: Annotated[bool, doc("Whether the instance sleeps; a connection wakes it.")]
    ready: Annotated[str, doc("Status of the Ready condition: True, False or Unknown.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    address: Annotated[str, doc("Address of the instance; empty before it has one.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]


class ConditionDocument(OutputDocument):
    type: Annotated[str, doc("Type of the condition.")]
    status: Annotated[str, doc("True, False or Unknown.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    since: Annotated[DateTime, doc("Last transition of the condition.")]


class WakeDocument(OutputDocument):
    at: Annotated[DateTime, doc("Time of the connection that woke the instance.")]
    mode: Annotated[str, doc("Mode in which the instance slept: pause or stop.")]
    milliseconds: Annotated[
        dict[str, int], doc("Duration of each step: queue, engine, ready, firstByte and total.")
    ]
    failure: Annotated[str, doc("Why the instance did not become ready in time; empty if it did.")]


class CauseDocument(OutputDocument):
    kind: Annotated[str, doc("Kind of the object.")]
    name: Annotated[str, doc("Name of the object.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    since: Annotated[DateTime, doc("Last transition of the condition.")]
    move: Annotated[
        str,
        doc("Who has to act: you, platform, wait (a change is in progress) or none (all is well)."),
    ]
    awaited: Annotated[str, doc("What the platform waits for.")]
    command: Annotated[str, doc("The next command to run.")]


class LinkDocument(OutputDocument):
    plane: Annotated[str, doc("The plane of the object.")]
    kind: Annotated[str, doc("Kind of the object.")]
    name: Annotated[str, doc("Name of the object.")]
    condition: Annotated[str, doc("Type of the condition.")]
    status: Annotated[str, doc("True, False or Unknown.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    since: Annotated[DateTime, doc("Last transition of the condition.")]
    move: Annotated[
        str,
        doc("Who has to act: you, platform, wait (a change is in progress) or none (all is well)."),
    ]
    awaited: Annotated[str, doc("What the platform waits for.")]
    command: Annotated[str, doc("The next command to run.")]


# --- Documents of one object


class StatusDocument(OutputDocument):
    name: Annotated[str, doc("Name of the workload.")]
    place: Annotated[str, doc("The project, with the namespace if it is not default.")]
    uid: Annotated[str, doc("Unique id of the workload.")]
    created_at: Annotated[DateTime | None, doc("When it was created.")]
    generation: Annotated[int, doc("Generation of the workload.")]
    observed_generation: Annotated[
        int, doc("Generation of the workload that the status reports on.")
    ]
    health: Annotated[str, doc("Available, Degraded, Unavailable, Unknown or Terminating.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    revision: Annotated[int, doc("Number of the current revision; 0 if it is unknown.")]
    rollout_done: Annotated[bool, doc("Whether the rollout is done in all cities.")]
    containers: Annotated[list[ContainerImage], doc("Containers of the template.")]
    endpoints: Annotated[list[EndpointDocument], doc("Published ports.")]
    cities: Annotated[list[PlaceDocument], doc("Placements in their cities, with counts.")]
    removing: Annotated[list[PlaceDocument], doc("Cities whose instances are being removed.")]
    instances: Annotated[list[InstanceSummary], doc("Instances of the workload.")]


class WorkloadDescription(WorkloadEntry):
    place: Annotated[str, doc("The project, with the namespace if it is not default.")]
    revision: Annotated[int, doc("Number of the current revision; 0 if it is unknown.")]
    rollout_done: Annotated[bool, doc("Whether the rollout is done in all cities.")]
    placements: Annotated[list[PlaceDocument], doc("Placements in their cities, with counts.")]
    removing: Annotated[list[PlaceDocument], doc("Cities whose instances are being removed.")]
    containers: Annotated[list[ContainerDocument], doc("Containers of the template.")]


class InstanceDescription(InstanceEntry):
    cell: Annotated[str, doc("The cell that runs it.")]
    containers: Annotated[list[ContainerDocument], doc("Containers of the instance.")]
    conditions: Annotated[list[ConditionDocument], doc("Conditions of the instance.")]
    gates: Annotated[list[str], doc("Scheduling gates of the instance.")]
    last_wake: Annotated[WakeDocument | None, doc("The last wake from sleep; or null.")]
    crashes: Annotated[list[JsonObject], doc("Crash reports of the last day, the newest last.")]


class DeletedInstance(OutputDocument):
    name: Annotated[str, doc("Name of the instance.")]
    status: Annotated[str, doc("Always Gone.")]
    message: Annotated[str, doc("How the instance ended, for people.")]
    crashes: Annotated[list[JsonObject], doc("Crash reports of the last day, the newest last.")]


class ExplanationDocument(OutputDocument):
    links: Annotated[
        list[LinkDocument], doc("The chain from the requested object to the root cause.")
    ]
    cause: Annotated[LinkDocument, doc("The root cause: the last link.")]
    warnings: Annotated[list[str], doc("Other problems, such as a deprecated instance type.")]
    as_of: Annotated[
        DateTime,
        doc(
            "Last heartbeat of a cell on which the chain depends and that does not respond; "
            "empty if the chain is current, or if there was no heartbeat."
        ),
    ]
    plan: Annotated[list[str], doc("The next steps of the platform.")]
    plan_as_of: Annotated[
        DateTime, doc("Time of the report that the plan is based on; empty if it is current.")
    ]
    crashes: Annotated[list[JsonObject], doc("Crash reports of the last day, the newest last.")]
    earlier_crashes: Annotated[
        list[JsonObject], doc("Crash reports with earlier templates, the newest last.")
    ]


class AccessDocument(OutputDocument):
    service: Annotated[str, doc("The service.")]
    description: Annotated[str, doc("What the service does.")]
    project: Annotated[str, doc("The project.")]
    state: Annotated[str, doc("State of the access.")]
    message: Annotated[str, doc("The reason in a sentence, for people.")]
    requested_at: Annotated[DateTime, doc("When access was requested.")]
    entitlement: Annotated[JsonObject, doc("Status of the request for access.")]


class AddressDocument(OutputDocument):
    workload: Annotated[str, doc("Name of the workload.")]
    url: Annotated[str, doc("The first address.")]
    urls: Annotated[list[str], doc("All addresses.")]


class VersionDocument(OutputDocument):
    version: Annotated[str, doc("The version.")]


class JoinTokenDocument(OutputDocument):
    token: Annotated[str, doc("The token, with which one cell can join once.")]
    hub: Annotated[str, doc("Address of the hub.")]
    expires: Annotated[DateTime, doc("When the token expires.")]
    authority: Annotated[str, doc("Certificate authority of the hub in PEM; empty if none is set.")]


class PlaneStatus(OutputDocument):
    name: Annotated[str, doc("Name of the plane.")]
    health: Annotated[str, doc("Health in one word.")]
    detail: Annotated[str, doc("Details of the health, for people.")]


class DriverStatus(OutputDocument):
    cells: Annotated[list[str], doc("Cells with this driver.")]
    driver: Annotated[str, doc("Name of the driver: simulated, containers or pods.")]
    why: Annotated[str, doc("Why this driver was chosen.")]
    engine: Annotated[str | None, doc("Address of the container engine, or null.")]
    answers: Annotated[bool, doc("Whether the container engine responds.")]
    words: Annotated[str, doc("Version of the container engine, or its error.")]
    without_init: Annotated[int, doc("Number of instances without an init process.")]


class PlatformStatus(OutputDocument):
    running: Annotated[bool, doc("Whether the platform runs.")]
    ready: Annotated[bool, doc("Whether all planes respond.")]
    url: Annotated[str | None, doc("Address of the platform; null if it does not run.")]
    pid: Annotated[int | None, doc("Process id of the platform; null if it does not run.")]
    state_dir: Annotated[str, doc("Directory with the data of the platform.")]
    version: Annotated[str | None, doc("Version of the platform; null if it is unknown.")]
    planes: Annotated[list[PlaneStatus], doc("Planes of the platform.")]
    drivers: Annotated[list[DriverStatus], doc("Drivers of the cells.")]


# What ``-o json`` prints, by command.
DOCUMENTS: Mapping[str, type[OutputDocument]] = {
    "status": StatusDocument,
    "workloads describe": WorkloadDescription,
    "instances describe": InstanceDescription,
    "explain": ExplanationDocument,
    "access status": AccessDocument,
    "open": AddressDocument,
    "version": VersionDocument,
    "rollout show": RevisionDocument,
    "logs": LogEntry,
    "cell token": JoinTokenDocument,
    "local status": PlatformStatus,
}


# --- Errors


class ErrorFields(OutputDocument):
    code: Annotated[int, doc("Exit code of the command.")]
    reason: Annotated[str, doc("The reason in one word, for programs.")]
    message: Annotated[str, doc("The error in a sentence, for people.")]
    field: Annotated[str, doc("Path of the invalid field; empty if there is none.")]
    hint: Annotated[str, doc("What to do next, with a command; or empty.")]
    retryable: Annotated[bool, doc("Whether the same command may succeed later.")]
    request_id: Annotated[
        str, doc("Identifies the request in the audit log of the platform; or empty.")
    ]


class ErrorDocument(OutputDocument):
    """What a failed command prints on stderr with ``-o json``."""

    error: Annotated[ErrorFields, doc("The error.")]


def error_document(error: UsageError) -> ErrorDocument:
    fields = ErrorFields(
        code=error.exit_code,
        reason=error.reason,
        message=error.message,
        field=error.field,
        hint=error.hint,
        retryable=error.retryable,
        request_id=error.request_id,
    )
    return ErrorDocument(fields)
