"""Who has which address on each cell: the one place where addresses are handed out.

An address is on record on the Instance (its status) before any machine gets it, and the Instance is
there until its machine is gone. Between the choice and that record the book remembers it, so two
instances that are looked at at the same moment never get the same. Choosing takes no time (nothing
is awaited), so one choice is made after the other.

After a restart the book is filled from what is on record. An address becomes free when neither the
Instance nor the Server that has it is there any more; that is seen when somebody asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.workloaddeployment import NetworkAttachment
from datum_compute.planning.network.addresses import addresses_of, plan_address
from datum_compute.runtime.cached_client import CachedClient


@dataclass(frozen=True, slots=True)
class Owner:
    ref: Ref
    uid: str


@dataclass(slots=True)
class _Page:
    """The addresses of one cell, as long as this view of it lasts."""

    view: CachedClient
    owners: dict[str, Owner] = field(default_factory=dict)


class AddressAllocator:
    def __init__(self) -> None:
        self._pages: dict[PlaneName, _Page] = {}

    def addresses(
        self, view: CachedClient, attachment: NetworkAttachment, instance: Instance
    ) -> list[str] | None:
        """One of each prefix, the same ones whenever this instance asks; None if there are not
        enough."""
        page = self._page(view)
        owner = Owner(ref_of(instance), instance.metadata.uid)
        chosen: list[str] = []
        for attached in attachment.prefixes:

            def is_taken(address: str) -> bool:
                return not self._is_free(page, address, owner)

            address = plan_address(attached.prefix, str(owner.ref), is_taken)
            if address is None:
                return None
            chosen.append(address)
        page.owners.update(dict.fromkeys(chosen, owner))
        return chosen

    def _page(self, view: CachedClient) -> _Page:
        page = self._pages.get(view.plane)
        if page is None or page.view is not view:
            page = self._pages[view.plane] = _Page(view)
            for instance in view.read(INSTANCE).all():
                owner = Owner(ref_of(instance), instance.metadata.uid)
                for address in addresses_of(instance.status.network_interfaces):
                    page.owners[address] = owner
            for server in view.read(SERVER).all():
                for address in addresses_of(server.spec.interfaces):
                    page.owners.setdefault(address, Owner(ref_of(server), ""))
        return page

    def _is_free(self, page: _Page, address: str, asking: Owner) -> bool:
        owner = page.owners.get(address)
        if owner is None or owner == asking:
            return True
        holder = page.view.read(INSTANCE).get(owner.ref)
        if holder is not None and holder.metadata.uid == owner.uid:
            return False
        server = page.view.read(SERVER).get(owner.ref)
        return server is None or address not in addresses_of(server.spec.interfaces)
