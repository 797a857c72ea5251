"""Objects of the network blue in the location dfw."""

from __future__ import annotations

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    TRUE,
    ConditionStatus,
    ConditionValue,
    make_condition,
)
from datum_compute.api.kinds import (
    NETWORK,
)
from datum_compute.api.meta.fields import CITY_CODE_KEY, LocalReference, NamespacedReference
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference
from datum_compute.api.networking.location import LocationBinding, LocationBindingSpec
from datum_compute.api.networking.network import (
    Network,
    NetworkBinding,
    NetworkBindingSpec,
    NetworkContext,
    NetworkContextSpec,
    NetworkIpam,
    NetworkSpec,
    Subnet,
    SubnetSpec,
)
from datum_compute.api.planes import project_plane
from datum_compute.planning.network.networks import (
    binding_labels,
)
from testkit.builders import NOW

PLANE = project_plane("shop")


BLUE = Ref("default", "blue")


def meta(name: str, **more: object) -> ObjectMeta:
    values: dict[str, object] = {"uid": f"uid-of-{name}", "resource_version": "5", "generation": 1}
    return ObjectMeta(name=name, namespace="default", **{**values, **more})  # type: ignore[arg-type]


def a_network(**more: object) -> Network:
    spec = NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"])
    return Network(metadata=meta("blue", **more), spec=spec)


def a_binding(name: str = "b") -> NetworkBinding:
    return NetworkBinding(
        metadata=meta(name, labels=binding_labels(BLUE, "dfw")),
        spec=NetworkBindingSpec(
            network=NamespacedReference(name="blue"), location=LocalReference(name="dfw")
        ),
    )


def a_context(status: ConditionStatus = TRUE, reason: str = "Ready") -> NetworkContext:
    context = NetworkContext(
        metadata=meta("blue-dfw", owner_references=[owner_reference(a_network(), NETWORK)]),
        spec=NetworkContextSpec(
            network=LocalReference(name="blue"),
            location=LocalReference(name="dfw"),
            ip_families=["IPv4"],
            network_generation=1,
        ),
    )
    ready = make_condition("Ready", ConditionValue(status, reason, "words"), generation=1, now=NOW)
    new_status = msgspec.structs.replace(context.status, conditions=[ready])
    return msgspec.structs.replace(context, status=new_status)


def a_location(city: str = "DFW", name: str = "dfw") -> LocationBinding:
    return LocationBinding(
        metadata=ObjectMeta(name=name),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=name),
            location_class_name="datum-managed",
            topology={CITY_CODE_KEY: city},
        ),
    )


def a_subnet(prefix: str = "") -> Subnet:
    subnet = Subnet(
        metadata=meta("blue-dfw-ipv4", finalizers=[labels.SUBNET_FINALIZER]),
        spec=SubnetSpec(
            subnet_class="private",
            network_context=LocalReference(name="blue-dfw"),
            location=LocalReference(name="dfw"),
            ip_family="IPv4",
        ),
    )
    start, _, length = prefix.partition("/")
    if not prefix:
        return subnet
    status = msgspec.structs.replace(subnet.status, start_address=start, prefix_length=int(length))
    return msgspec.structs.replace(subnet, status=status)
