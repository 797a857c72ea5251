"""What a Project says of itself, and what it is given before anything is made for it.

The plane is made and removed by whoever keeps planes; here is what that looks like from outside:
- Nothing is made before the finalizer is there, so nothing is ever left behind.
- Ready comes after the plane, and goes as soon as the project is being deleted.
- The finalizer goes last, when the plane is gone with all its data.

Organization -> its namespace on the platform, and that it is ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject, plain
from datum_compute.api.conditions import FALSE, TRUE, Verdict, with_verdicts
from datum_compute.api.entitlements import READY
from datum_compute.api.kinds import NAMESPACE, ORGANIZATION, PROJECT
from datum_compute.api.meta import ObjectMeta, OwnerReference, owner_reference, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.organization import Organization, OrganizationStatus
from datum_compute.api.plane import PLATFORM
from datum_compute.api.project import Project, ProjectStatus
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Create, Patch, Plan, Wait, drop_finalizer

CLEANUP = "ResourceCleanup"
# How soon a project that is being deleted is looked at again; what goes wakes nobody.
CLEANUP_S = 0.5


def plan_project_metadata(project: Project, organization: Organization | None) -> Plan:
    """The finalizer, and whose the project is; nothing if all of it is there."""
    metadata, patch = project.metadata, dict[str, object]()
    if labels.PROJECT_FINALIZER not in metadata.finalizers:
        patch["finalizers"] = [*metadata.finalizers, labels.PROJECT_FINALIZER]
    owners = metadata.owner_references
    if organization is not None and all(o.uid != organization.metadata.uid for o in owners):
        patch["ownerReferences"] = plain([*owners, _owner(organization)])
    owner = project.spec.owner_ref.name
    if metadata.labels.get(labels.ORGANIZATION) != owner:
        patch["labels"] = {labels.ORGANIZATION: owner}
    if not patch:
        return Plan()
    merged: JsonObject = {"metadata": {"resourceVersion": metadata.resource_version, **patch}}
    return Plan((Patch(PLATFORM, PROJECT, ref_of(project), merged, "before anything is made"),))


def plan_ready(project: Project, now: str) -> Plan:
    """The plane is there."""
    return _said(project, {READY: Verdict(TRUE, "Ready", "The control plane answers")}, now)


def plan_failed(project: Project, trouble: str, now: str) -> Plan:
    verdict = Verdict(
        FALSE, "ControlPlaneNotReady", f"The control plane is not there yet: {trouble}"
    )
    return _said(project, {READY: verdict}, now)


def plan_cleanup(project: Project, left: Sequence[str], now: str) -> Plan:
    """``left`` names what is still there, as kind and name."""
    said = {
        READY: Verdict(FALSE, "Deleting", "The project is being deleted"),
        CLEANUP: Verdict(FALSE, "ResourcesRemaining", f"Still there: {told_of(left)}"),
    }
    return Plan(_said(project, said, now).actions, requeue_after_s=CLEANUP_S)


def plan_release(project: Project) -> Plan:
    """The plane and all that was in it are gone."""
    return Plan(tuple(drop_finalizer(PLATFORM, PROJECT, project, labels.PROJECT_FINALIZER)))


def told_of(left: Sequence[str]) -> str:
    """How many there are of each kind, and one of them by name."""
    counted = Counter(name.partition(" ")[0] for name in left)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    return f"{listed} (such as {min(left)})"


def _said(project: Project, verdicts: dict[str, Verdict], now: str) -> Plan:
    generation = project.metadata.generation
    told = with_verdicts(project.status.conditions, verdicts, generation=generation, now=now)
    status = ProjectStatus(conditions=told, observed_generation=generation)
    return Plan(tuple(plan_status(PLATFORM, PROJECT, project, status)))


def _owner(organization: Organization) -> OwnerReference:
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
    """Its namespace and its projects are owned by it: the garbage collector takes them."""
    if organization.is_terminating:
        return Plan()
    if namespace is None:
        return Plan((Create(PLATFORM, NAMESPACE, _namespace(organization), "of its own"),))
    if namespace.is_terminating:
        return Plan((Wait("the namespace of an earlier one is leaving"),), requeue_after_s=30.0)
    generation = organization.metadata.generation
    told = with_verdicts(
        organization.status.conditions,
        {READY: Verdict(TRUE, "Ready", f"Namespace {namespace.metadata.name} is there")},
        generation=generation,
        now=now,
    )
    status = OrganizationStatus(conditions=told, observed_generation=generation)
    return Plan(tuple(plan_status(PLATFORM, ORGANIZATION, organization, status)))


def _namespace(organization: Organization) -> Namespace:
    name = organization.metadata.name
    return Namespace(
        metadata=ObjectMeta(
            name=organization_namespace(name),
            labels={labels.ORGANIZATION: name},
            owner_references=[owner_reference(organization, ORGANIZATION)],
        )
    )
