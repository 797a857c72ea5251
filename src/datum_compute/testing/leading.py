"""Two managers of which one leads, as several ``compute-manager`` run, and the rule between them.

The rule (F16): who does not hold the lease sends no write. It is looked at when a write leaves,
because what is on the wire already must be harmless by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import LEASE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, PlaneName, path_prefix
from datum_compute.app.ports import Ports
from datum_compute.app.wiring import MANAGER_AGENT, build_manager
from datum_compute.client.client import Client
from datum_compute.client.transport import Transport
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.leader_election import (
    Election,
    FencedTransport,
    LeaseConfig,
    check_all,
    lead_all,
)
from datum_compute.store.journal import ObjectKey
from datum_compute.testing.layout import MANAGERS
from datum_compute.testing.truth import Truth
from datum_compute.testing.virtual_loop import HOST

if TYPE_CHECKING:
    from datum_compute.testing.network import Around

_NAMESPACE = "kube-system"
# As compute-manager names them: one for each group of controllers.
_LEASES = ("compute-manager-management", "compute-manager-propagator")


@dataclass(frozen=True, slots=True)
class LeadingProcess:
    """One life of a manager that waits to lead, works, and ends when it has lost a lease."""

    life: str
    controllers: Sequence[Controller[Context]]
    planes: Sequence[PlaneName]
    token: str
    ports: Ports
    reach: Callable[[PlaneName, Around], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"{self.life} serves nothing: {request.path}")

    async def run(self) -> None:
        elections = [self._election(name) for name in _LEASES]
        check = check_all(election.fence for election in elections)

        async def fenced(plane: PlaneName) -> Client:
            return self._client(plane, lambda inner: FencedTransport(inner, check))

        manager = build_manager(self.controllers, {}, self.ports, fence=check, reach=fenced)
        for plane in self.planes:
            manager.engage(plane, await fenced(plane))
        await lead_all(elections, manager.run)

    def is_ready(self) -> bool:
        return True

    def _election(self, name: str) -> Election:
        return Election(
            self._client(HUB, lambda inner: inner),
            LeaseConfig(Ref(_NAMESPACE, name), self.life),
            clock=self.ports.elapsed_s,
            unix_s=self.ports.unix_s,
            random=self.ports.random,
        )

    def _client(self, plane: PlaneName, around: Around) -> Client:
        return Client(
            self.reach(plane, around),
            prefix=path_prefix(plane),
            token=self.token,
            agent=MANAGER_AGENT,
        )


def usurper_complaint(truth: Truth, source: str, request: Request) -> str:
    """I11: a write of a manager that does not hold every lease, as it is sent."""
    if source not in MANAGERS or request.method in ("GET", "HEAD"):
        return ""
    if f"/{LEASE.plural}" in request.path:
        return ""
    for name in _LEASES:
        row = truth.rows[HUB].get(ObjectKey(LEASE.storage, _NAMESPACE, name))
        holder = row["spec"].get("holderIdentity", "") if row is not None else ""
        if holder != HOST.get():
            return f"I11: {HOST.get()} writes {request.path}, the lease {name} is {holder}'s"
    return ""
