"""NetworkContext: a Network as it is present in one location, named ``<network>-<location>``.

Made for the first NetworkBinding of the two and removed after the last. It carries the network's
own numbers, so that a location can be set up without asking the project.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    INT64_MAX,
    IP_FAMILY,
    IpFamilies,
    LocalReference,
    Mtu,
    defaults_to,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields
from datum_compute.api.networking.network import MTU, PrefixReference


class NetworkContextSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[LocalReference, says("The network.")]
    location: Annotated[LocalReference, says("The location.")]
    ip_families: Annotated[
        IpFamilies, says("Address families of the network."), defaults_to([IP_FAMILY])
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, says("Largest packet of the network, in bytes.")] = MTU
    network_generation: Annotated[
        int,
        Meta(ge=0, le=INT64_MAX),
        says("Generation of the network that these numbers were taken from."),
    ] = 0


class NetworkContextIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """What was given to the network in this location."""

    ipv6_subnet_ref: Annotated[LocalReference | None, says("Its IPv6 subnet.")] = None
    ipv6_claim_ref: Annotated[
        PrefixReference | None, says("Where the prefix of the subnet is on record.")
    ] = None


class NetworkContextStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkContextIpamStatus = NetworkContextIpamStatus()
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class NetworkContext(ApiObject, frozen=True, kw_only=True):
    """NetworkContext: a Network as it is present in one location, named
    ``<network>-<location>``.
    """

    spec: NetworkContextSpec
    status: NetworkContextStatus = NetworkContextStatus(conditions=undecided("Ready"))


NETWORK_CONTEXT = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="NetworkContext",
    plural="networkcontexts",
    model=NetworkContext,
    short_names=("netctx",),
    categories=("networking",),
    selectable=selectable_fields("spec.network.name", "spec.location.name"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Network", ".spec.network.name"),
        Column("Location", ".spec.location.name"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)
