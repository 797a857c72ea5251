"""Subnet: a prefix of a NetworkContext that instances get their addresses from.

A wished start address is taken if it is given; otherwise the platform chooses one, and the status
says which. The first address after the start is the gateway's.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    Address,
    DnsLabel,
    IpFamily,
    LocalReference,
    PrefixLength,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields


class SubnetSpec(ApiStruct, frozen=True, kw_only=True):
    subnet_class: Annotated[DnsLabel, says("What the subnet is for: private, ...")]
    network_context: Annotated[LocalReference, says("The network context it belongs to.")]
    location: Annotated[LocalReference, says("The location of the network context.")]
    ip_family: Annotated[IpFamily, says("Address family.")]
    start_address: Annotated[Address | None, says("First address that is wished for.")] = None
    prefix_length: Annotated[PrefixLength | None, says("Prefix length that is wished for.")] = None


class AllocatedPrefix(ApiStruct, frozen=True, kw_only=True):
    start_address: Annotated[str, says("First address, once there is one.")] = ""
    prefix_length: Annotated[int | None, says("Prefix length, once there is one.")] = None


class SubnetStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class Subnet(ApiObject, frozen=True, kw_only=True):
    """Subnet: a prefix of a NetworkContext that instances get their addresses from."""

    spec: SubnetSpec
    status: SubnetStatus = SubnetStatus(conditions=undecided("Allocated", "Programmed", "Ready"))


SUBNET = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="Subnet",
    plural="subnets",
    model=Subnet,
    categories=("networking",),
    selectable=selectable_fields("spec.networkContext.name", "spec.location.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Context", ".spec.networkContext.name"),
        Column("Start", ".status.startAddress"),
        Column("Length", ".status.prefixLength", "integer"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)
