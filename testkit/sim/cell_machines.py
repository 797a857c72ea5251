"""The machines that cells are on, where cells join and leave: what lies on their disks, and what is
left when one is wiped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from datum_compute.api.plane import HUB, PlaneName, cell_plane
from datum_compute.client.client import Client
from datum_compute.store.memory import MemoryJournal
from testkit.sim.host import SimulatedHost
from testkit.sim.provider import Provider

_OFF_S = 2.0
_START_S = 0.1


@dataclass(slots=True)
class CellMachines:
    hosts: Mapping[str, SimulatedHost]
    providers: Mapping[PlaneName, Provider]
    forget: Callable[[str], None]
    client: Callable[[PlaneName, str], Client]
    wiped: dict[str, int] = field(default_factory=dict)

    def incarnation(self, cell: str) -> int:
        return self.wiped.get(cell, 0)

    def keep(self, cell: str, certificate: str) -> None:
        """Its process is started when it has joined; one that was a member before runs on."""
        host = self._host(cell)
        is_first, host.certificate = not host.certificate, certificate
        if is_first:
            host.crash(down_s=_START_S)

    def wipe(self, cell: str) -> None:
        host, plane = self._host(cell), cell_plane(cell)
        self.wiped[cell] = self.incarnation(cell) + 1
        host.crash(down_s=_OFF_S)
        host.disk.journal = MemoryJournal()
        host.certificate = ""
        self.forget(plane)
        self.providers[plane].machines.clear()

    def joining_with(self, token: str) -> Client:
        return self.client(HUB, token)

    def _host(self, cell: str) -> SimulatedHost:
        return self.hosts[f"cell-{cell}"]
