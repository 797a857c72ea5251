"""ResourceClaim: amounts of resources that one object asks for; granted or denied as a whole.

What is asked for never changes (a deviation from Milo, where nothing stops it): a grant would go
stale under it. Another size is another claim.
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
    keyed,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

# --- ResourceRegistration: a kind of thing that is counted or measured under quota
# Kept by operators in the platform, cluster-scoped. What it counts, for whom and in which way never
# changes, because amounts were granted and claimed in these terms.


_INSTEAD = "register another resource type instead"

ResourceType = Annotated[str, Meta(min_length=1, max_length=253)]
Unit = Annotated[str, Meta(min_length=1, max_length=50)]


class ResourceRegistrationSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_type: Annotated[
        KindReference, doc("The kind that amounts are granted to."), immutable(_INSTEAD)
    ]
    type: Annotated[
        Literal["Entity", "Allocation", "Feature"],
        doc("Entity: objects are counted. Allocation: an amount is measured. Feature: on or off."),
        immutable(_INSTEAD),
    ]
    resource_type: Annotated[
        ResourceType,
        doc("Name of what is counted, such as compute.datumapis.com/instances."),
        immutable(_INSTEAD),
    ]
    description: Annotated[Text, doc("What is counted, for people.")] = ""
    base_unit: Annotated[Unit, doc("Unit of all amounts, such as millicore.")]
    display_unit: Annotated[Unit, doc("Unit that people are shown, such as vCPU.")]
    unit_conversion_factor: Annotated[
        PositiveAmount, doc("How many base units make a display unit.")
    ] = 1
    claiming_resources: Annotated[
        list[KindReference],
        keyed("apiGroup", "kind"),
        Meta(min_length=1, max_length=20),
        doc("Kinds that may claim it."),
    ]


class ResourceRegistrationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class ResourceRegistration(ApiObject, frozen=True, kw_only=True):
    """ResourceRegistration: a kind of thing that is counted or measured under quota."""

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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Resource Type", ".spec.resourceType"),
        Column("Type", ".spec.type"),
        Column("Consumer", ".spec.consumerType.kind"),
        Column("Active", '.status.conditions[?(@.type=="Active")].status'),
        Column("Unit", ".spec.displayUnit", wide=True),
    ),
)


# --- resourceclaim


GRANTED = "Granted"


class ResourceRequest(ApiStruct, frozen=True, kw_only=True):
    """An amount of one resource."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    amount: Annotated[PositiveAmount, doc("Amount, in base units.")]


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Whose quota is used, such as a Project.")]
    requests: Annotated[
        list[ResourceRequest],
        keyed("resourceType"),
        Meta(min_length=1, max_length=20),
        doc("What is asked for."),
    ]
    resource_ref: Annotated[TypedObjectReference, doc("The object that it is claimed for.")]


class RequestAllocation(ApiStruct, frozen=True, kw_only=True):
    """The decision about one request."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    status: Annotated[Literal["Granted", "Denied", "Pending"], doc("The decision.")]
    reason: Annotated[ShortText, doc("The cause, one word for programs.")] = ""
    message: Annotated[Text, doc("The cause, for people.")] = ""
    allocated_amount: Annotated[Amount, doc("What was granted, in base units.")] = 0
    allocating_bucket: Annotated[ShortText, doc("Name of the bucket it came from.")] = ""
    last_transition_time: Annotated[Time, doc("When it was decided (RFC 3339).")] = ""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    allocations: Annotated[
        list[RequestAllocation], keyed("resourceType"), doc("Decisions, request by request.")
    ] = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


_UNDECIDED = Condition(
    type=GRANTED,
    status=FALSE,
    reason="PendingEvaluation",
    message="Awaiting capacity evaluation",
)


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    """ResourceClaim: amounts of resources that one object asks for; granted or denied as a
    whole.
    """

    spec: Annotated[
        ResourceClaimSpec,
        doc("What is asked for, and for whom."),
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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Consumer", ".spec.consumerRef.name"),
        Column("Resource", ".spec.resourceRef.name"),
        Column("Granted", '.status.conditions[?(@.type=="Granted")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Granted")].reason'),
        Column("Message", '.status.conditions[?(@.type=="Granted")].message', wide=True),
    ),
)


# --- AllowanceBucket: how much of one resource a consumer may use, uses and has left
# Derived from Active grants and granted claims, and made anew from them at any time; nobody writes
# it by hand.


class AllowanceBucketSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Who may use it, such as a Project.")]
    resource_type: Annotated[ResourceType, doc("Name of the resource.")]


class ContributingGrant(ApiStruct, frozen=True, kw_only=True):
    """A grant that adds to the limit."""

    name: Annotated[ShortText, doc("Name of the grant.")]
    namespace: Annotated[ShortText, doc("Namespace of the grant.")]
    amount: Annotated[Amount, doc("What it adds, in base units.")]
    last_observed_generation: Annotated[int, doc("The generation that was counted.")] = 0


class AllowanceBucketStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Said in full, because none is not the same as not known."""

    limit: Annotated[Amount, doc("What the grants add up to, in base units.")] = 0
    allocated: Annotated[Amount, doc("What granted claims use, in base units.")] = 0
    available: Annotated[Amount, doc("What is left, never below zero.")] = 0
    claim_count: Annotated[int, doc("Claims that use it.")] = 0
    grant_count: Annotated[int, doc("Grants that add to it.")] = 0
    contributing_grant_refs: Annotated[
        list[ContributingGrant], keyed("namespace", "name"), doc("Grants that add to it.")
    ] = []
    last_reconciliation: Annotated[Time | None, doc("When it changed last (RFC 3339).")] = None
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class AllowanceBucket(ApiObject, frozen=True, kw_only=True):
    """AllowanceBucket: how much of one resource a consumer may use, uses and has left."""

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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Consumer", ".spec.consumerRef.name"),
        Column("Resource Type", ".spec.resourceType"),
        Column("Limit", ".status.limit", "integer"),
        Column("Allocated", ".status.allocated", "integer"),
        Column("Available", ".status.available", "integer"),
        Column("Claims", ".status.claimCount", "integer", wide=True),
        Column("Grants", ".status.grantCount", "integer", wide=True),
    ),
)


