"""What users are told when a plan has been carried out: one place, for every controller.

An action is planned only when something changes and succeeds for one writer only, so what is told
here is told once for each transition. Told on the planes that people look at (projects and cells),
about the kinds in ``_TELLING_CONDITION``; their reasons are listed in ``docs/reference/events.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datum_compute.api.codec import JsonObject, typed
from datum_compute.api.conditions import TRUE, Condition, find_condition
from datum_compute.api.corefields import ObjectReference
from datum_compute.api.event import DELETION_UNCONFIRMED
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta import ApiObject, KindInfo
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus
from datum_compute.runtime.event_mapping import AmbiguousMapping
from datum_compute.runtime.event_recorder import EventRequest, reference_to

_ROLES = frozenset({"project", "cell"})

# The condition that sums up how an object of the kind is.
_TELLING_CONDITION = {
    WORKLOAD.kind: "Available",
    DEPLOYMENT.kind: "Available",
    INSTANCE.kind: "Ready",
}

# On its way out, because somebody wants that.
REMOVAL_REASONS = ("Stopping", "Removing")

# Not there yet, and nothing wrong with that.
NORMAL_PROGRESS_REASONS = frozenset(
    {
        *("Pending", "PendingProgramming", "ProgrammingInProgress", "Starting"),
        *("InstancesProvisioning", "NetworkProvisioning", "SchedulingGatesPresent"),
        *("Resolving", "AwaitingPropagation", "NoAvailablePlacements", "NoAvailableDeployments"),
        *REMOVAL_REASONS,
    }
)

# Reasons of events that are no reasons of conditions, and what they mean.
EVENT_ONLY_REASONS = {
    "WorkloadDeploymentCreated": "Deployments for further cities were made for the Workload.",
    "WorkloadDeploymentRemoved": "Deployments of cities that are no longer asked for go.",
    "InstanceCreated": "Instances were made for the deployment.",
    "InstanceRemoved": "Instances of the deployment go, or give way to newer ones.",
    "AmbiguousOwner": "Warning: the object should lead to exactly one other, and leads to none or "
    "to several.",
    "OwnerRefInvalidNamespace": "Warning: an object without a namespace names an owner that is in "
    "one. That leads nowhere: the object is never collected.",
    "Quarantined": "Warning: a copy of an instance on the hub leads to no project or deployment. "
    "It stays where it is, and is tried again when its labels change.",
    "WakeFailed": "Warning: a connection came for a sleeping instance and was closed, because the "
    "instance did not serve in time.",
    "Deleted": "Nothing that belonged to the object is left, and neither is the object; said in a "
    "project of what cells that answer have.",
    DELETION_UNCONFIRMED: "Warning: the deployment was deleted while its cell did not answer. What "
    "runs there is stopped when the cell is back.",
}


def has_events(plane: PlaneName, kind: KindInfo[Any]) -> bool:
    return kind.kind in _TELLING_CONDITION and plane_role(plane) in _ROLES


def user_events(action: Action, observed: Any) -> Iterator[EventRequest]:
    """What a carried-out action means to users; ``observed`` is its object before, and of one that
    was created with its status the object that was made."""
    match action:
        case Create(plane, kind, obj) if has_events(plane, kind):
            yield from _about_owner(plane, obj, f"{kind.kind}Created", "Created")
            if observed:
                told = find_condition(observed.status.conditions, _TELLING_CONDITION[kind.kind])
                yield from _news(plane, kind, observed, None, told)
        case Delete(plane, kind, _, _, reason) if observed and has_events(plane, kind):
            yield from _about_owner(plane, observed, f"{kind.kind}Removed", "Removing", reason)
        case PatchStatus(plane, kind, _, _, status) if observed and has_events(plane, kind):
            yield from _transition(plane, kind, observed, status)
            yield from _failed_wake(plane, kind, observed, status)
        case Patch(plane, kind, _, patch, _, unconfirmed_warning) if observed and has_events(
            plane, kind
        ):
            about = reference_to(kind, observed)
            if unconfirmed_warning:
                yield EventRequest(
                    plane, about, "Warning", DELETION_UNCONFIRMED, unconfirmed_warning
                )
            elif _lets_go(observed, patch):
                where = " where cells answer" if plane_role(plane) == "project" else ""
                note = f"Nothing that belonged to it is left{where}"
                yield EventRequest(plane, about, "Normal", "Deleted", note)
        case _:
            return


def ambiguous_mapping_event(misled: AmbiguousMapping) -> EventRequest:
    """An object that should lead to exactly one other and does not: never in silence."""
    about = ObjectReference(
        api_version=misled.kind.api_version,
        kind=misled.kind.kind,
        namespace=misled.ref.namespace,
        name=misled.ref.name,
        uid=misled.uid,
    )
    return EventRequest(misled.plane, about, "Warning", "AmbiguousOwner", misled.message)


def _about_owner(
    plane: PlaneName, obj: ApiObject, reason: str, note: str, because: str = ""
) -> Iterator[EventRequest]:
    """Of this object, and of others of the same owner to whom the same happens."""
    for owner in obj.metadata.owner_references:
        if owner.controller and owner.kind in _TELLING_CONDITION:
            about = ObjectReference(
                api_version=owner.api_version,
                kind=owner.kind,
                namespace=obj.metadata.namespace,
                name=owner.name,
                uid=owner.uid,
            )
            yield EventRequest(plane, about, "Normal", reason, note, obj.metadata.name, because)


def _transition(
    plane: PlaneName, kind: KindInfo[Any], observed: Any, status: JsonObject
) -> Iterator[EventRequest]:
    type_ = _TELLING_CONDITION[kind.kind]
    written = status.get("conditions") or ()  # null: all of them go
    new = next((typed(c, Condition) for c in written if c["type"] == type_), None)
    yield from _news(plane, kind, observed, find_condition(observed.status.conditions, type_), new)


def _news(
    plane: PlaneName,
    kind: KindInfo[Any],
    obj: ApiObject,
    old: Condition | None,
    new: Condition | None,
) -> Iterator[EventRequest]:
    """It has become ready, has stopped being so, or something is in its way. Other words for the
    same, and the steps on the way there, are no news."""
    if new is None or (old is not None and old.reason == new.reason and old.status == new.status):
        return
    note, about = new.message or new.reason, reference_to(kind, obj)
    if new.status == TRUE:
        yield EventRequest(plane, about, "Normal", new.reason, note)
    elif not obj.is_terminating and (_was_so(old) or new.reason not in NORMAL_PROGRESS_REASONS):
        leaves = new.reason in REMOVAL_REASONS
        yield EventRequest(plane, about, "Normal" if leaves else "Warning", new.reason, note)


def _failed_wake(
    plane: PlaneName, kind: KindInfo[Any], observed: ApiObject, status: JsonObject
) -> Iterator[EventRequest]:
    """A connection came, and the instance did not serve it."""
    failure = (status.get("lastWake") or {}).get("failure")
    if failure:
        note = f"A connection waited in vain for it to wake: {failure}"
        yield EventRequest(plane, reference_to(kind, observed), "Warning", "WakeFailed", note)


def _was_so(old: Condition | None) -> bool:
    return old is not None and old.status == TRUE


def _lets_go(observed: ApiObject, patch: JsonObject) -> bool:
    """Whether the patch takes the last finalizer off an object that is being deleted."""
    metadata = patch.get("metadata", {})
    return observed.is_terminating and metadata.get("finalizers") == []
