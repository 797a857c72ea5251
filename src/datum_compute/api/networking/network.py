"""Network: a private network of a project, present in every city its instances run in.

Each project has one named ``default``. Prefixes are given out by the platform, unique over all
networks; the two ranges are the user's wish, which the mode Auto does not need. Spelled as in
Datum's networking API; IPv6 is the family of a network that names none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    IP_FAMILY,
    IpFamilies,
    Ipv4Range,
    Ipv6Range,
    Mtu,
    ShortText,
    defaults_to,
    says,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Ref

MTU = 1460
# Every project has it from its first moment; workloads of any namespace may use it.
DEFAULT_NETWORK = Ref("default", "default")


class NetworkIpam(ApiStruct, frozen=True, kw_only=True):
    """How addresses are given out."""

    mode: Annotated[
        Literal["Auto", "Policy"],
        says("Auto: the platform chooses prefixes. Policy: nothing is given out."),
    ]
    ipv4_range: Annotated[
        Ipv4Range | None, says("Range that IPv4 prefixes should be from; Auto does not ask.")
    ] = None
    ipv6_range: Annotated[
        Ipv6Range | None, says("Range that IPv6 prefixes should be from; Auto does not ask.")
    ] = None


class NetworkSpec(ApiStruct, frozen=True, kw_only=True):
    ipam: NetworkIpam
    ip_families: Annotated[
        IpFamilies,
        says("Address families it carries, the first is primary."),
        defaults_to([IP_FAMILY]),
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, says("Largest packet that its interfaces carry, in bytes.")] = MTU


class PrefixReference(ApiStruct, frozen=True, kw_only=True):
    """Where an allocated prefix is on record."""

    project: Annotated[ShortText, says("Project that holds the record.")] = ""
    namespace: Annotated[ShortText, says("Namespace of the record.")] = ""
    claim_name: Annotated[ShortText, says("Name of the claim that the prefix was given to.")] = ""
    pool_name: Annotated[ShortText, says("Name of the pool that it came from.")] = ""


class NetworkIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """What was given to the network."""

    ipv6_prefix: Annotated[str, says("IPv6 prefix of the network.")] = ""
    ipv6_prefix_ref: Annotated[
        PrefixReference | None, says("Where the IPv6 prefix is on record.")
    ] = None


class NetworkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkIpamStatus = NetworkIpamStatus()
    observed_generation: Annotated[int, says("The generation that this status is about.")] = 0


class Network(ApiObject, frozen=True, kw_only=True):
    """Network: a private network of a project, present in every city its instances run in."""

    spec: NetworkSpec
    status: NetworkStatus = NetworkStatus(conditions=undecided("Ready"))


NETWORK = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="Network",
    plural="networks",
    model=Network,
    short_names=("net",),
    categories=("networking",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("MTU", ".spec.mtu", "integer", wide=True),
        Column("IPv6 Prefix", ".status.ipam.ipv6Prefix", wide=True),
    ),
)
