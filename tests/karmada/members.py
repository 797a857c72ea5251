"""A real Karmada and four members: two real API servers, and two cells of our own server.

Karmada uses the shipped account of the hub (``compute-hub`` of
deploy/federation/cell/accounts.yaml) on every cell. None of our controllers run: the tests act in
their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from datum_compute.client.client import Client
from testkit.processes.api_servers import RealPlane, RealServers
from testkit.processes.karmada import DEPLOY, Karmada
from tests.karmada.federation import Federation, Story, run_real
from tests.karmada.ours import OurPlane

REAL, OURS = ("dfw", "ord"), ("lhr", "syd")
ACCOUNTS = DEPLOY / "federation" / "cell" / "accounts.yaml"


@dataclass
class Members:
    servers: RealServers
    hub: Callable[[RealPlane], Karmada]
    cells: dict[str, RealPlane | OurPlane] = field(default_factory=dict)
    karmadas: list[Karmada] = field(default_factory=list)

    @property
    def karmada(self) -> Karmada:
        return self.karmadas[0]

    def start(self) -> None:
        self.servers.start_etcd()
        hub, *real = self.servers.start_planes("hub", *REAL)
        self.karmadas.append(self.hub(hub))
        self.cells |= dict(zip(REAL, real, strict=True))
        self.cells |= {name: OurPlane(name, self.servers.folder / name) for name in OURS}
        for name in OURS:
            self.cells[name].start()
        with ThreadPoolExecutor() as pool:
            equipped = [pool.submit(_equip, cell) for cell in self.cells.values()]
            self.karmada.install()
            for done in equipped:
                done.result()
        for name in self.cells:
            self.register(name)

    def register(self, name: str) -> None:
        cell = self.cells[name]
        token = cell.token("compute-hub")
        self.karmada.register(name, name.upper(), cell.server, token, cell.authority)

    def stop(self) -> None:
        for karmada in self.karmadas:
            karmada.down()
        for name in OURS:
            if name in self.cells:
                self.cells[name].running.stop()
        self.servers.stop()

    def run(self, story: Story, name: str, *, mixed: bool) -> None:
        near, far = OURS if mixed else REAL

        def federation(clients: Mapping[str, Client]) -> Federation:
            return Federation(
                hub=clients["hub"],
                cells=clients,
                near=near,
                far=far,
                story=name,
                is_karmada=True,
                unreachable=lambda cell: self.cells[cell].running.kill(),
                heal=self._revive,
                join=self.register,
            )

        hub = self.karmada.plane
        wanted = {"hub": (hub.kubeconfig, hub.name)}
        wanted |= {
            cell: (self.cells[cell].kubeconfig, self.cells[cell].name) for cell in (near, far)
        }
        run_real(story, federation, wanted)

    def _revive(self, name: str) -> None:
        self.cells[name].start()
        self.cells[name].await_ready()


def _equip(cell: RealPlane | OurPlane) -> None:
    if isinstance(cell, OurPlane):
        cell.await_ready()
    else:
        cell.admin("apply", "--server-side", "-f", str(DEPLOY / "crds"))
        cell.admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cell.admin("apply", "-f", str(ACCOUNTS))