# --- ResourceGrant: amounts of resources that a consumer may use; Active grants add up
# Lowering or removing a grant takes nothing away from what runs; it only stops new claims.


class GrantedBucket(ApiStruct, frozen=True, kw_only=True):
    """A part of the amount."""

    amount: Annotated[Amount, doc("Amount, in base units.")]


class Allowance(ApiStruct, frozen=True, kw_only=True):
    """What is granted of one resource; its buckets add up."""

    resource_type: Annotated[ResourceType, doc("Name of the resource.")]
    buckets: Annotated[
        list[GrantedBucket], Meta(min_length=1, max_length=20), doc("Amounts that add up.")
    ]


class ResourceGrantSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[TypedObjectReference, doc("Who may use it, such as a Project.")]
    allowances: Annotated[
        list[Allowance],
        keyed("resourceType"),
        Meta(min_length=1, max_length=100),
        doc("What may be used."),
    ]


class ResourceGrantStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class ResourceGrant(ApiObject, frozen=True, kw_only=True):
    """ResourceGrant: amounts of resources that a consumer may use; Active grants add up."""

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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Consumer Kind", ".spec.consumerRef.kind"),
        Column("Consumer", ".spec.consumerRef.name"),
        Column("Active", '.status.conditions[?(@.type=="Active")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Active")].reason'),
    ),
)


# --- What compute counts against a project's quota, and what every project gets
# Amounts are in base units: processors in thousandths, memory in MiB.


SERVICE, SERVICE_NAME = "compute", "compute.datumapis.com"
RESOURCE_MANAGER = "resourcemanager.miloapis.com"
PROJECT_KIND = "Project"
# Where a project keeps its grants and buckets.
QUOTA_NAMESPACE = "milo-system"


@dataclass(frozen=True, slots=True)
class QuotaMetric:
    """``factor`` base units make a display unit."""

    name: str
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
    "workloads", "Workloads", "Workloads of the project.", "Entity", "1", "1", 1, 1000
)
INSTANCES = QuotaMetric(
    "instances", "Instances", "Instances in all cities.", "Entity", "1", "1", 1, 10
)
VCPUS = QuotaMetric(
    name="vcpus",
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
    title="Memory",
    description="Memory of all instances.",
    type="Allocation",
    base_unit="MiB",
    display_unit="GiB",
    factor=1024,
    default_limit=81_920,
)
METRICS = (WORKLOADS, INSTANCES, VCPUS, MEMORY)
# By resource type: what the grant of a new project allows, where nothing else is said.
DEFAULT_LIMITS: Mapping[str, int] = {
    metric.resource_type: metric.default_limit for metric in METRICS
}


def consumer_of(project: str) -> TypedObjectReference:
    """A project as the one whose quota is used."""
    return TypedObjectReference(api_group=RESOURCE_MANAGER, kind=PROJECT_KIND, name=project)
