"""The life of a CustomResourceDefinition: names accepted, established, terminating, gone.

The server writes its whole status, in the same write that makes it true: a kind is served from the
moment its definition says Established. A definition goes only when no object of its kind is left
and none is on its way; deleting those is the work of a controller.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.apiextensions import (
    CLEANUP_FINALIZER,
    ESTABLISHED,
    NAMES_ACCEPTED,
    TERMINATING,
)
from datum_compute.api.conditions import FALSE, TRUE
from datum_compute.api.errors import MethodNotAllowed
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ResourceRegistry
from datum_compute.server.encoding import responses as problems
from datum_compute.server.verbs.metadata import ordered
from datum_compute.store.journal import ObjectKey

# Each name a definition asks for, and the word for its conflict.
_SINGLE_NAMES = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}
_NO_NAMES = {"plural": "", "kind": ""}
_ESTABLISHED = (TRUE, "InitialNamesAccepted", "the initial names have been accepted")
_NOT_ESTABLISHED = (FALSE, "NotAccepted", "not all names are accepted")


def is_definition(kind: KindInfo[Any]) -> bool:
    return (kind.plural, kind.group) == (DEFINITION.plural, DEFINITION.group)


def is_established(definition: JsonObject) -> bool:
    return condition_of(definition, ESTABLISHED) == TRUE


def condition_of(definition: JsonObject, kind: str) -> str:
    conditions = definition.get("status", {}).get("conditions", ())
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def with_status(
    context: ServerContext,
    catalogue: ResourceRegistry,
    definition: JsonObject,
    old: JsonObject | None,
) -> JsonObject:
    """The definition with the status that is true once this write lands. Callers have a say only
    in storedVersions: whoever has migrated objects may take old ones off."""
    metadata, status = definition["metadata"], (old or {}).get("status", {})
    if "deletionTimestamp" in metadata:
        return definition
    wanted, now = definition["spec"]["names"], timestamp(context.clock())
    conflict = _conflict(catalogue, definition)
    accepted = status.get("acceptedNames", _NO_NAMES) if conflict else wanted
    told = (FALSE, *conflict) if conflict else (TRUE, "NoConflicts", "no conflicts found")
    conditions = _with(status.get("conditions", []), NAMES_ACCEPTED, *told, now=now)
    established = _ESTABLISHED if accepted["kind"] else _NOT_ESTABLISHED
    return {
        **definition,
        "metadata": _with_finalizer(metadata),
        "status": {
            "conditions": _with(conditions, ESTABLISHED, *established, now=now),
            "acceptedNames": accepted,
            "storedVersions": _stored_versions(definition),
        },
    }


def _with_finalizer(metadata: JsonObject) -> JsonObject:
    finalizers = metadata.get("finalizers", [])
    if CLEANUP_FINALIZER in finalizers:
        return metadata
    return ordered({**metadata, "finalizers": [*finalizers, CLEANUP_FINALIZER]})


def terminating(definition: JsonObject, now: float) -> JsonObject:
    status = definition.get("status", {})
    told = (TRUE, "InstanceDeletionInProgress", "objects of the kind are being deleted")
    conditions = _with(status.get("conditions", []), TERMINATING, *told, now=timestamp(now))
    return {**definition, "status": {**status, "conditions": conditions}}


def check_accepts(context: ServerContext, plane: PlaneName, kind: KindInfo[Any]) -> None:
    """Raise unless objects of a custom kind may be created."""
    record = context.store.get(plane, ObjectKey(DEFINITION.storage, "", kind.resource))
    if record is not None and record.terminating:
        raise MethodNotAllowed(
            f"create not allowed while the custom resource definition of {kind.resource} is "
            "terminating"
        )


def check_empty(context: ServerContext, plane: PlaneName, resource: str) -> None:
    """Raise while an object of the kind is there or on its way."""
    left = len(context.store.snapshot(plane, resource).records)
    if left or context.in_flight_creates.any_of_resource(plane, resource):
        why = f"{left or 'some'} objects of the kind are still there; delete them first"
        raise problems.conflict(DEFINITION, resource, why)


def _conflict(catalogue: ResourceRegistry, definition: JsonObject) -> tuple[str, str] | None:
    """Why and in which words the names cannot be had; None if they can."""
    group, own = definition["spec"]["group"], definition["metadata"]["name"]
    resources, type_names = _taken(catalogue, group, own)
    names = definition["spec"]["names"]
    for field, reason in _SINGLE_NAMES.items():
        taken = type_names if field in ("kind", "listKind") else resources
        if names[field] in taken:
            return reason, f'"{names[field]}" is already in use'
    for short in names.get("shortNames", ()):
        if short in resources:
            return "ShortNamesConflict", f'"{short}" is already in use'
    return None


def _taken(catalogue: ResourceRegistry, group: str, own: str) -> tuple[set[str], set[str]]:
    """Names of resources and of types that others in the group have."""
    resources: set[str] = set()
    type_names: set[str] = set()
    for kind in catalogue.kinds():
        if kind.group == group and not kind.defined:
            resources |= {kind.plural, kind.singular, *kind.short_names}
            type_names |= {kind.kind, kind.list_kind}
    for names in catalogue.accepted:
        if names.group == group and names.definition != own:
            resources |= names.resources
            type_names |= names.kinds
    return resources, type_names


def _stored_versions(definition: JsonObject) -> list[str]:
    """Every version that was ever stored, the present one last if it is new."""
    known: list[str] = definition.get("status", {}).get("storedVersions", [])
    now = [v["name"] for v in definition["spec"]["versions"] if v["storage"]]
    return [*known, *(name for name in now if name not in known)]


def _with(
    conditions: list[JsonObject], kind: str, status: str, reason: str, message: str, *, now: str
) -> list[JsonObject]:
    """A condition added or replaced; its time moves only with its status."""
    before = next((c for c in conditions if c["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == status else now
    new = {
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    if before is None:
        return [*conditions, new]
    return [new if c["type"] == kind else c for c in conditions]
