"""Quota: registrations, claims, buckets and grants, and what compute counts.

The spec of a ResourceClaim cannot be changed, because a decision about it would become wrong. Milo
allows changes. To claim another amount, create another claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.conditions import FALSE, Condition, Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    Amount,
    KindReference,
    PositiveAmount,
    ShortText,
    Text,
    Time,
    TypedObjectReference,
    doc,
    immutable,
    map_by,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields

# --- ResourceRegistration
# Operators create it on the platform plane. Its type, unit and consumer cannot be changed, because
# existing grants and claims use them.


_INSTEAD = "register another resource type instead"

ResourceType = Annotated[str, Meta(min_length=1, max_length=253)]
Unit = Annotated[str, Meta(min_length=1, max_length=50)]


class ResourceRegistrationSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_type: Annotated[
        KindReference, doc("Kind of the objects to which amounts are granted."), immutable(_INSTEAD)
    ]
    type: Annotated[
        Literal["Entity", "Allocation", "Feature"],
        doc(
            "With Entity objects are counted. With Allocation an amount is "
            "measured. With Feature the resource is on or off."
        ),
        immutable(_INSTEAD),
    ]
    resource_type: Annotated[
        ResourceType,
        doc("Name of the resource, such as compute.datumapis.com/instances."),
        immutable(_INSTEAD),
    ]
    description: Annotated[Text, doc("What is counted, for people.")] = ""
    base_unit: Annotated[Unit, doc("Unit of all amounts, such as millicore.")]
    display_unit: Annotated[Unit, doc("Unit that is shown to people, such as vCPU.")]
    unit_conversion_factor: Annotated[
        PositiveAmount, doc("Number of base units in a display unit.")
    ] = 1
    claiming_resources: Annotated[
        list[KindReference],
        map_by("apiGroup", "kind"),
        Meta(min_length=1, max_length=20),
        doc("Kinds that can claim the resource."),
    ]


class ResourceRegistrationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class ResourceRegistration(ApiObject, frozen=True, kw_only=True):
    """A ResourceRegistration defines a resource that is limited by quota."""

    spec: ResourceRegistrationSpec
    status: ResourceRegistrationStatus = ResourceRegistrationStatus()


REGISTRATION = KindInfo(
    group="quota.miloapis.com",
    version="v1alpha1",
    kind="ResourceRegistration",
    plural="resourceregistrations",
    model=ResourceRegistration,
    namespaced=False,
    categories=("quota",),
    selectable=selectable_fields("spec.resourceType"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Resource Type", ".spec.resourceType"),
        TableColumn("Type", ".spec.type"),
        TableColumn("Consumer", ".spec.consumerType.kind"),
        TableColumn("Active", '.status.conditions[?(@.type=="Active")].status'),
        TableColumn("Unit", ".spec.displayUnit", wide=True),
    ),
)


# --- ResourceClaim


GRANTED = "Granted"


class ResourceRequest(ApiStruct, frozen=True, kw_only=True):
    """A requested amount of one resource."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    amount: Annotated[PositiveAmount, doc("Amount, in base units.")]


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Owner of the quota, such as a Project.")]
    requests: Annotated[
        list[ResourceRequest],
        map_by("resourceType"),
        Meta(min_length=1, max_length=20),
        doc("Requested amounts."),
    ]
    resource_ref: Annotated[TypedObjectReference, doc("Object for which the amounts are claimed.")]


