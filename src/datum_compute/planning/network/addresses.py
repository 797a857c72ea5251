"""Which address of a prefix an instance gets.

The first address is the prefix itself, the second the gateway's, and the last of an IPv4 prefix its
broadcast: nobody gets those. The search begins where the name of the instance says, so an instance
that comes back has its old address if nobody took it meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec.structs import replace

from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, Verdict
from datum_compute.api.instance import (
    Instance,
    InterfaceAddress,
    NetworkAssignments,
    NetworkInterfaceStatus,
)
from datum_compute.api.reasons import Reason
from datum_compute.api.workloaddeployment import NetworkAttachment

# An IPv6 prefix has more addresses than anybody can look through; so many tries are enough.
_TRIES_MAX = 1 << 16
INTERFACE = "eth0"


@dataclass(frozen=True, slots=True)
class Block:
    """The addresses of a prefix that instances can have: ``count`` of them after the gateway."""

    prefix: str
    length: int
    first: int
    count: int

    def address(self, index: int) -> str:
        return str(ip_address(self.first + index % self.count))


@lru_cache(maxsize=1024)
def block_of(prefix: str) -> Block:
    network = ip_network(prefix)
    reserved = 3 if network.version == 4 else 2
    first, count = int(network.network_address) + 2, network.num_addresses - reserved
    return Block(prefix, network.prefixlen, first, count)


def plan_address(prefix: str, name: str, is_taken: Callable[[str], bool]) -> str | None:
    """A free address for the instance of that name; None if all are taken."""
    block = block_of(prefix)
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % max(block.count, 1)
    for address in _candidates(block, start):
        if not is_taken(address):
            return address
    return None


def _candidates(block: Block, start: int) -> Iterator[str]:
    for step in range(min(block.count, _TRIES_MAX)):
        yield block.address(start + step)


def addresses_of(interfaces: Sequence[NetworkInterfaceStatus]) -> list[str]:
    return [a.address for interface in interfaces for a in interface.addresses]


def interface_of(
    instance: Instance, attachment: NetworkAttachment, addresses: Sequence[str]
) -> NetworkInterfaceStatus:
    """The interface with an address of each prefix of the attachment."""
    wished = instance.spec.network_interfaces
    found = [
        InterfaceAddress(
            family=attached.family,
            address=address,
            prefix_length=block_of(attached.prefix).length,
            gateway=attached.gateway,
        )
        for attached, address in zip(attachment.prefixes, addresses, strict=True)
    ]
    return NetworkInterfaceStatus(
        name=wished[0].name if wished else INTERFACE,
        assignments=NetworkAssignments(network_ip=found[0].address),
        addresses=found,
        mtu=attachment.mtu,
    )


def assigned_interfaces(
    interfaces: Sequence[NetworkInterfaceStatus],
) -> list[NetworkInterfaceStatus]:
    """As the network gave them, whatever the machine made of it."""
    return [_reached_at(i, i.addresses[0].address) if i.addresses else i for i in interfaces]


def reachable_interfaces(
    interfaces: Sequence[NetworkInterfaceStatus], own: Sequence[str]
) -> list[NetworkInterfaceStatus]:
    """With the address at which the machine is reached. That is what the network gave it, unless
    its ``own`` addresses are others: a pod has that of its cluster. Before it has any, and after,
    the last one stays."""
    if not interfaces or not own:
        return list(interfaces)
    held = assigned_interfaces(interfaces)
    if any(address in own for address in addresses_of(held)):
        return held
    return [_reached_at(held[0], own[0]), *held[1:]]


def _reached_at(interface: NetworkInterfaceStatus, address: str) -> NetworkInterfaceStatus:
    assignments = replace(interface.assignments, network_ip=address)
    return replace(interface, assignments=assignments)


def missing_location_fields(
    instance: Instance, attachment: NetworkAttachment | None
) -> dict[str, Any]:
    """Where it is, for an instance that was made before anybody knew."""
    if attachment is None or not attachment.location or instance.spec.location is not None:
        return {}
    return {"location": {"name": attachment.location}}


def network_verdict(
    instance: Instance, attachment: NetworkAttachment | None, interfaces: Sequence[object]
) -> Verdict:
    """The instance's NetworkReady; ``interfaces`` are those it has been given."""
    wished = instance.spec.network_interfaces
    name = wished[0].name if wished else INTERFACE
    if interfaces:
        return Verdict(TRUE, Reason.READY, "The instance has its addresses")
    if attachment is None:
        return Verdict(UNKNOWN, Reason.NETWORK_PROVISIONING, "The network is being set up")
    if attachment.problem is not None:
        problem = attachment.problem
        message = f'Interface "{name}": {problem.reason}: {problem.message}'
        return Verdict(FALSE, Reason.NETWORK_FAILED_TO_CREATE, message)
    sizes = [f"all {block_of(a.prefix).count} addresses of {a.prefix}" for a in attachment.prefixes]
    message = f"{' or '.join(sizes)} ({attachment.network}) are taken"
    return Verdict(
        FALSE,
        Reason.NETWORK_FAILED_TO_CREATE,
        f'Interface "{name}": AddressPoolExhausted: {message}',
    )
