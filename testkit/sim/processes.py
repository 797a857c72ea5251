"""Processes of cells that have joined, and managers that elect a leader.

The center follows the Clusters of its hub, and a cell reaches its slice of hub and projects with
its certificate, as in ``compute-server`` and ``compute-cell``. Keys are derived from names, so that
a replay has the same ones; the certificates are real. A leading manager runs its controllers only
while it holds its leases, as ``compute-manager`` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.membership import CellJoinSpec, cell_user_of
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane, path_prefix
from datum_compute.app.certificates import authority_of, request_of, sign_certificate
from datum_compute.app.controllers import (
    ManagerOptions,
    build_manager,
    engage_configured_planes,
)
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.heartbeat import Heartbeat
from datum_compute.app.platform import MANAGER_AGENT, Platform
from datum_compute.app.settings.settings import HeartbeatSettings
from datum_compute.client.auth.connection import Connection
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers.context import Context
from datum_compute.planes.cell_members import CellMemberOptions
from datum_compute.planes.planes import hub_label_scope
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.leader_election import (
    Election,
    FencedTransport,
    LeaseConfig,
    check_all,
    lead_all,
)
from datum_compute.server.access.client_certificates import (
    Certify,
    IssuedCertificate,
    SigningRequest,
)
from testkit.sim.scenario.scenario import city_of

if TYPE_CHECKING:
    from testkit.sim.network import WrapTransport

HUB_TOKEN = "token-of-hub-on-cells"  # noqa: S105 - also a canary: no log or object may contain it
HEARTBEAT_S = 4.0  # shorter than the time after which a cell counts as unreachable
_LIFETIME = timedelta(days=30)

RunComponent = Callable[[], Awaitable[None]]


def key_of(name: str) -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")
    return ec.derive_private_key(number + 1, ec.SECP256R1())


@lru_cache(maxsize=64)
def join_spec(cell: str, city: str, wipe_count: int) -> CellJoinSpec:
    """Return the join request of a cell. A wiped cell has a new key."""
    return CellJoinSpec(
        cell=cell,
        city=city,
        endpoint=f"https://cell-{cell}{path_prefix(cell_plane(cell))}",
        authority="the authority of the cell",
        hub_token=HUB_TOKEN,
        request=request_of(key_of(f"{cell}/{wipe_count}"), cell_user_of(cell)),
    )


@lru_cache(maxsize=1)
def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = key_of("authority")
    return key, authority_of(key, datetime.fromtimestamp(0, UTC))


def certifier(unix_s: Callable[[], float]) -> Certify:
    def certify(requested: SigningRequest, user: str, groups: tuple[str, ...]) -> IssuedCertificate:
        now = datetime.fromtimestamp(unix_s(), UTC)
        return sign_certificate(*_authority(), requested, user, groups, now, _LIFETIME)

    return certify


@dataclass(frozen=True, slots=True)
class CertificateTransport:
    """Adds the client certificate that the TLS port would have verified."""

    inner: Transport
    certificate: Callable[[], str]

    async def send(self, request: Request) -> Response:
        return await self.inner.send(replace(request, certificate_pem=self.certificate()))


def cell_member_options(reach: Callable[[PlaneName], Transport]) -> CellMemberOptions:
    """Return how the center connects to cells that have joined."""

    @asynccontextmanager
    async def open_transport(connection: Connection) -> AsyncIterator[Transport]:
        yield reach(cell_plane(connection.context))

    return CellMemberOptions(open_transport)


def client_with_certificate(
    plane: PlaneName, reach: Callable[[PlaneName], Transport], certificate: Callable[[], str]
) -> Client:
    """Return the client of a joined cell for the hub or a project."""
    transport = CertificateTransport(reach(plane), certificate)
    return Client(transport, prefix=path_prefix(plane), token="", agent=MANAGER_AGENT)


def build_cell_components(
    cell: str, platform: Platform, environment: ProcessEnvironment, hub: Client
) -> Sequence[RunComponent]:
    plane = cell_plane(cell)

    async def work_with_hub() -> None:
        platform.engage(HUB, hub, hub_label_scope(cell, city_of(cell)))

    heartbeat = Heartbeat(
        hub,
        cell,
        HeartbeatSettings(HEARTBEAT_S),
        environment.unix_s,
        lambda: {"instances": str(platform.count_objects(plane, INSTANCE))},
    )
    return (work_with_hub, heartbeat.run)


LEASE_NAMESPACE = "kube-system"
# As in compute-manager: one Lease for each group of controllers.
LEADER_LEASES = ("compute-manager-management", "compute-manager-propagator")


@dataclass(frozen=True, slots=True)
class LeadingProcess:
    """One process of a manager. It waits for its leases, runs, and ends when it loses a lease."""

    process_name: str
    controllers: Sequence[Controller[Context]]
    planes: Sequence[PlaneName]
    token: str
    environment: ProcessEnvironment
    reach: Callable[[PlaneName, WrapTransport], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"{self.process_name} serves no plane: {request.path}")

    async def run(self) -> None:
        elections = [self._election(name) for name in LEADER_LEASES]
        check = check_all(election.fence for election in elections)

        async def fenced_client(plane: PlaneName) -> Client:
            return self._client(plane, lambda inner: FencedTransport(inner, check))

        manager = build_manager(
            self.controllers,
            {},
            self.environment,
            options=ManagerOptions(fence=check, reach=fenced_client),
        )
        clients = {plane: await fenced_client(plane) for plane in self.planes}
        engage_configured_planes(manager, clients, self.controllers)
        await lead_all(elections, manager.run)

    def is_ready(self) -> bool:
        return True

    def _election(self, name: str) -> Election:
        return Election(
            self._client(HUB, lambda inner: inner),
            LeaseConfig(Ref(LEASE_NAMESPACE, name), self.process_name),
            clock=self.environment.elapsed_s,
            unix_s=self.environment.unix_s,
            random=self.environment.random,
        )

    def _client(self, plane: PlaneName, wrap: WrapTransport) -> Client:
        return Client(
            self.reach(plane, wrap),
            prefix=path_prefix(plane),
            token=self.token,
            agent=MANAGER_AGENT,
        )
