"""Network: a private network of a project, present in every city its instances run in.

Each project has one named ``default``. Prefixes are given out by the platform, unique over all
networks; the two ranges are the user's wish, which the mode Auto does not need. Spelled as in
Datum's networking API; IPv6 is the family of a network that names none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from datum_compute.api.conditions import Conditions, undecided
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    INT64_MAX,
    IP_FAMILY,
    Address,
    DnsLabel,
    IpFamilies,
    IpFamily,
    Ipv4Range,
    Ipv6Range,
    LocalReference,
    Mtu,
    NamespacedReference,
    PrefixLength,
    ShortText,
    TypedObjectReference,
    defaults_to,
    doc,
    immutable,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Ref, selectable_fields

MTU = 1460
# Every project has it from its first moment; workloads of any namespace may use it.
DEFAULT_NETWORK = Ref("default", "default")


class NetworkIpam(ApiStruct, frozen=True, kw_only=True):
    """How addresses are given out."""

    mode: Annotated[
        Literal["Auto", "Policy"],
        doc("Auto: the platform chooses prefixes. Policy: nothing is given out."),
    ]
    ipv4_range: Annotated[
        Ipv4Range | None, doc("Range that IPv4 prefixes should be from; Auto does not ask.")
    ] = None
    ipv6_range: Annotated[
        Ipv6Range | None, doc("Range that IPv6 prefixes should be from; Auto does not ask.")
    ] = None


class NetworkSpec(ApiStruct, frozen=True, kw_only=True):
    ipam: NetworkIpam
    ip_families: Annotated[
        IpFamilies,
        doc("Address families it carries, the first is primary."),
        defaults_to([IP_FAMILY]),
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, doc("Largest packet that its interfaces carry, in bytes.")] = MTU


class PrefixReference(ApiStruct, frozen=True, kw_only=True):
    """Where an allocated prefix is on record."""

    project: Annotated[ShortText, doc("Project that holds the record.")] = ""
    namespace: Annotated[ShortText, doc("Namespace of the record.")] = ""
    claim_name: Annotated[ShortText, doc("Name of the claim that the prefix was given to.")] = ""
    pool_name: Annotated[ShortText, doc("Name of the pool that it came from.")] = ""


class NetworkIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """What was given to the network."""

    ipv6_prefix: Annotated[str, doc("IPv6 prefix of the network.")] = ""
    ipv6_prefix_ref: Annotated[
        PrefixReference | None, doc("Where the IPv6 prefix is on record.")
    ] = None


class NetworkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkIpamStatus = NetworkIpamStatus()
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- NetworkBinding: the wish that a Network be present in a location, by whoever needs it there
# As long as one binding of a network and location is left, their NetworkContext stays.


_INSTEAD = "create another binding instead"


class NetworkBindingSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[NamespacedReference, doc("The network."), immutable(_INSTEAD)]
    location: Annotated[LocalReference, doc("The location."), immutable(_INSTEAD)]
    consumer: Annotated[
        TypedObjectReference | None, doc("Who needs the network there; for people only.")
    ] = None


class NetworkBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    network_context_ref: Annotated[
        NamespacedReference | None, doc("The network as it is present in the location.")
    ] = None
    network_context_uid: Annotated[
        str, doc("UID of that network context; another of its name is not the same.")
    ] = ""
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


class NetworkBinding(ApiObject, frozen=True, kw_only=True):
    """NetworkBinding: the wish that a Network be present in a location, by whoever needs it
    there.
    """

    spec: NetworkBindingSpec
    status: NetworkBindingStatus = NetworkBindingStatus(conditions=undecided("Ready"))


NETWORK_BINDING = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="NetworkBinding",
    plural="networkbindings",
    model=NetworkBinding,
    short_names=("netbind",),
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


# --- NetworkContext: a Network as it is present in one location, named ``<network>-<location>``
# Made for the first NetworkBinding of the two and removed after the last. It carries the network's
# own numbers, so that a location can be set up without asking the project.


class NetworkContextSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[LocalReference, doc("The network.")]
    location: Annotated[LocalReference, doc("The location.")]
    ip_families: Annotated[
        IpFamilies, doc("Address families of the network."), defaults_to([IP_FAMILY])
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, doc("Largest packet of the network, in bytes.")] = MTU
    network_generation: Annotated[
        int,
        Meta(ge=0, le=INT64_MAX),
        doc("Generation of the network that these numbers were taken from."),
    ] = 0


class NetworkContextIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """What was given to the network in this location."""

    ipv6_subnet_ref: Annotated[LocalReference | None, doc("Its IPv6 subnet.")] = None
    ipv6_claim_ref: Annotated[
        PrefixReference | None, doc("Where the prefix of the subnet is on record.")
    ] = None


class NetworkContextStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkContextIpamStatus = NetworkContextIpamStatus()
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- Subnet: a prefix of a NetworkContext that instances get their addresses from
# A wished start address is taken if it is given; otherwise the platform chooses one, and the status
# says which. The first address after the start is the gateway's.


class SubnetSpec(ApiStruct, frozen=True, kw_only=True):
    subnet_class: Annotated[DnsLabel, doc("What the subnet is for: private, ...")]
    network_context: Annotated[LocalReference, doc("The network context it belongs to.")]
    location: Annotated[LocalReference, doc("The location of the network context.")]
    ip_family: Annotated[IpFamily, doc("Address family.")]
    start_address: Annotated[Address | None, doc("First address that is wished for.")] = None
    prefix_length: Annotated[PrefixLength | None, doc("Prefix length that is wished for.")] = None


class AllocatedPrefix(ApiStruct, frozen=True, kw_only=True):
    start_address: Annotated[str, doc("First address, once there is one.")] = ""
    prefix_length: Annotated[int | None, doc("Prefix length, once there is one.")] = None


class SubnetStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- SubnetClaim: the wish for a Subnet in a NetworkContext; the Subnet gets the name of its claim


class SubnetClaimStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    subnet_ref: Annotated[LocalReference | None, doc("The subnet that was made for it.")] = None
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0


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


# --- IPAllocation: one prefix that is given to somebody. Cluster-scoped, kept in the platform
# The name is made from the prefix, so that to create the object is to take the prefix: the second
# one who tries is told that it exists. Prefixes of one pool have one length, so that two of them
# are
# equal or apart. It is the record of truth of what is taken; whoever holds the prefix shows it in a
# status of its own.


Prefix = Annotated[str, Meta(pattern="^[0-9a-f.:]+/[0-9]{1,3}$", max_length=49)]


class IPAllocationSpec(ApiStruct, frozen=True, kw_only=True):
    cidr: Annotated[Prefix, doc("The prefix that is given.")]
    pool: Annotated[Prefix, doc("The prefix that it was cut from.")]
    project: Annotated[ShortText, doc("Project of whoever holds it.")]
    holder: Annotated[TypedObjectReference, doc("Who holds it, in that project.")]
    holder_uid: Annotated[ShortText, doc("UID of who holds it.")]


class IPAllocation(ApiObject, frozen=True, kw_only=True):
    """IPAllocation: one prefix that is given to somebody. Cluster-scoped, kept in the platform."""

    spec: Annotated[
        IPAllocationSpec,
        doc("What is given, and to whom."),
        immutable("delete the allocation and create another"),
    ]


IP_ALLOCATION = KindInfo(
    group="ipam.miloapis.com",
    version="v1alpha1",
    kind="IPAllocation",
    plural="ipallocations",
    model=IPAllocation,
    namespaced=False,
    has_status=False,
    categories=("ipam",),
    selectable=selectable_fields("spec.project", "spec.pool"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Prefix", ".spec.cidr"),
        Column("Project", ".spec.project"),
        Column("Holder Kind", ".spec.holder.kind"),
        Column("Holder", ".spec.holder.name"),
        Column("Pool", ".spec.pool", wide=True),
    ),
)
