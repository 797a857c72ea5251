"""SubnetClaim: the wish for a Subnet in a NetworkContext; the Subnet gets the name of its claim."""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.fields import LocalReference, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.subnet import AllocatedPrefix, SubnetSpec


class SubnetClaimStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    subnet_ref: Annotated[LocalReference | None, says("The subnet that was made for it.")] = None
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class SubnetClaim(ApiObject, frozen=True, kw_only=True):
    """SubnetClaim: the wish for a Subnet in a NetworkContext; the Subnet gets the name of its
    claim.
    """

    spec: SubnetSpec
    status: SubnetClaimStatus = SubnetClaimStatus(
        conditions=undecided("Allocated", "Programmed", "Ready")
    )


SUBNET_CLAIM = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="SubnetClaim",
    plural="subnetclaims",
    model=SubnetClaim,
    categories=("networking",),
    selectable=selectable_fields("spec.networkContext.name", "spec.location.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Context", ".spec.networkContext.name"),
        Column("Subnet", ".status.subnetRef.name"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)
