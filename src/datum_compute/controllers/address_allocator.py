"""Allocation of all instance addresses of each cell.

- An address is recorded in the status of its Instance before a machine uses it, and the Instance
  exists until its machine is gone.
- Until an address is recorded the allocator keeps it in memory, so that two reconciles never choose
  the same one. Choosing an address does not await anything, so two choices do not overlap.
- After a restart the recorded addresses are read again.
- An address is free when neither its Instance nor its Server exists. That is checked when another
  instance needs an address.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datum_compute.api.compute.deployment import NetworkAttachment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.network.addresses import addresses_of, plan_address
from datum_compute.runtime.cached_client import CachedClient


@dataclass(frozen=True, slots=True)
class AddressOwner:
    """The Instance that has an address; ``uid`` is empty if only its Server was found."""

    ref: Ref
    uid: str


@dataclass(slots=True)
class _CellAddresses:
    """The owners of the addresses of one cell. They are read again for a new client of the cell."""

    client: CachedClient
    owners: dict[str, AddressOwner] = field(default_factory=dict)


class AddressAllocator:
    def __init__(self) -> None:
        self._cells: dict[PlaneName, _CellAddresses] = {}

    def allocate(
        self, client: CachedClient, attachment: NetworkAttachment, instance: Instance
    ) -> list[str] | None:
        """Return an address of each prefix; None if a prefix has no free address.

        Repeated calls for an instance return the same addresses.
        """
        cell = self._cell_addresses(client)
        owner = AddressOwner(ref_of(instance), instance.metadata.uid)
        allocated: list[str] = []
        for attached in attachment.prefixes:

            def is_taken(address: str) -> bool:
                return not self._is_free(cell, address, owner)

            address = plan_address(attached.prefix, str(owner.ref), is_taken)
            if address is None:
                return None
            allocated.append(address)
        cell.owners.update(dict.fromkeys(allocated, owner))
        return allocated

    def _cell_addresses(self, client: CachedClient) -> _CellAddresses:
        cell = self._cells.get(client.plane)
        if cell is None or cell.client is not client:
            cell = self._cells[client.plane] = _CellAddresses(client)
            for instance in client.read(INSTANCE).all():
                owner = AddressOwner(ref_of(instance), instance.metadata.uid)
                for address in addresses_of(instance.status.network_interfaces):
                    cell.owners[address] = owner
            for server in client.read(SERVER).all():
                for address in addresses_of(server.spec.interfaces):
                    cell.owners.setdefault(address, AddressOwner(ref_of(server), ""))
        return cell

    def _is_free(self, cell: _CellAddresses, address: str, requester: AddressOwner) -> bool:
        owner = cell.owners.get(address)
        if owner is None or owner == requester:
            return True
        holder = cell.client.read(INSTANCE).get(owner.ref)
        if holder is not None and holder.metadata.uid == owner.uid:
            return False
        server = cell.client.read(SERVER).get(owner.ref)
        return server is None or address not in addresses_of(server.spec.interfaces)
