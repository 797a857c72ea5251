"""Copies of instances: from their cell to the hub, and from the hub to their project.

- Copying to the hub is level-triggered: the cell creates missing copies and deletes copies whose
  instance no longer exists. No queue of pending writes is stored, so a crash loses nothing, and
  nothing on the cell waits for the hub.
- A copy names its cell and the uid of its instance. When another instance takes the name, the old
  copy is deleted before the new one is created, on the hub and in the project. So the age of a
  copy is about its instance, also if the hub was away when the instance was replaced.
- A copy is owned by the deployment on the same plane. Without that deployment no copy is created.
  A deployment of another workload does not count: it may have the name of an earlier one.
- A copy in a project whose cell is unreachable has Unknown conditions.

Quarantine of Instances on the hub that belong to no replica slot of a deployment:

- A copy is quarantined if its labels name no project, a project other than that of its hub
  namespace, or a deployment that the project does not have. It is also quarantined if its name is
  not ``<deployment>-<ordinal>``.
- There is a grace period, because the writers of the labels may restore them. After that the copy
  is marked with the reason, the time and a fingerprint of its labels. The fingerprint ensures that
  it is reported only once.
- A quarantined copy is never deleted. When its labels change, the marks are removed and the copy is
  checked again immediately.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import PROGRAMMED, READY, Instance
from datum_compute.api.conditions import FALSE, Reason
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta.objects import owner_reference, ref_of
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    decode_project_label,
    deployment_of,
    member_name,
)
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    is_waiting,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.federation.unreachable import UnreachableCell, mark_instance_unknown
from datum_compute.planning.initial_status import should_defer
from datum_compute.planning.plan import Delete, Patch, Plan, Wait, drop_finalizer
from datum_compute.planning.rollout.slots import is_slot_name
from datum_compute.planning.workload.names import is_same_workload, labeled_workload

Problem = tuple[str, str]  # reason and message

# ---- Copies

OWNER_RECHECK_S = 5.0

_IDENTITY = (labels.UPSTREAM_NAMESPACE, labels.UPSTREAM_CLUSTER)


def plan_hub_copy(
    cell: PlaneName,
    instance: Instance,
    hub_deployment: WorkloadDeployment | None,
    copy: Instance | None,
) -> Plan:
    """Plan the hub's copy of an instance.

    The copy is owned by the hub's deployment. Without that deployment no copy is created, so that
    the hub does not get a copy again after it has deleted the deployment.
    """
    if instance.is_terminating:
        # Earlier releases added this finalizer.
        released = drop_finalizer(cell, INSTANCE, instance, labels.INSTANCE_FINALIZER)
        if released:
            return Plan(tuple(released))
    if hub_deployment is None or hub_deployment.is_terminating:
        # The process of the cell may observe the cell's deployment before the hub's deployment.
        return Plan(requeue_after_s=OWNER_RECHECK_S)
    if not _is_instance_of(instance, hub_deployment):
        wait = Wait("the hub's deployment of this name belongs to another workload")
        return Plan((wait,), OWNER_RECHECK_S)
    known = hub_deployment.metadata.labels
    identity = {label: known[label] for label in _IDENTITY if label in known}
    if len(identity) < len(_IDENTITY):
        # The labels were edited. The federator restores them, which starts another reconcile.
        return Plan((Wait("the labels of the hub's deployment name no project"),), OWNER_RECHECK_S)
    identity[labels.CELL] = member_name(cell)
    if (
        copy is not None
        and not copy.is_terminating
        and _is_copy_of_other_instance(copy, cell, instance)
    ):
        uid, reason = copy.metadata.uid, "another instance has its name"
        delete = Delete(HUB, INSTANCE, ref_of(copy), uid, reason, copy.metadata.resource_version)
        return Plan(
            (delete, Wait("an earlier copy is being removed")), requeue_after_s=OWNER_RECHECK_S
        )
    mark = Marks(identity, {labels.COPY_OF: _source(cell, instance)})
    return _plan_copy(HUB, instance, hub_deployment, copy, mark)


def should_publish(instance: Instance, now: str) -> bool:
    """Return False for a new instance without a decided gate or a machine status.

    Its copy is created together with its first status, which saves a write.
    """
    conditions = instance.status.conditions
    due = [c for c in conditions if c.type == PROGRAMMED and c.reason != Reason.PENDING]
    due += [c for c in conditions if c.status == FALSE and c.type != READY]
    return instance.is_terminating or not should_defer(instance, due, now)


def source_cells(copy: Instance) -> list[str]:
    """Return the cells that a copy on the hub names: one, unless the copy was edited.

    The last one takes precedence. It is from the annotation, the other one from the label.
    """
    metadata = copy.metadata
    annotated = metadata.annotations.get(labels.COPY_OF, "").rpartition("/")[0]
    return [n for n in dict.fromkeys((metadata.labels.get(labels.CELL, ""), annotated)) if n]


def _source(cell: PlaneName, instance: Instance) -> str:
    return f"{member_name(cell)}/{instance.metadata.uid}"


def _is_copy_of_other_instance(copy: Instance, cell: PlaneName, instance: Instance) -> bool:
    """Return True if the copy is of an earlier instance of this cell with the same name.

    A copy without the annotation is patched instead.
    """
    named, uid = _named_source_of(copy)
    return named == member_name(cell) and uid != instance.metadata.uid


def _names_other_uid(copy: Instance, hub_instance: Instance) -> bool:
    """Return True if the project's copy and the hub's copy are of two instances.

    A copy without the annotation is patched instead.
    """
    uid, hub_uid = _named_source_of(copy)[1], _named_source_of(hub_instance)[1]
    return bool(uid and hub_uid) and uid != hub_uid


def _named_source_of(copy: Instance) -> tuple[str, str]:
    """Return the cell and the uid of the instance that a copy names; empty if it names none."""
    cell, _, uid = copy.metadata.annotations.get(labels.COPY_OF, "").rpartition("/")
    return cell, uid


def plan_hub_copy_deletion(cell: PlaneName, copy: Instance | None) -> Plan:
    """Plan the deletion of a hub copy whose cell does not have the instance."""
    if copy is None or source_cells(copy)[-1:] != [member_name(cell)]:
        return Plan()
    reason = f"{member_name(cell)} has no such instance"
    return Plan(tuple(plan_copy_deletion(HUB, INSTANCE, copy, reason, unchanged=True)))


@dataclass(frozen=True, slots=True)
class PublishCopy:
    """Create or update the project's copy of the hub instance."""

    hub_instance: Instance
    deployment: WorkloadDeployment