class RequestAllocation(ApiStruct, frozen=True, kw_only=True):
    """Decision about one request of a claim."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    status: Annotated[Literal["Granted", "Denied", "Pending"], doc("The decision.")]
    reason: Annotated[ShortText, doc("One-word cause in CamelCase, for programs.")] = ""
    message: Annotated[Text, doc("Cause in words, for people.")] = ""
    allocated_amount: Annotated[Amount, doc("Granted amount, in base units.")] = 0
    allocating_bucket: Annotated[
        ShortText, doc("Name of the AllowanceBucket that contains the amount.")
    ] = ""
    last_transition_time: Annotated[Time, doc("Time of the decision (RFC 3339).")] = ""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    allocations: Annotated[
        list[RequestAllocation], map_by("resourceType"), doc("Decision about each request.")
    ] = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


_UNDECIDED = Condition(
    type=GRANTED,
    status=FALSE,
    reason="PendingEvaluation",
    message="Awaiting capacity evaluation",
)


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    """A ResourceClaim requests amounts of resources for one object. All requests are granted
    together or not at all.
    """

    spec: Annotated[
        ResourceClaimSpec,
        doc("Requested amounts and their consumer."),
        immutable("delete the claim and create another for another amount"),
    ]
    status: ResourceClaimStatus = ResourceClaimStatus(conditions=[_UNDECIDED])


CLAIM = KindInfo(
    group="quota.miloapis.com",
    version="v1alpha1",
    kind="ResourceClaim",
    plural="resourceclaims",
    model=ResourceClaim,
    categories=("quota",),
    selectable=selectable_fields(
        "spec.consumerRef.kind",
        "spec.consumerRef.name",
        "spec.resourceRef.kind",
        "spec.resourceRef.name",
    ),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Consumer", ".spec.consumerRef.name"),
        TableColumn("Resource", ".spec.resourceRef.name"),
        TableColumn("Granted", '.status.conditions[?(@.type=="Granted")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Granted")].reason'),
        TableColumn("Message", '.status.conditions[?(@.type=="Granted")].message', wide=True),
    ),
)


# --- AllowanceBucket
# A controller computes it from Active grants and granted claims, and can compute it again at any
# time.


class AllowanceBucketSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Owner of the quota, such as a Project.")]
    resource_type: Annotated[ResourceType, doc("Name of the resource.")]


class ContributingGrant(ApiStruct, frozen=True, kw_only=True):
    """A ResourceGrant that contributes to the limit."""

    name: Annotated[ShortText, doc("Name of the grant.")]
    namespace: Annotated[ShortText, doc("Namespace of the grant.")]
    amount: Annotated[Amount, doc("Contribution of the grant, in base units.")]
    last_observed_generation: Annotated[int, doc("Generation of the grant that was counted.")] = 0


class AllowanceBucketStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Limit and use of the resource. All counts are written, because 0 differs from unknown."""

    limit: Annotated[Amount, doc("Sum of all grants, in base units.")] = 0
    allocated: Annotated[Amount, doc("Sum of all granted claims, in base units.")] = 0
    available: Annotated[Amount, doc("Amount that can still be claimed. Never below 0.")] = 0
    claim_count: Annotated[int, doc("Number of granted claims.")] = 0
    grant_count: Annotated[int, doc("Number of contributing grants.")] = 0
    contributing_grant_refs: Annotated[
        list[ContributingGrant],
        map_by("namespace", "name"),
        doc("Grants that contribute to the limit."),
    ] = []
    last_reconciliation: Annotated[Time | None, doc("Time of the last change (RFC 3339).")] = None
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class AllowanceBucket(ApiObject, frozen=True, kw_only=True):
    """An AllowanceBucket shows the limit and the use of one resource by one consumer. The platform
    computes it from grants and claims.
    """

    spec: AllowanceBucketSpec
    status: AllowanceBucketStatus = AllowanceBucketStatus()


BUCKET = KindInfo(
    group="quota.miloapis.com",
    version="v1alpha1",
    kind="AllowanceBucket",
    plural="allowancebuckets",
    model=AllowanceBucket,
    categories=("quota",),
    selectable=selectable_fields(
        "spec.consumerRef.kind", "spec.consumerRef.name", "spec.resourceType"
    ),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Consumer", ".spec.consumerRef.name"),
        TableColumn("Resource Type", ".spec.resourceType"),
        TableColumn("Limit", ".status.limit", "integer"),
        TableColumn("Allocated", ".status.allocated", "integer"),
        TableColumn("Available", ".status.available", "integer"),
        TableColumn("Claims", ".status.claimCount", "integer", wide=True),
        TableColumn("Grants", ".status.grantCount", "integer", wide=True),
    ),
)


