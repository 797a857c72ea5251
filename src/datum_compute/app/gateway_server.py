"""The gateway of a manager: the same as that of the embedded server, before API servers of others.

Beside the projects it knows callers by their token for the project's plane, and relays to the cells
that the hub knows. Beside a cell it answers the hub, which shows the token that it has for the
cell's plane, with what the cell's driver knows. Every replica answers, whoever leads: with clients
of its own, which write nothing. The addresses: ``members.py`` for those of cells, the ConfigMap of
``api/gateway.py`` for whoever asks from outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from random import Random

from datum_compute.api.core import Namespace
from datum_compute.api.errors import NotFound, to_status
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.api.planes import HUB, PlaneName, plane_role, split_path
from datum_compute.app.audit_log import audit_line
from datum_compute.app.cluster_members import Members, Relay, Unengaged, gateway_of, unoffered
from datum_compute.app.environment import Ports
from datum_compute.app.listener import PortHandler, open_tls_port
from datum_compute.app.pod_client import ClientInsides
from datum_compute.app.settings.settings import ManagerSettings
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.drivers.pods.queries import PodQueries
from datum_compute.gateway.authorizer import Dispatch, RemoteGatewayAuthorizer
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints
from datum_compute.gateway.gateway import Gateway, federated_space
from datum_compute.server.access.audit import AuditEvent

OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]

_log = logging.getLogger(__name__)
_trail = logging.getLogger("datum_compute.audit")


class OnDemand:
    """A transport that its first request opens."""

    def __init__(
        self, opened: AbstractAsyncContextManager[Transport], stack: AsyncExitStack
    ) -> None:
        self._opened = opened
        self._stack = stack
        self._transport: Transport | None = None
        self._turn = asyncio.Lock()

    async def send(self, request: Request) -> Response:
        async with self._turn:
            if self._transport is None:
                self._transport = await self._stack.enter_async_context(self._opened)
        return await self._transport.send(request)


@dataclass(frozen=True, slots=True)
class GatewayDependencies:
    """How the manager reaches planes; ``connection_of`` also those that came later. Transports of
    ``open_transport`` can leave HTTP."""

    planes: Collection[PlaneName]
    connection_of: Callable[[PlaneName], Connection]
    open_transport: OpenTransport
    stack: AsyncExitStack
    ports: Ports
    single: bool


class PlaneClients:
    """One connection for each plane that is known from the start, one for all that come later:
    whatever somebody asks for, no more are opened."""

    def __init__(self, around: GatewayDependencies) -> None:
        self._around = around
        self._transports: dict[PlaneName | None, OnDemand] = {}

    def __call__(self, plane: PlaneName) -> Client:
        around = self._around
        connection = around.connection_of(plane)
        key = plane if plane in around.planes else None
        if key not in self._transports:
            self._transports[key] = OnDemand(around.open_transport(connection), around.stack)
        return build_client(connection, self._transports[key])


async def open_gateway(settings: ManagerSettings, around: GatewayDependencies) -> None:
    """Serve until the stack is closed, if that was asked for."""
    if settings.ports.gateway is None:
        return
    clients, ports = PlaneClients(around), around.ports
    ways = _ways(settings, around, clients)
    gateway = Gateway(
        _nothing_else,
        clients,
        ways,
        RemoteGatewayAuthorizer(clients, ports.unix_s, ports.elapsed_s, _note),
        ports.unix_s,
        _same_space if around.single else federated_space,
    )
    if settings.controllers.management and not around.single:
        _meet_members(around, clients(HUB), ways)
    dispatch = _only(_own(settings, around), gateway.dispatch)
    handler = PortHandler("gateway", dispatch, ports.unix_s)
    opened = open_tls_port(settings.ports.gateway, handler, settings.state_dir)
    await around.stack.enter_async_context(opened)


def _ways(
    settings: ManagerSettings, around: GatewayDependencies, clients: PlaneClients
) -> CellEndpoints:
    """To the cells of this manager; its simulated machines say nothing."""
    cells = (
        [p for p in around.planes if plane_role(p) == "cell"] if settings.controllers.cell else []
    )
    if settings.driver.name != "pods":
        return CellEndpoints({}, cells)
    inside: dict[PlaneName, CellEndpoint] = {
        cell: PodQueries(ClientInsides(clients(cell))) for cell in cells
    }
    return CellEndpoints(inside)


def _meet_members(around: GatewayDependencies, hub: Client, ways: CellEndpoints) -> None:
    """Cells of the hub, for as long as the gateway is served."""
    members = Members(
        hub,
        Unengaged(),
        unoffered,
        around.open_transport,
        Random(around.ports.random.getrandbits(64)),  # noqa: S311 - jitter, not secrets
        relay=Relay(ways, around.open_transport),
        connected_to=gateway_of,
    )
    meeting = asyncio.create_task(members.run())
    meeting.add_done_callback(_tell_of_end)
    around.stack.callback(meeting.cancel)


def _tell_of_end(meeting: asyncio.Task[None]) -> None:
    if not meeting.cancelled() and meeting.exception() is not None:
        _log.error("cells are no longer followed; start again", exc_info=meeting.exception())


def _own(settings: ManagerSettings, around: GatewayDependencies) -> Callable[[PlaneName], bool]:
    """Whose planes this manager answers for."""
    groups = settings.controllers
    roles = {role for role, on in (("project", groups.management), ("cell", groups.cell)) if on}

    def is_own(plane: PlaneName) -> bool:
        role = plane_role(plane)
        return role in roles and (plane in around.planes or role == "project")

    return is_own


def _only(is_own: Callable[[PlaneName], bool], dispatch: Dispatch) -> Dispatch:
    async def answer(request: Request) -> Response:
        plane, _ = split_path(request.path)
        return await (dispatch if is_own(plane) else _nothing_else)(request)

    return answer


async def _nothing_else(request: Request) -> Response:
    error = NotFound("this address serves a gateway for other planes")
    return Response(error.code, encode(to_status(error)))


def _same_space(namespace: Namespace) -> str:
    return namespace.metadata.name


def _note(event: AuditEvent) -> None:
    _trail.info("%s", audit_line(event))