@dataclass(frozen=True, slots=True)
class DeleteCopy:
    """Delete the project's copy."""


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Leave the project's copy as it is, until the labels of the hub instance are restored."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Quarantine the hub instance. When it is quarantined, delete the project's copy."""

    hub_instance: Instance
    problem: Problem


@dataclass(frozen=True, slots=True)
class ReleaseFromQuarantine:
    hub_instance: Instance


CopyDecision = PublishCopy | DeleteCopy | KeepCopy | Quarantine | ReleaseFromQuarantine


def decide_project_copy(
    project: PlaneName,
    namespace: str,
    hub_instance: Instance | None,
    deployment: WorkloadDeployment | None,
    *,
    is_identified: bool,
) -> CopyDecision:
    """Decide what happens to the project's copy of a hub instance.

    ``is_identified`` is True if the labels of the hub instance name this project and namespace.
    ``deployment`` is the project's deployment that the hub instance names.
    """
    if hub_instance is None:
        return DeleteCopy()
    if not is_identified:
        return DeleteCopy() if is_quarantined(hub_instance) else KeepCopy()
    problem = slot_name_problem(hub_instance)
    if problem is not None:
        return Quarantine(hub_instance, problem)
    if deployment is None or not _is_instance_of(hub_instance, deployment):
        name = deployment_of(hub_instance.metadata.name, hub_instance.metadata.labels)
        return Quarantine(hub_instance, deployment_problem(member_name(project), namespace, name))
    if quarantine_reason(hub_instance) == NO_DEPLOYMENT:
        return ReleaseFromQuarantine(hub_instance)
    return PublishCopy(hub_instance, deployment)


def plan_project_copy(
    project: PlaneName,
    namespace: str,
    hub_instance: Instance,
    deployment: WorkloadDeployment | None,
    copy: Instance | None,
    unreachable: UnreachableCell | None,
    now: str,
) -> Plan:
    """Plan the project's copy of a hub instance.

    ``deployment`` is the project's deployment that the hub instance names; it owns the copy.
    ``unreachable`` is set if the cell of the instance is unreachable.
    """
    if hub_instance.is_terminating:
        return plan_project_copy_deletion(project, copy)
    if deployment is None or deployment.is_terminating:
        return Plan((Wait("the project has no such deployment"),), requeue_after_s=OWNER_RECHECK_S)
    if copy is not None and not copy.is_terminating and _names_other_uid(copy, hub_instance):
        uid, reason = copy.metadata.uid, "another instance has its name"
        delete = Delete(
            project, INSTANCE, ref_of(copy), uid, reason, copy.metadata.resource_version
        )
        return Plan((delete, Wait("an earlier copy is being removed")), OWNER_RECHECK_S)
    metadata = msgspec.structs.replace(hub_instance.metadata, namespace=namespace)
    status = hub_instance.status
    if unreachable is not None:
        current = copy.status if copy is not None else status
        status = mark_instance_unknown(status, current, unreachable, now)
    source = msgspec.structs.replace(hub_instance, metadata=metadata, status=status)
    return _plan_copy(project, source, deployment, copy, Marks())


def plan_project_copy_deletion(project: PlaneName, copy: Instance | None) -> Plan:
    return Plan(tuple(plan_copy_deletion(project, INSTANCE, copy, "it was deleted in its city")))


def _is_instance_of(instance: Instance, deployment: WorkloadDeployment) -> bool:
    """Return True if instance and deployment are of the same workload."""
    return is_same_workload(labeled_workload(instance), deployment.spec.workload_ref.uid)


def _annotations_to_copy(source: Instance) -> dict[str, str]:
    """Return all annotations except the marks of a quarantine, which are about the copy itself."""
    annotations = source.metadata.annotations
    return {key: note for key, note in annotations.items() if key not in labels.QUARANTINE}


def _plan_copy(
    plane: PlaneName,
    source: Instance,
    owner: WorkloadDeployment,
    copy: Instance | None,
    mark: Marks,
) -> Plan:
    if copy is not None and not is_same_workload(labeled_workload(copy), labeled_workload(source)):
        removal = plan_copy_deletion(plane, INSTANCE, copy, "its name has another workload now")
        wait = Wait("a copy of an instance of another workload is being removed")
        return Plan((*removal, wait), requeue_after_s=OWNER_RECHECK_S)
    desired = desired_copy(
        source,
        source.metadata.namespace,
        carry=Marks(source.metadata.labels, _annotations_to_copy(source)),
        mark=mark,
        owner=owner_reference(owner, DEPLOYMENT),
    )
    actions = plan_mirror(plane, INSTANCE, desired, copy, "as on the cell", with_status=True)
    return Plan(tuple(actions), requeue_after_s=OWNER_RECHECK_S if is_waiting(actions) else None)


# ---- Quarantine

# Time for other controllers to restore the labels of a copy.
GRACE_S = 60.0
# Upper limit of the delay after a missed event.
RECHECK_S = 60.0

NO_IDENTITY = "IdentityMissing"
BAD_IDENTITY = "IdentityUndecodable"
NO_DEPLOYMENT = "DeploymentNotFound"
FOREIGN_IDENTITY = "IdentityForeign"
NO_ORDINAL = "OrdinalInvalid"
REASONS = (NO_IDENTITY, BAD_IDENTITY, FOREIGN_IDENTITY, NO_ORDINAL, NO_DEPLOYMENT)

_FINGERPRINT_LABELS = (labels.UPSTREAM_CLUSTER, labels.UPSTREAM_NAMESPACE, labels.DEPLOYMENT_NAME)


def identity_fingerprint(instance: Instance) -> str:
    """Return a hash of the labels that name the project, the namespace and the deployment."""
    identity = "\0".join(instance.metadata.labels.get(label, "") for label in _FINGERPRINT_LABELS)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def identity_problem(instance: Instance, hub_namespace: Namespace | None) -> Problem | None:
    """Return what is wrong with the identity labels of a copy, or with its name.

    They must match the labels of its hub namespace, because labels of a copy can be edited.
    """
    own = instance.metadata.labels
    project, namespace = own.get(labels.UPSTREAM_CLUSTER), own.get(labels.UPSTREAM_NAMESPACE)
    if not project or not namespace:
        missing = labels.UPSTREAM_NAMESPACE if project else labels.UPSTREAM_CLUSTER
        return NO_IDENTITY, f"Label {missing} is missing, so its project is unknown"
    if decode_project_label(project) is None:
        return (
            BAD_IDENTITY,
            f"Label {labels.UPSTREAM_CLUSTER} is {project!r}, which names no project",
        )
    expected = hub_namespace.metadata.labels if hub_namespace is not None else own
    if _named_source(expected) != _named_source(own):
        name = instance.metadata.namespace
        return FOREIGN_IDENTITY, f"{project}/{namespace} is not the source of namespace {name}"
    return slot_name_problem(instance)


def slot_name_problem(instance: Instance) -> Problem | None:
    """Return a problem if the name is not ``<deployment>-<ordinal>``."""
    name = instance.metadata.name
    deployment = deployment_of(name, instance.metadata.labels)
    if is_slot_name(deployment, name):
        return None
    return NO_ORDINAL, f"Name {name} does not end in an ordinal of deployment {deployment!r}"


def _named_source(identity: Mapping[str, str]) -> tuple[str | None, str]:
    project = decode_project_label(identity.get(labels.UPSTREAM_CLUSTER, ""))
    return project, identity.get(labels.UPSTREAM_NAMESPACE, "")


def deployment_problem(project: str, namespace: str, name: str) -> Problem:
    return NO_DEPLOYMENT, f"Project {project} has no WorkloadDeployment {namespace}/{name}"


def is_quarantined(instance: Instance) -> bool:
    """Return True if the copy was quarantined with its present identity labels."""
    recorded = instance.metadata.annotations.get(labels.QUARANTINE_FINGERPRINT)
    return recorded == identity_fingerprint(instance)


def quarantine_reason(instance: Instance) -> str:
    return instance.metadata.annotations.get(labels.QUARANTINE_REASON, "")


def plan_quarantine(instance: Instance, problem: Problem, waited_s: float, now: str) -> Plan:
    """Plan the marks of a quarantine. ``waited_s`` is the time since the problem was found."""
    if instance.is_terminating or is_quarantined(instance):
        return Plan(requeue_after_s=RECHECK_S)
    if waited_s < GRACE_S:
        return Plan(requeue_after_s=GRACE_S - waited_s)
    reason, message = problem
    marks = dict(
        zip(labels.QUARANTINE, (reason, message, identity_fingerprint(instance), now), strict=True)
    )
    return Plan((_patch_marks(instance, marks, reason),), requeue_after_s=RECHECK_S)


def plan_release_from_quarantine(instance: Instance) -> Plan:
    """Remove the marks of a copy that has no problem, or another problem than the marks state."""
    marked = [mark for mark in labels.QUARANTINE if mark in instance.metadata.annotations]
    if instance.is_terminating or not marked:
        return Plan()
    return Plan((_patch_marks(instance, dict.fromkeys(marked), "its identity labels changed"),))


def _patch_marks(instance: Instance, marks: dict[str, str] | dict[str, None], reason: str) -> Patch:
    metadata = {"resourceVersion": instance.metadata.resource_version, "annotations": marks}
    return Patch(HUB, INSTANCE, ref_of(instance), {"metadata": metadata}, reason)
