"""Organization -> its namespace on the platform, and that it is ready."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, Verdict
from datum_compute.api.entitlements import READY
from datum_compute.api.kinds import NAMESPACE, ORGANIZATION
from datum_compute.api.meta import ObjectMeta, owner_reference
from datum_compute.api.namespace import Namespace
from datum_compute.api.organization import Organization, OrganizationStatus
from datum_compute.api.plane import PLATFORM
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Create, Plan, Wait
from datum_compute.planning.verdicts import with_verdicts


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
