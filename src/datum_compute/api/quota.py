"""ResourceClaim: amounts of resources that one object asks for; granted or denied as a whole.

What is asked for never changes (a deviation from Milo, where nothing stops it): a grant would go
stale under it. Another size is another claim.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.conditions import FALSE, Condition, Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    Amount,
    ObjectReference,
    PositiveAmount,
    ShortText,
    Text,
    Time,
    immutable,
    keyed,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.resourceregistration import ResourceType

GRANTED = "Granted"


class ResourceRequest(ApiStruct, frozen=True, kw_only=True):
    """An amount of one resource."""

    resource_type: Annotated[ResourceType, says("Name of the resource.")]
    amount: Annotated[PositiveAmount, says("Amount, in base units.")]


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[ObjectReference, says("Whose quota is used, such as a Project.")]
    requests: Annotated[
        list[ResourceRequest],
        keyed("resourceType"),
        Meta(min_length=1, max_length=20),
        says("What is asked for."),
    ]
    resource_ref: Annotated[ObjectReference, says("The object that it is claimed for.")]


class RequestAllocation(ApiStruct, frozen=True, kw_only=True):
    """The decision about one request."""

    resource_type: Annotated[ResourceType, says("Name of the resource.")]
    status: Annotated[Literal["Granted", "Denied", "Pending"], says("The decision.")]
    reason: Annotated[ShortText, says("The cause, one word for programs.")] = ""
    message: Annotated[Text, says("The cause, for people.")] = ""
    allocated_amount: Annotated[Amount, says("What was granted, in base units.")] = 0
    allocating_bucket: Annotated[ShortText, says("Name of the bucket it came from.")] = ""
    last_transition_time: Annotated[Time, says("When it was decided (RFC 3339).")] = ""


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    allocations: Annotated[
        list[RequestAllocation], keyed("resourceType"), says("Decisions, request by request.")
    ] = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


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
        says("What is asked for, and for whom."),
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
