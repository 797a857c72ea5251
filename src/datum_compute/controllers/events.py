"""Events for users about the actions of a plan, for every controller.

Each transition is reported once, because an action is planned only for a change and succeeds for
only one writer. Events are recorded on projects and cells, about the kinds in
``_SUMMARY_CONDITION``. Their reasons are listed in ``docs/reference/events.md``.

In a project, an event about a WorkloadDeployment or an Instance has the Workload as related object.
An event about an Instance is also recorded about the Workload, because ``kubectl events --for``
selects by the object of the event and not by the related one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.workload import CityRollout, Workload
from datum_compute.api.conditions import TRUE, Condition, Reason, find_condition
from datum_compute.api.events import DELETION_UNCONFIRMED
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import ApiObject, KindInfo
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus
from datum_compute.planning.rollout.suspension import halt_reason
from datum_compute.runtime.event_mapping import AmbiguousMapping
from datum_compute.runtime.event_recorder import EventRequest, reference_to

_ROLES = frozenset({"project", "cell"})

# The condition that summarizes the state of an object of the kind.
_SUMMARY_CONDITION = {
    WORKLOAD.kind: "Available",
    DEPLOYMENT.kind: "Available",
    INSTANCE.kind: "Ready",
}

# Reasons of an object that is deleted on request.
REMOVAL_REASONS = ("Stopping", "Removing")

# Reasons of a normal start or deletion, which cause no warning.
NORMAL_PROGRESS_REASONS = frozenset(
    {
        *("Pending", "PendingProgramming", "ProgrammingInProgress", "Starting"),
        *("InstancesProvisioning", "NetworkProvisioning", "SchedulingGatesPresent"),
        *("Resolving", "AwaitingPropagation", "NoAvailablePlacements", "NoAvailableDeployments"),
        *REMOVAL_REASONS,
    }
)

# Reasons of events that are not reasons of conditions, and their meaning.
EVENT_ONLY_REASONS = {
    "WorkloadDeploymentCreated": "Deployments for more cities were created for the Workload.",
    "WorkloadDeploymentRemoved": "Deployments of cities that the Workload no longer names are "
    "deleted.",
    "InstanceCreated": "Instances were created for the deployment.",
    "InstanceRemoved": "Instances of the deployment are deleted or replaced.",
    "AmbiguousOwner": "Warning: the object must map to exactly one other object, and maps to none "
    "or to several.",
    "OwnerRefInvalidNamespace": "Warning: an object without a namespace has an owner reference "
    "to a namespaced object. It is never garbage collected.",
    "Quarantined": "Warning: a copy of an instance on the hub matches no project or deployment. "
    "It is kept, and is checked again when its labels change.",
    "WakeFailed": "Warning: a connection to a sleeping instance was closed, because the instance "
    "was not ready in time.",
    "Scaled": "The number of instances of the Workload changed in a city.",
    "CityRollingOut": "A city gets the new template of the Workload.",
    "CityDone": "A city has completed the rollout of the new template.",
    "CityFailed": "Warning: the rollout of the Workload exceeded its progress deadline in a city.",
    "CitySkipped": "Warning: a city cannot be updated now; the rollout continues in the next city.",
    "RolledBack": "Warning: a rollout failed, and all cities return to an earlier revision.",
    "Terminating": "The object is being deleted.",
    "Deleted": "The object and everything that belonged to it are deleted. In a project this is "
    "confirmed for reachable cells.",
    DELETION_UNCONFIRMED: "Warning: the deployment was deleted while its cell was unreachable. Its "
    "instances there are stopped when the cell reconnects.",
}


def has_events(plane: PlaneName, kind: KindInfo[Any]) -> bool:
    return kind.kind in _SUMMARY_CONDITION and plane_role(plane) in _ROLES


def user_events(action: Action, observed: Any) -> Iterator[EventRequest]:
    """Return the events of a completed action.

    ``observed`` is the object before the action. For a create with status it is the created object.
    """
    subject = action.object if isinstance(action, Create) else observed
    for event in _events_of(action, observed):
        yield from _add_workload(event, subject)


def _events_of(action: Action, observed: Any) -> Iterator[EventRequest]:
    match action:
        case Create(plane, kind, obj) if has_events(plane, kind):
            yield from _owner_events(plane, obj, f"{kind.kind}Created", "Created")
            if observed:
                summary = find_condition(observed.status.conditions, _SUMMARY_CONDITION[kind.kind])
                yield from _condition_events(plane, kind, observed, None, summary)
        case Delete(plane, kind, _, _, reason) if observed and has_events(plane, kind):
            yield from _owner_events(plane, observed, f"{kind.kind}Removed", "Removing", reason)
        case PatchStatus(plane, kind, _, _, status) if observed and has_events(plane, kind):
            yield from _status_events(plane, kind, observed, status)
            yield from _wake_events(plane, kind, observed, status)
            yield from _rollout_events(plane, observed, status)
        case Patch(plane, _, _, {"spec": {"scaleSettings": {"minReplicas": int(replicas)}}}) if (
            isinstance(observed, WorkloadDeployment) and plane_role(plane) == "project"
        ):
            yield from _scale_events(plane, observed, replicas)
        case Patch(plane, kind, _, patch, _, unconfirmed_warning) if observed and has_events(
            plane, kind
        ):
            about = reference_to(kind, observed)
            if unconfirmed_warning:
                yield EventRequest(
                    plane, about, "Warning", DELETION_UNCONFIRMED, unconfirmed_warning
                )
            elif _removes_last_finalizer(observed, patch):
                scope = " on reachable cells" if plane_role(plane) == "project" else ""
                message = f"Everything that belonged to it is deleted{scope}"
                yield EventRequest(plane, about, "Normal", "Deleted", message)
        case _:
            return


def ambiguous_mapping_event(mapping: AmbiguousMapping) -> EventRequest:
    """Return the warning event of an object that must map to exactly one other and does not."""
    about = ObjectReference(
        api_version=mapping.kind.api_version,
        kind=mapping.kind.kind,
        namespace=mapping.ref.namespace,
        name=mapping.ref.name,
        uid=mapping.uid,
    )
    return EventRequest(mapping.plane, about, "Warning", "AmbiguousOwner", mapping.message)


def _owner_events(
    plane: PlaneName, obj: ApiObject, reason: str, message: str, cause: str = ""
) -> Iterator[EventRequest]:
    """Return an event about the controller owner of the object.

    The recorder combines equal events about several objects of the owner.
    """
    owner = _controller_of(obj)
    if owner is not None and owner.kind in _SUMMARY_CONDITION:
        yield EventRequest(plane, owner, "Normal", reason, message, obj.metadata.name, cause)


def _status_events(
    plane: PlaneName, kind: KindInfo[Any], observed: Any, status: JsonObject
) -> Iterator[EventRequest]:
    type_ = _SUMMARY_CONDITION[kind.kind]
    written = status.get("conditions") or ()  # null removes all conditions
    new = next((from_json(c, Condition) for c in written if c["type"] == type_), None)
    yield from _condition_events(
        plane, kind, observed, find_condition(observed.status.conditions, type_), new
    )


def _condition_events(
    plane: PlaneName,
    kind: KindInfo[Any],
    obj: ApiObject,
    old: Condition | None,
    new: Condition | None,
) -> Iterator[EventRequest]:
    """Return the event if the object became ready, is no longer ready, or is blocked.

    A new message for the same reason, and the steps of a normal start, cause no event.
    """
    if new is None or (old is not None and old.reason == new.reason and old.status == new.status):
        return
    message, about = new.message or new.reason, reference_to(kind, obj)
    if obj.is_terminating:
        if new.reason in REMOVAL_REASONS and (old is None or old.reason not in REMOVAL_REASONS):
            yield EventRequest(plane, about, "Normal", "Terminating", message)
    elif new.status == TRUE:
        yield EventRequest(plane, about, "Normal", new.reason, message)
    elif _was_true(old) or new.reason not in NORMAL_PROGRESS_REASONS:
        is_requested = new.reason in REMOVAL_REASONS or _is_stopped_by_user(obj, new.reason)
        type_: Literal["Normal", "Warning"] = "Normal" if is_requested else "Warning"
        yield EventRequest(plane, about, type_, new.reason, message)


def _is_stopped_by_user(obj: ApiObject, reason: str) -> bool:
    """Return False if the program of an instance has ended by itself, which has the same reason."""
    if reason != Reason.STOPPED:
        return False
    if isinstance(obj, Workload):
        return obj.spec.stopped
    if isinstance(obj, WorkloadDeployment):
        return halt_reason(obj.spec) == reason
    return isinstance(obj, Instance) and halt_reason(obj.spec.controller) == reason


_CITY_EVENTS: Mapping[str, tuple[Literal["Normal", "Warning"], str, str]] = {
    "RollingOut": ("Normal", "CityRollingOut", "gets the new template"),
    "Done": ("Normal", "CityDone", "has completed the rollout"),
    "Failed": ("Warning", "CityFailed", "failed"),
    "Skipped": ("Warning", "CitySkipped", "cannot be updated now"),
}


def _rollout_events(plane: PlaneName, observed: Any, status: JsonObject) -> Iterator[EventRequest]:
    """Return an event for each city whose state changed, and for a new rollback.

    The first rollout, and a workload in one city, cause no event for a city.
    """
    if not isinstance(observed, Workload) or not isinstance(status.get("rollout"), dict):
        return
    about, before = reference_to(WORKLOAD, observed), observed.status.rollout
    patch = status["rollout"]
    cities = [from_json(city, CityRollout) for city in patch.get("cities") or ()]
    states = {(city.placement, city.city): city.state for city in before.cities}
    if before.completed_template_hash and len(cities) > 1:
        for city in cities:
            if city.state not in _CITY_EVENTS or city.state == states.get(
                (city.placement, city.city), "RollingOut"
            ):
                continue
            type_, reason, what = _CITY_EVENTS[city.state]
            cause = f": {city.reason}: {city.message}" if city.reason else ""
            yield EventRequest(plane, about, type_, reason, f"{city.city} {what}{cause}")
    if patch.get("failedRevision"):
        failed = patch["failedRevision"]
        restored = patch.get("runningRevision", before.running_revision)
        message = f"Revision {failed} failed; all cities return to revision {restored}"
        yield EventRequest(plane, about, "Warning", "RolledBack", message)


def _scale_events(
    plane: PlaneName, deployment: WorkloadDeployment, replicas: int
) -> Iterator[EventRequest]:
    """Return an event about the Workload. The recorder combines the cities with equal changes."""
    before, workload = deployment.spec.scale_settings.min_replicas, _workload_of(deployment)
    if workload is not None and replicas != before:
        message = f"Scaled from {before} to {replicas} instances:"
        city = deployment.spec.city_code
        yield EventRequest(plane, workload, "Normal", "Scaled", message, member=city)


def _add_workload(event: EventRequest, subject: ApiObject | None) -> Iterator[EventRequest]:
    """Return the event with its Workload, and for an Instance also as an event of the Workload.

    The recorder combines the events of several Instances.
    """
    workload = _workload_of(subject) if subject and plane_role(event.plane) == "project" else None
    if workload is None or subject is None or event.object.kind == WORKLOAD.kind:
        yield event
        return
    yield replace(event, related=workload)
    if event.member:  # created or removed
        yield replace(event, object=workload, related=event.object)
    elif event.object.kind == INSTANCE.kind:
        yield replace(
            event,
            object=workload,
            related=_controller_of(subject),
            message=event.reason,
            member=subject.metadata.name,
            cause=event.message,
        )


def _workload_of(obj: ApiObject) -> ObjectReference | None:
    """Return the Workload that the labels of a WorkloadDeployment or an Instance name."""
    own = obj.metadata.labels
    name, uid = own.get(labels.WORKLOAD_NAME), own.get(labels.WORKLOAD_UID)
    if not name or not uid:
        return None
    return ObjectReference(
        api_version=WORKLOAD.api_version,
        kind=WORKLOAD.kind,
        namespace=obj.metadata.namespace,
        name=name,
        uid=uid,
    )


def _controller_of(obj: ApiObject) -> ObjectReference | None:
    for owner in obj.metadata.owner_references:
        if owner.controller:
            return ObjectReference(
                api_version=owner.api_version,
                kind=owner.kind,
                namespace=obj.metadata.namespace,
                name=owner.name,
                uid=owner.uid,
            )
    return None


def _wake_events(
    plane: PlaneName, kind: KindInfo[Any], observed: ApiObject, status: JsonObject
) -> Iterator[EventRequest]:
    """Return an event if the instance did not wake for a connection in time."""
    failure = (status.get("lastWake") or {}).get("failure")
    if failure:
        message = f"The instance did not wake for a connection: {failure}"
        yield EventRequest(plane, reference_to(kind, observed), "Warning", "WakeFailed", message)


def _was_true(old: Condition | None) -> bool:
    return old is not None and old.status == TRUE


def _removes_last_finalizer(observed: ApiObject, patch: JsonObject) -> bool:
    """Return True if the patch removes the last finalizer of a terminating object."""
    metadata = patch.get("metadata", {})
    return observed.is_terminating and metadata.get("finalizers") == []
