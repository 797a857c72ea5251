"""Choose the addresses of instances from the prefixes of their network.

- Some addresses of a prefix are reserved: the first one, the second one, which is the gateway, and
  the last one of an IPv4 prefix, which is the broadcast address.
- The search starts at an index computed from the name of the instance, so an instance that is
  created again gets its previous address if it is still free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec.structs import replace

from datum_compute.api.compute.deployment import NetworkAttachment
from datum_compute.api.compute.instance import (
    Instance,
    InterfaceAddress,
    NetworkAssignments,
    NetworkInterfaceStatus,
)
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, ConditionValue, Reason

# An IPv6 prefix has too many addresses to try all of them.
_TRIES_MAX = 1 << 16
INTERFACE = "eth0"


@dataclass(frozen=True, slots=True)
class Block:
    """The addresses of a prefix that instances can have: ``count`` addresses from ``first``."""

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
    """Return a free address for the instance with this name; None if none is found."""
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
    """Return the interface with an address of each prefix of the attachment."""
    requested = instance.spec.network_interfaces
    assigned = [
        InterfaceAddress(
            family=attached.family,
            address=address,
            prefix_length=block_of(attached.prefix).length,
            gateway=attached.gateway,
        )
        for attached, address in zip(attachment.prefixes, addresses, strict=True)
    ]
    return NetworkInterfaceStatus(
        name=requested[0].name if requested else INTERFACE,
        assignments=NetworkAssignments(network_ip=assigned[0].address),
        addresses=assigned,
        mtu=attachment.mtu,
    )


def assigned_interfaces(
    interfaces: Sequence[NetworkInterfaceStatus],
) -> list[NetworkInterfaceStatus]:
    """Return the interfaces with the assigned address, even if the machine uses another one."""
    return [_with_network_ip(i, i.addresses[0].address) if i.addresses else i for i in interfaces]


def reachable_interfaces(
    interfaces: Sequence[NetworkInterfaceStatus], own: Sequence[str]
) -> list[NetworkInterfaceStatus]:
    """Return the interfaces with the address at which the machine is reachable.

    ``own`` are the addresses that the machine reports. The assigned address is used if it is one of
    them, otherwise the first of them: a pod has an address of its cluster. While the machine
    reports no address, the last one is kept.
    """
    if not interfaces or not own:
        return list(interfaces)
    assigned = assigned_interfaces(interfaces)
    if any(address in own for address in addresses_of(assigned)):
        return assigned
    return [_with_network_ip(assigned[0], own[0]), *assigned[1:]]


def _with_network_ip(interface: NetworkInterfaceStatus, address: str) -> NetworkInterfaceStatus:
    assignments = replace(interface.assignments, network_ip=address)
    return replace(interface, assignments=assignments)


def missing_location_fields(
    instance: Instance, attachment: NetworkAttachment | None
) -> dict[str, Any]:
    """Return the location, for an instance that was created before the location was known."""
    if attachment is None or not attachment.location or instance.spec.location is not None:
        return {}
    return {"location": {"name": attachment.location}}


def network_verdict(
    instance: Instance, attachment: NetworkAttachment | None, interfaces: Sequence[object]
) -> ConditionValue:
    """Return NetworkReady of the instance; ``interfaces`` are those assigned to it."""
    requested = instance.spec.network_interfaces
    name = requested[0].name if requested else INTERFACE
    if interfaces:
        return ConditionValue(TRUE, Reason.READY, "All addresses are assigned")
    if attachment is None:
        return ConditionValue(UNKNOWN, Reason.NETWORK_PROVISIONING, "The network is being set up")
    if attachment.problem is not None:
        problem = attachment.problem
        if problem.reason == Reason.NETWORK_NOT_FOUND:
            message = f'Interface "{name}": {problem.message}'
            return ConditionValue(FALSE, Reason.NETWORK_NOT_FOUND, message)
        message = f'Interface "{name}": {problem.reason}: {problem.message}'
        return ConditionValue(FALSE, Reason.NETWORK_FAILED_TO_CREATE, message)
    sizes = [f"all {block_of(a.prefix).count} addresses of {a.prefix}" for a in attachment.prefixes]
    message = f"{' or '.join(sizes)} ({attachment.network}) are taken"
    return ConditionValue(
        FALSE,
        Reason.NETWORK_FAILED_TO_CREATE,
        f'Interface "{name}": AddressPoolExhausted: {message}',
    )
