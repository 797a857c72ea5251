"""The lifecycle of a CustomResourceDefinition: names accepted, established, terminating, removed.

The server sets the status in the same write that makes it true: a kind is served from the commit
that sets Established. A definition is removed only when no object of its kind is left and none is
being created; a controller deletes the objects.
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
from datum_compute.server.encoding import responses
from datum_compute.server.verbs.metadata import order_metadata
from datum_compute.store.journal import ObjectKey

# The reason of a conflict, by the field that names the kind.
_SINGLE_NAMES = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}
_NO_NAMES = {"plural": "", "kind": ""}
_ESTABLISHED = (TRUE, "InitialNamesAccepted", "the initial names have been accepted")
_NOT_ESTABLISHED = (FALSE, "NotAccepted", "not all names are accepted")


def is_established(definition: JsonObject) -> bool:
    return condition_of(definition, ESTABLISHED) == TRUE


def condition_of(definition: JsonObject, kind: str) -> str:
    conditions = definition.get("status", {}).get("conditions", ())
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def with_status(
    context: ServerContext,
    registry: ResourceRegistry,
    definition: JsonObject,
    old: JsonObject | None,
) -> JsonObject:
    """Return the definition with the status that is true when this write is committed. Callers can
    only remove storedVersions, after they have migrated the objects."""
    metadata, status = definition["metadata"], (old or {}).get("status", {})
    if "deletionTimestamp" in metadata:
        return definition
    names, now = definition["spec"]["names"], timestamp(context.clock())
    conflict = _find_conflict(registry, definition)
    accepted = status.get("acceptedNames", _NO_NAMES) if conflict else names
    result = (FALSE, *conflict) if conflict else (TRUE, "NoConflicts", "no conflicts found")
    conditions = _set_condition(status.get("conditions", []), NAMES_ACCEPTED, *result, now=now)
    established = _ESTABLISHED if accepted["kind"] else _NOT_ESTABLISHED
    return {
        **definition,
        "metadata": _with_finalizer(metadata),
        "status": {
            "conditions": _set_condition(conditions, ESTABLISHED, *established, now=now),
            "acceptedNames": accepted,
            "storedVersions": _stored_versions(definition),
        },
    }


def _with_finalizer(metadata: JsonObject) -> JsonObject:
    finalizers = metadata.get("finalizers", [])
    if CLEANUP_FINALIZER in finalizers:
        return metadata
    return order_metadata({**metadata, "finalizers": [*finalizers, CLEANUP_FINALIZER]})


def with_terminating_condition(definition: JsonObject, now: float) -> JsonObject:
    status = definition.get("status", {})
    result = (TRUE, "InstanceDeletionInProgress", "objects of the kind are being deleted")
    conditions = status.get("conditions", [])
    conditions = _set_condition(conditions, TERMINATING, *result, now=timestamp(now))
    return {**definition, "status": {**status, "conditions": conditions}}


def check_accepts(context: ServerContext, plane: PlaneName, kind: KindInfo[Any]) -> None:
    """Raise MethodNotAllowed while the definition of a custom kind is being deleted."""
    record = context.store.get(plane, ObjectKey(DEFINITION.storage, "", kind.resource))
    if record is not None and record.terminating:
        raise MethodNotAllowed(
            f"create not allowed while the custom resource definition of {kind.resource} is "
            "terminating"
        )


def check_empty(context: ServerContext, plane: PlaneName, resource: str) -> None:
    """Raise Conflict while objects of the kind exist or are being created."""
    left = len(context.store.snapshot(plane, resource).records)
    if left or any(key.resource == resource for key in context.store.pending_creates(plane)):
        why = f"{left or 'some'} objects of the kind still exist; delete them first"
        raise responses.conflict(DEFINITION, resource, why)


def _find_conflict(registry: ResourceRegistry, definition: JsonObject) -> tuple[str, str] | None:
    """Return the reason and the message if a name is reserved already; None otherwise."""
    group, own = definition["spec"]["group"], definition["metadata"]["name"]
    resources, type_names = _reserved_names(registry, group, own)
    names = definition["spec"]["names"]
    for field, reason in _SINGLE_NAMES.items():
        reserved = type_names if field in ("kind", "listKind") else resources
        if names[field] in reserved:
            return reason, f'"{names[field]}" is already in use'
    for short in names.get("shortNames", ()):
        if short in resources:
            return "ShortNamesConflict", f'"{short}" is already in use'
    return None


def _reserved_names(registry: ResourceRegistry, group: str, own: str) -> tuple[set[str], set[str]]:
    """Return the names of resources and of types that other kinds of the group have."""
    resources: set[str] = set()
    type_names: set[str] = set()
    for kind in registry.kinds():
        if kind.group == group and not kind.defined:
            resources |= {kind.plural, kind.singular, *kind.short_names}
            type_names |= {kind.kind, kind.list_kind}
    for names in registry.accepted:
        if names.group == group and names.definition != own:
            resources |= names.resources
            type_names |= names.kinds
    return resources, type_names


def _stored_versions(definition: JsonObject) -> list[str]:
    """Return all versions in which objects may be stored, a new one last."""
    stored: list[str] = definition.get("status", {}).get("storedVersions", [])
    current = [v["name"] for v in definition["spec"]["versions"] if v["storage"]]
    return [*stored, *(name for name in current if name not in stored)]


def _set_condition(
    conditions: list[JsonObject], kind: str, status: str, reason: str, message: str, *, now: str
) -> list[JsonObject]:
    """Add or replace a condition. Its transition time changes only with its status."""
    old = next((c for c in conditions if c["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == status else now
    new = {
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    if old is None:
        return [*conditions, new]
    return [new if c["type"] == kind else c for c in conditions]
