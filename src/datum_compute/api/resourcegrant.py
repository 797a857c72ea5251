"""ResourceGrant: amounts of resources that a consumer may use; Active grants add up.

Lowering or removing a grant takes nothing away from what runs; it only stops new claims.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Amount, ObjectReference, keyed, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.resourceregistration import ResourceType


class GrantedBucket(ApiStruct, frozen=True, kw_only=True):
    """A part of the amount."""

    amount: Annotated[Amount, says("Amount, in base units.")]


class Allowance(ApiStruct, frozen=True, kw_only=True):
    """What is granted of one resource; its buckets add up."""

    resource_type: Annotated[ResourceType, says("Name of the resource.")]
    buckets: Annotated[
        list[GrantedBucket], Meta(min_length=1, max_length=20), says("Amounts that add up.")
    ]


class ResourceGrantSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[ObjectReference, says("Who may use it, such as a Project.")]
    allowances: Annotated[
        list[Allowance],
        keyed("resourceType"),
        Meta(min_length=1, max_length=100),
        says("What may be used."),
    ]


class ResourceGrantStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


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
