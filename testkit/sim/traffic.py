"""Published ports of a simulated host: the product's load balancer and sleep logic, without
sockets.

A connection is possible only to a machine that runs at its provider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.connections.draining import wrap_drivers
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.simulated.behaviors import machine_state
from datum_compute.ingress.balancer import BackendConnection, LoadBalancer, PublishedPort
from testkit.sim.provider import Provider, ProviderDriver

_FIRST_PORT = 30_000


class SimulatedTraffic:
    """The published ports of one process."""

    def __init__(
        self,
        drivers: Mapping[PlaneName, ProviderDriver],
        providers: Mapping[PlaneName, Provider],
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
    ) -> None:
        self._providers = providers
        self._ports: dict[tuple[str, str], tuple[PublishedPort, int]] = {}
        self.refused: set[str] = set()
        history = WakeHistory(unix_s, elapsed_s)
        idle_scaler = IdleScaler(drivers, elapsed_s, history)
        self.balancer: LoadBalancer[Backend] = LoadBalancer(
            idle_scaler, history, self._connect, elapsed_s
        )
        self.drivers: dict[PlaneName, Driver] = wrap_drivers(
            drivers, self.balancer, history, elapsed_s
        )

    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        known = self._ports.get((owner, name))
        if known is None:
            taken = {number for _, number in self._ports.values()}
            free = next(n for n in range(_FIRST_PORT, 2**16) if n not in taken)
            number = last_port if last_port and last_port not in taken else free
            known = self._ports[owner, name] = (PublishedPort(), number)
        self.balancer.set_backends(known[0], backends)
        self._remove_closed()
        return "127.0.0.1", known[1]

    def refuse(self, owner: str, *, refused: bool) -> None:
        """Record it. Without sockets a refused connection is one without a backend."""
        if refused:
            self.refused.add(owner)
        else:
            self.refused.discard(owner)

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        for key in [k for k in self._ports if k[0] == owner and k[1] not in kept]:
            del self._ports[key]
        self._remove_closed()

    def ports_of(self, plane: PlaneName) -> list[PublishedPort]:
        """Return the ports of a cell that have a backend."""
        keys = sorted(key for key in self._ports if key[0].split(" ")[0] == plane)
        return [self._ports[key][0] for key in keys if self._ports[key][0].backends]

    async def connect(self, port: PublishedPort) -> BackendConnection[Backend] | None:
        return await self.balancer.connect(port)

    def runs(self, backend: Backend) -> bool:
        """Return True if the machine runs at its provider."""
        provider = self._providers[backend.cell]
        machine = provider.alive().get(backend.machine_id)
        return machine is not None and machine_state(machine, provider.now()).phase == "Running"

    async def _connect(self, backend: Backend) -> Backend | None:
        return backend if self.runs(backend) else None

    def _remove_closed(self) -> None:
        self.balancer.keep_only(port for port, _ in self._ports.values())
