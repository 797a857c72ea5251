"""Network: a private network of a project, which exists in each city of its instances.

Each project has a Network ``default``. The platform assigns prefixes that are unique over all
networks; the mode Auto ignores the two ranges of the spec. The fields are those of Datum's
networking API. A network without address families has IPv6.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from datum_compute.api.conditions import Conditions, unknown_conditions
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
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, TableColumn, selectable_fields

MTU = 1460
# Each project has this network from the start. Workloads of all namespaces can use it.
DEFAULT_NETWORK = Ref("default", "default")


class NetworkIpam(ApiStruct, frozen=True, kw_only=True):
    """How prefixes are assigned to the network."""

    mode: Annotated[
        Literal["Auto", "Policy"],
        doc("With Auto the platform chooses prefixes. With Policy no prefixes are assigned."),
    ]
    ipv4_range: Annotated[
        Ipv4Range | None, doc("Requested range of IPv4 prefixes. The mode Auto ignores it.")
    ] = None
    ipv6_range: Annotated[
        Ipv6Range | None, doc("Requested range of IPv6 prefixes. The mode Auto ignores it.")
    ] = None


class NetworkSpec(ApiStruct, frozen=True, kw_only=True):
    ipam: NetworkIpam
    ip_families: Annotated[
        IpFamilies,
        doc("Address families of the network. The first is the primary one."),
        defaults_to([IP_FAMILY]),
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, doc("Largest packet of the interfaces of the network, in bytes.")] = MTU


class PrefixReference(ApiStruct, frozen=True, kw_only=True):
    """Record of an assigned prefix."""

    project: Annotated[ShortText, doc("Project of the record.")] = ""
    namespace: Annotated[ShortText, doc("Namespace of the record.")] = ""
    claim_name: Annotated[ShortText, doc("Name of the claim of the prefix.")] = ""
    pool_name: Annotated[ShortText, doc("Name of the pool that contains the prefix.")] = ""


class NetworkIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """Prefixes of the network."""

    ipv6_prefix: Annotated[str, doc("IPv6 prefix of the network.")] = ""
    ipv6_prefix_ref: Annotated[PrefixReference | None, doc("Record of the IPv6 prefix.")] = None


class NetworkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkIpamStatus = NetworkIpamStatus()
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Network(ApiObject, frozen=True, kw_only=True):
    """A Network is a private network of a project. It exists in each city in which its instances
    run.
    """

    spec: NetworkSpec
    status: NetworkStatus = NetworkStatus(conditions=unknown_conditions("Ready"))


NETWORK = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="Network",
    plural="networks",
    model=Network,
    short_names=("net",),
    categories=("networking",),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        TableColumn("MTU", ".spec.mtu", "integer", wide=True),
        TableColumn("IPv6 Prefix", ".status.ipam.ipv6Prefix", wide=True),
    ),
)


# --- NetworkBinding: requests that a Network is available in a Location
# The NetworkContext of a network and location exists as long as there is a binding of the two.


_INSTEAD = "create another binding instead"


class NetworkBindingSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[NamespacedReference, doc("The Network."), immutable(_INSTEAD)]
    location: Annotated[LocalReference, doc("The Location."), immutable(_INSTEAD)]
    consumer: Annotated[
        TypedObjectReference | None,
        doc("Object that needs the network in the location. For information only."),
    ] = None


class NetworkBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    network_context_ref: Annotated[
        NamespacedReference | None, doc("NetworkContext of the network and location.")
    ] = None
    network_context_uid: Annotated[
        str,
        doc(
            "UID of that NetworkContext. Another NetworkContext of the same name "
            "has a different UID."
        ),
    ] = ""
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class NetworkBinding(ApiObject, frozen=True, kw_only=True):
    """A NetworkBinding requests that a Network is available in a Location."""

    spec: NetworkBindingSpec
    status: NetworkBindingStatus = NetworkBindingStatus(conditions=unknown_conditions("Ready"))


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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Network", ".spec.network.name"),
        TableColumn("Location", ".spec.location.name"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)


# --- NetworkContext: the part of a Network in one Location, named ``<network>-<location>``
# It is created for the first NetworkBinding and deleted after the last. It contains the values of
# the network that a location needs, so that the location need not read the project.


class NetworkContextSpec(ApiStruct, frozen=True, kw_only=True):
    network: Annotated[LocalReference, doc("The Network.")]
    location: Annotated[LocalReference, doc("The Location.")]
    ip_families: Annotated[
        IpFamilies, doc("Address families of the network."), defaults_to([IP_FAMILY])
    ] = field(default_factory=lambda: [IP_FAMILY])
    mtu: Annotated[Mtu, doc("Largest packet of the network, in bytes.")] = MTU
    network_generation: Annotated[
        int,
        Meta(ge=0, le=INT64_MAX),
        doc("Generation of the Network from which these values were copied."),
    ] = 0


class NetworkContextIpamStatus(ApiStruct, frozen=True, kw_only=True):
    """Subnets of the network in this location."""

    ipv6_subnet_ref: Annotated[LocalReference | None, doc("The IPv6 Subnet.")] = None
    ipv6_claim_ref: Annotated[
        PrefixReference | None, doc("Record of the prefix of the Subnet.")
    ] = None


class NetworkContextStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    ipam: NetworkContextIpamStatus = NetworkContextIpamStatus()
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class NetworkContext(ApiObject, frozen=True, kw_only=True):
    """A NetworkContext is the part of a Network in one Location. Its name is NETWORK-LOCATION."""

    spec: NetworkContextSpec
    status: NetworkContextStatus = NetworkContextStatus(conditions=unknown_conditions("Ready"))


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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Network", ".spec.network.name"),
        TableColumn("Location", ".spec.location.name"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)


# --- Subnet: a prefix of a NetworkContext from which instances get their addresses
# A requested start address is used if it is free. Otherwise the platform chooses one. The status
# contains the result. The first address after the start is the gateway.


class SubnetSpec(ApiStruct, frozen=True, kw_only=True):
    subnet_class: Annotated[DnsLabel, doc("Purpose of the subnet, such as private.")]
    network_context: Annotated[LocalReference, doc("NetworkContext that contains the subnet.")]
    location: Annotated[LocalReference, doc("Location of the NetworkContext.")]
    ip_family: Annotated[IpFamily, doc("Address family.")]
    start_address: Annotated[
        Address | None,
        doc("Requested first address. If it is taken, or unset, the platform chooses one."),
    ] = None
    prefix_length: Annotated[
        PrefixLength | None, doc("Requested prefix length. If unset, the platform chooses one.")
    ] = None


class AllocatedPrefix(ApiStruct, frozen=True, kw_only=True):
    """An allocated prefix."""

    start_address: Annotated[
        str, doc("First address of the allocated prefix. Empty until it is allocated.")
    ] = ""
    prefix_length: Annotated[
        int | None, doc("Length of the allocated prefix. Unset until it is allocated.")
    ] = None


class SubnetStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Subnet(ApiObject, frozen=True, kw_only=True):
    """A Subnet is a prefix of a NetworkContext from which instances get their addresses."""

    spec: SubnetSpec
    status: SubnetStatus = SubnetStatus(
        conditions=unknown_conditions("Allocated", "Programmed", "Ready")
    )


SUBNET = KindInfo(
    group="networking.datumapis.com",
    version="v1alpha",
    kind="Subnet",
    plural="subnets",
    model=Subnet,
    categories=("networking",),
    selectable=selectable_fields("spec.networkContext.name", "spec.location.name"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Context", ".spec.networkContext.name"),
        TableColumn("Start", ".status.startAddress"),
        TableColumn("Length", ".status.prefixLength", "integer"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)


# --- SubnetClaim: requests a Subnet, which gets the name of the claim


class SubnetClaimStatus(AllocatedPrefix, frozen=True, kw_only=True):
    conditions: Conditions = []
    subnet_ref: Annotated[LocalReference | None, doc("Subnet that was created for the claim.")] = (
        None
    )
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class SubnetClaim(ApiObject, frozen=True, kw_only=True):
    """A SubnetClaim requests a Subnet in a NetworkContext. The Subnet has the name of the claim."""

    spec: SubnetSpec
    status: SubnetClaimStatus = SubnetClaimStatus(
        conditions=unknown_conditions("Allocated", "Programmed", "Ready")
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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Context", ".spec.networkContext.name"),
        TableColumn("Subnet", ".status.subnetRef.name"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)


# --- IPAllocation: records that a prefix is allocated, on the platform plane
# The name is derived from the prefix, so the second creation of an allocation fails with
# AlreadyExists. Prefixes of a pool have the same length, so two of them are equal or disjoint.
# Holders copy the prefix into their status; the allocation is authoritative.


Prefix = Annotated[str, Meta(pattern="^[0-9a-f.:]+/[0-9]{1,3}$", max_length=49)]


class IPAllocationSpec(ApiStruct, frozen=True, kw_only=True):
    cidr: Annotated[Prefix, doc("The allocated prefix.")]
    pool: Annotated[Prefix, doc("Prefix of the pool that contains the allocation.")]
    project: Annotated[ShortText, doc("Project of the holder.")]
    holder: Annotated[TypedObjectReference, doc("Object that holds the prefix, in that project.")]
    holder_uid: Annotated[ShortText, doc("UID of the holder.")]


class IPAllocation(ApiObject, frozen=True, kw_only=True):
    """An IPAllocation records that a prefix is allocated to an object. It is stored on the platform
    plane.
    """

    spec: Annotated[
        IPAllocationSpec,
        doc("The prefix and its holder."),
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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Prefix", ".spec.cidr"),
        TableColumn("Project", ".spec.project"),
        TableColumn("Holder Kind", ".spec.holder.kind"),
        TableColumn("Holder", ".spec.holder.name"),
        TableColumn("Pool", ".spec.pool", wide=True),
    ),
)
