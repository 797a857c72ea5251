"""AllowanceBucket: how much of one resource a consumer may use, uses and has left.

Derived from Active grants and granted claims, and made anew from them at any time; nobody writes it
by hand.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Amount, ObjectReference, ShortText, Time, keyed, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.resourceregistration import ResourceType


class AllowanceBucketSpec(ApiStruct, frozen=True, kw_only=True):
    consumer_ref: Annotated[ObjectReference, says("Who may use it, such as a Project.")]
    resource_type: Annotated[ResourceType, says("Name of the resource.")]


class ContributingGrant(ApiStruct, frozen=True, kw_only=True):
    """A grant that adds to the limit."""

    name: Annotated[ShortText, says("Name of the grant.")]
    namespace: Annotated[ShortText, says("Namespace of the grant.")]
    amount: Annotated[Amount, says("What it adds, in base units.")]
    last_observed_generation: Annotated[int, says("The generation that was counted.")] = 0


class AllowanceBucketStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Said in full, because none is not the same as not known."""

    limit: Annotated[Amount, says("What the grants add up to, in base units.")] = 0
    allocated: Annotated[Amount, says("What granted claims use, in base units.")] = 0
    available: Annotated[Amount, says("What is left, never below zero.")] = 0
    claim_count: Annotated[int, says("Claims that use it.")] = 0
    grant_count: Annotated[int, says("Grants that add to it.")] = 0
    contributing_grant_refs: Annotated[
        list[ContributingGrant], keyed("namespace", "name"), says("Grants that add to it.")
    ] = []
    last_reconciliation: Annotated[Time | None, says("When it changed last (RFC 3339).")] = None
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


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
