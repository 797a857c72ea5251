"""Plan the status and metadata of Projects and Organizations.

``planes.lifecycle`` creates and deletes the plane of a project. The plans ensure this order:

- The finalizer is added before the plane is created, so that no plane is left without its project.
- Ready is True after the plane exists, and False when the project is being deleted.
- The finalizer is removed after the plane and its data are deleted.

An Organization owns its namespace and its projects; the garbage collector deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, set_conditions
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import NAMESPACE, ORGANIZATION, PROJECT
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import ObjectMeta, OwnerReference, owner_reference, ref_of
from datum_compute.api.planes import PLATFORM
from datum_compute.api.resourcemanager import (
    Organization,
    OrganizationStatus,
    Project,
    ProjectStatus,
)
from datum_compute.api.services import READY
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Create, Patch, Plan, Wait, drop_finalizer

CLEANUP = "ResourceCleanup"
# Interval of checks of a project that is being deleted. Deletions in its plane cause no event here.
CLEANUP_S = 0.5


def plan_project_metadata(project: Project, organization: Organization | None) -> Plan:
    """Add the finalizer, the owner reference and the label of the organization, if missing."""
    metadata, patch = project.metadata, dict[str, object]()
    if labels.PROJECT_FINALIZER not in metadata.finalizers:
        patch["finalizers"] = [*metadata.finalizers, labels.PROJECT_FINALIZER]
    owners = metadata.owner_references
    if organization is not None and all(o.uid != organization.metadata.uid for o in owners):
        patch["ownerReferences"] = to_json([*owners, _owner_reference(organization)])
    owner = project.spec.owner_ref.name
    if metadata.labels.get(labels.ORGANIZATION) != owner:
        patch["labels"] = {labels.ORGANIZATION: owner}
    if not patch:
        return Plan()
    merged: JsonObject = {"metadata": {"resourceVersion": metadata.resource_version, **patch}}
    return Plan((Patch(PLATFORM, PROJECT, ref_of(project), merged, "finalizer and owner"),))


def plan_ready(project: Project, now: str) -> Plan:
    """Report that the plane exists."""
    return _plan_status(
        project, {READY: ConditionValue(TRUE, "Ready", "The control plane is ready")}, now
    )


def plan_failed(project: Project, error: str, now: str) -> Plan:
    verdict = ConditionValue(
        FALSE, "ControlPlaneNotReady", f"The control plane is not ready: {error}"
    )
    return _plan_status(project, {READY: verdict}, now)


def plan_cleanup(project: Project, left: Sequence[str], now: str) -> Plan:
    """Report the remaining objects; ``left`` contains kind and name of each."""
    verdicts = {
        READY: ConditionValue(FALSE, "Deleting", "The project is being deleted"),
        CLEANUP: ConditionValue(
            FALSE, "ResourcesRemaining", f"Remaining: {summarize_objects(left)}"
        ),
    }
    return Plan(_plan_status(project, verdicts, now).actions, requeue_after_s=CLEANUP_S)


def plan_release(project: Project) -> Plan:
    """Remove the finalizer after the plane is deleted."""
    return Plan(tuple(drop_finalizer(PLATFORM, PROJECT, project, labels.PROJECT_FINALIZER)))


def summarize_objects(left: Sequence[str]) -> str:
    """Return the number of objects of each kind, and one of them by name."""
    counted = Counter(name.partition(" ")[0] for name in left)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    return f"{listed} (such as {min(left)})"


def _plan_status(project: Project, verdicts: dict[str, ConditionValue], now: str) -> Plan:
    generation = project.metadata.generation
    conditions = set_conditions(project.status.conditions, verdicts, generation=generation, now=now)
    status = ProjectStatus(conditions=conditions, observed_generation=generation)
    return Plan(tuple(plan_status(PLATFORM, PROJECT, project, status)))


def _owner_reference(organization: Organization) -> OwnerReference:
    return OwnerReference(
        api_version=ORGANIZATION.api_version,
        kind=ORGANIZATION.kind,
        name=organization.metadata.name,
        uid=organization.metadata.uid,
        block_owner_deletion=True,
    )


def organization_namespace(organization: str) -> str:
    return f"organization-{organization}"


def plan_organization(organization: Organization, namespace: Namespace | None, now: str) -> Plan:
    """Plan the namespace and the status of an organization."""
    if organization.is_terminating:
        return Plan()
    if namespace is None:
        return Plan(
            (
                Create(
                    PLATFORM,
                    NAMESPACE,
                    _build_namespace(organization),
                    "namespace of the organization",
                ),
            )
        )
    if namespace.is_terminating:
        return Plan(
            (Wait("the namespace of an earlier organization is terminating"),), requeue_after_s=30.0
        )
    generation = organization.metadata.generation
    conditions = set_conditions(
        organization.status.conditions,
        {READY: ConditionValue(TRUE, "Ready", f"Namespace {namespace.metadata.name} exists")},
        generation=generation,
        now=now,
    )
    status = OrganizationStatus(conditions=conditions, observed_generation=generation)
    return Plan(tuple(plan_status(PLATFORM, ORGANIZATION, organization, status)))


def _build_namespace(organization: Organization) -> Namespace:
    name = organization.metadata.name
    return Namespace(
        metadata=ObjectMeta(
            name=organization_namespace(name),
            labels={labels.ORGANIZATION: name},
            owner_references=[owner_reference(organization, ORGANIZATION)],
        )
    )
