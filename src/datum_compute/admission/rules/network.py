"""Rules for Networks, Subnets and SubnetClaims, and for the networks of a Workload."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from datum_compute.admission.queries import Answers, ListQuery, Write, once_per_write
from datum_compute.admission.rules.template import INTERFACES_FIELD, interfaces
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import NETWORK
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import DEFAULT_NETWORK

_BITS = {"IPv4": 32, "IPv6": 128}
_NETWORKS = {"IPv4": ipaddress.IPv4Network, "IPv6": ipaddress.IPv6Network}
_ADDRESSES = {"IPv4": ipaddress.IPv4Address, "IPv6": ipaddress.IPv6Address}


def check_network_ranges(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """The ranges of a Network are prefixes of their family."""
    for field, family in (("ipv4Range", "IPv4"), ("ipv6Range", "IPv6")):
        text = new["spec"]["ipam"].get(field)
        if text is not None and not _is_valid(_NETWORKS[family], text):
            why = f"must be an {family} prefix without host bits, such as {_EXAMPLES[family]}"
            yield Cause.invalid(f"spec.ipam.{field}", why, text)


def check_subnet_prefix(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Address and length of a Subnet or a SubnetClaim form a prefix of its family."""
    spec = new["spec"]
    family, start, length = spec["ipFamily"], spec.get("startAddress"), spec.get("prefixLength")
    if start is not None and not _is_valid(_ADDRESSES[family], start):
        yield Cause.invalid("spec.startAddress", f"must be an {family} address", start)
        return
    if length is not None and length > _BITS[family]:
        why = f"must be no more than {_BITS[family]} for {family}"
        yield Cause.invalid("spec.prefixLength", why, length)
    elif start is not None and length is not None:
        yield from _check_host_bits(family, start, length)


_EXAMPLES = {"IPv4": "10.128.0.0/9", "IPv6": "fd20:1000::/48"}


def _check_host_bits(family: str, start: str, length: int) -> Iterator[Cause]:
    if not _is_valid(_NETWORKS[family], f"{start}/{length}"):
        inside = ipaddress.ip_network(f"{start}/{length}", strict=False)
        why = f"must be the first address of its prefix, {inside.network_address}"
        yield Cause.invalid("spec.startAddress", why, start)


def _is_valid(form: Any, text: str) -> bool:
    try:
        form(text)
    except ValueError:
        return False
    return True


# --- A Workload cannot start to use a network that is being deleted
# The deletion of a network waits until no Workload uses the network, so with new Workloads it would
# never finish. Only references that the write adds are checked: a Workload that already uses the
# network can be scaled and edited. A missing network is not an error: instances wait for it.


NETWORKS = ListQuery(NETWORK)


def query_networks(write: Write) -> Iterable[ListQuery]:
    return (NETWORKS,) if _new_networks(write) else ()


def check_networks_not_deleted(write: Write, answers: Answers) -> Iterable[Cause]:
    new_networks = _new_networks(write)
    terminating = _terminating_networks(answers) if new_networks else {}
    for field, network in new_networks:
        if network in terminating:
            why = (
                f'network "{network.name}" in the namespace "{network.namespace}" is being deleted '
                f"since {terminating[network]} and accepts no new workloads; use another one, or "
                "wait until it is deleted and create it again"
            )
            yield Cause.forbidden(field, why)


@once_per_write
def _new_networks(write: Write) -> list[tuple[str, Ref]]:
    if not write.changes_spec:
        return []
    old, namespace = write.old, write.namespace
    stored = {ref for _, ref in _referenced_networks(old, namespace)} if old is not None else set()
    return [
        (field, ref)
        for field, ref in _referenced_networks(write.new, namespace)
        if ref not in stored
    ]


def _referenced_networks(workload: JsonObject, namespace: str) -> list[tuple[str, Ref]]:
    found = []
    for path, interface in interfaces(workload):
        network = interface["network"]
        ref = Ref(network.get("namespace") or namespace, network["name"])
        found.append((f"{path}.network", ref))
    return found or [(INTERFACES_FIELD, DEFAULT_NETWORK)]


def _terminating_networks(answers: Answers) -> dict[Ref, str]:
    """Return the deletion time of each network that is being deleted."""
    return {
        Ref(metadata["namespace"], metadata["name"]): metadata["deletionTimestamp"]
        for metadata in [network["metadata"] for network in answers.listed[NETWORKS]]
        if metadata.get("deletionTimestamp")
    }