# --- ResourceGrant
# A lower or deleted grant does not stop running instances. It only limits new claims.


class GrantedBucket(ApiStruct, frozen=True, kw_only=True):
    """A part of a granted amount."""

    amount: Annotated[Amount, doc("Amount, in base units.")]


class Allowance(ApiStruct, frozen=True, kw_only=True):
    """Granted amounts of one resource. They are added up."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    buckets: Annotated[
        list[GrantedBucket], Meta(min_length=1, max_length=20), doc("Amounts, which are added up.")
    ]


class ResourceGrantSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Owner of the quota, such as a Project.")]
    allowances: Annotated[
        list[Allowance],
        map_by("resourceType"),
        Meta(min_length=1, max_length=100),
        doc("Granted amount of each resource."),
    ]


class ResourceGrantStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class ResourceGrant(ApiObject, frozen=True, kw_only=True):
    """A ResourceGrant allows a consumer to use amounts of resources. Active grants are added up."""

    spec: ResourceGrantSpec
    status: ResourceGrantStatus = ResourceGrantStatus()


GRANT = KindInfo(
    group="quota.miloapis.com",
    version="v1alpha1",
    kind="ResourceGrant",
    plural="resourcegrants",
    model=ResourceGrant,
    categories=("quota",),
    selectable=selectable_fields("spec.consumerRef.kind", "spec.consumerRef.name"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Consumer Kind", ".spec.consumerRef.kind"),
        TableColumn("Consumer", ".spec.consumerRef.name"),
        TableColumn("Active", '.status.conditions[?(@.type=="Active")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Active")].reason'),
    ),
)


# --- Resources that compute counts, and the default limits of a project
# Amounts are in base units: CPUs in thousandths, memory in MiB.


SERVICE, SERVICE_NAME = "compute", "compute.datumapis.com"
RESOURCE_MANAGER = "resourcemanager.miloapis.com"
PROJECT_KIND = "Project"
# Namespace of the grants and buckets of a project.
QUOTA_NAMESPACE = "milo-system"


@dataclass(frozen=True, slots=True)
class QuotaMetric:
    """A resource under quota. A display unit consists of ``factor`` base units."""

    name: str
    label: str  # in messages, for example "Instance quota is full"
    title: str
    description: str
    type: Literal["Entity", "Allocation"]
    base_unit: str
    display_unit: str
    factor: int
    default_limit: int

    @property
    def resource_type(self) -> str:
        return f"{SERVICE_NAME}/{self.name}"


WORKLOADS = QuotaMetric(
    "workloads", "Workload", "Workloads", "Workloads of the project.", "Entity", "1", "1", 1, 1000
)
INSTANCES = QuotaMetric(
    "instances", "Instance", "Instances", "Instances in all cities.", "Entity", "1", "1", 1, 10
)
VCPUS = QuotaMetric(
    name="vcpus",
    label="Processor",
    title="Processors",
    description="Processors of all instances.",
    type="Allocation",
    base_unit="millicore",
    display_unit="vCPU",
    factor=1000,
    default_limit=40_000,
)
MEMORY = QuotaMetric(
    name="memory",
    label="Memory",
    title="Memory",
    description="Memory of all instances.",
    type="Allocation",
    base_unit="MiB",
    display_unit="GiB",
    factor=1024,
    default_limit=81_920,
)
METRICS = (WORKLOADS, INSTANCES, VCPUS, MEMORY)
# Default limits in the grant of a new project, by resource type.
DEFAULT_LIMITS: Mapping[str, int] = {
    metric.resource_type: metric.default_limit for metric in METRICS
}


def consumer_of(project: str) -> TypedObjectReference:
    """Return the reference to a project as a consumer of quota."""
    return TypedObjectReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND, name=project)
