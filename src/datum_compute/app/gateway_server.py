"""The gateway of a manager: serves logs, usage and commands of instances for foreign API servers.

A manager with projects authenticates users by their token for the plane of the project, and relays
requests to the cells of the hub. A manager with cells serves the hub, which authenticates with its
token for the plane of the cell. Every replica serves the gateway, also while another one leads; its
clients write nothing. The annotation of a Cluster contains the address of the gateway of a cell
(``planes/cell_members.py``), and a ConfigMap that of a project (``api/gateway.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from datum_compute.api.core import Namespace
from datum_compute.api.errors import NotFound, to_status
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.api.planes import HUB, PlaneName, plane_role, split_path
from datum_compute.app.audit_log import audit_line
from datum_compute.app.controllers import ManagerOptions, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.listener import PortHandler, open_tls_port
from datum_compute.app.pod_client import PodAccessClient
from datum_compute.app.settings.settings import ManagerSettings
from datum_compute.client.auth.connection import Connection, OpenTransport
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.drivers.pods.queries import PodQueries
from datum_compute.gateway.authorizer import Dispatch, RemoteGatewayAuthorizer
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints, GatewayConnector
from datum_compute.gateway.gateway import Gateway, federation_namespace_of
from datum_compute.planes.cell_members import CellMemberOptions, gateway_connection_to
from datum_compute.server.access.audit import AuditEvent

_log = logging.getLogger(__name__)
_audit_log = logging.getLogger("datum_compute.audit")


class LazyTransport:
    """A transport that its first request opens."""

    def __init__(
        self, opened: AbstractAsyncContextManager[Transport], stack: AsyncExitStack
    ) -> None:
        self._opened = opened
        self._stack = stack
        self._transport: Transport | None = None
        self._lock = asyncio.Lock()

    async def send(self, request: Request) -> Response:
        async with self._lock:
            if self._transport is None:
                self._transport = await self._stack.enter_async_context(self._opened)
        return await self._transport.send(request)


@dataclass(frozen=True, slots=True)
class GatewayDependencies:
    """How the manager reaches planes.

    ``connection_of`` also returns connections to projects that were created later. Transports of
    ``open_transport`` support upgraded connections.
    """

    planes: Collection[PlaneName]
    connection_of: Callable[[PlaneName], Connection]
    open_transport: OpenTransport
    stack: AsyncExitStack
    environment: ProcessEnvironment


class PlaneClients:
    """One connection for each plane known at the start, and one for all projects created later.

    Requests for unknown planes therefore cannot open an unlimited number of connections.
    """

    def __init__(self, dependencies: GatewayDependencies) -> None:
        self._dependencies = dependencies
        self._transports: dict[PlaneName | None, LazyTransport] = {}

    def __call__(self, plane: PlaneName) -> Client:
        dependencies = self._dependencies
        connection = dependencies.connection_of(plane)
        key = plane if plane in dependencies.planes else None
        if key not in self._transports:
            opened = dependencies.open_transport(connection)
            self._transports[key] = LazyTransport(opened, dependencies.stack)
        return build_client(connection, self._transports[key])


async def open_gateway(settings: ManagerSettings, dependencies: GatewayDependencies) -> None:
    """Serve the gateway until the stack is closed, if the settings contain its address."""
    if settings.ports.gateway is None:
        return
    clients, environment = PlaneClients(dependencies), dependencies.environment
    is_single_cluster = settings.planes.is_single_cluster
    endpoints = _cell_endpoints(settings, dependencies, clients)
    gateway = Gateway(
        _refuse_plane,
        clients,
        endpoints,
        RemoteGatewayAuthorizer(
            clients, environment.unix_s, environment.elapsed_s, _log_audit_event
        ),
        environment.unix_s,
        _namespace_name if is_single_cluster else federation_namespace_of,
    )
    if settings.controllers.management and not is_single_cluster:
        connect_cells(dependencies, clients(HUB), endpoints)
    dispatch = _limit_planes(_served_planes(settings, dependencies), gateway.dispatch)
    handler = PortHandler("gateway", dispatch, environment.unix_s)
    opened = open_tls_port(settings.ports.gateway, handler, settings.state_dir)
    await dependencies.stack.enter_async_context(opened)


def _cell_endpoints(
    settings: ManagerSettings, dependencies: GatewayDependencies, clients: PlaneClients
) -> CellEndpoints:
    """Return the cells of this manager; simulated machines have no logs or commands."""
    cells = []
    if settings.controllers.cell:
        cells = [plane for plane in dependencies.planes if plane_role(plane) == "cell"]
    if settings.driver.name != "pods":
        return CellEndpoints({}, cells)
    endpoints: dict[PlaneName, CellEndpoint] = {
        cell: PodQueries(PodAccessClient(clients(cell))) for cell in cells
    }
    return CellEndpoints(endpoints)


def connect_cells(dependencies: GatewayDependencies, hub: Client, endpoints: CellEndpoints) -> None:
    """Connect to the cells of the hub until the stack is closed.

    Only the gateway uses these connections, and every replica has them, so they have a manager of
    their own beside that of the leader.
    """
    members = CellMemberOptions(
        dependencies.open_transport,
        connect_gateway=GatewayConnector(endpoints, dependencies.open_transport).connect,
        connection_of=gateway_connection_to,
        engages_planes=False,
    )
    manager = build_manager(
        (), {}, dependencies.environment, options=ManagerOptions(cell_members=members)
    )
    manager.engage(HUB, hub)
    connecting = asyncio.create_task(manager.run())
    connecting.add_done_callback(_log_end)
    dependencies.stack.callback(connecting.cancel)


def _log_end(connecting: asyncio.Task[None]) -> None:
    if not connecting.cancelled() and connecting.exception() is not None:
        error = connecting.exception()
        _log.error("the gateway lost track of cells; restart the process", exc_info=error)


def _served_planes(
    settings: ManagerSettings, dependencies: GatewayDependencies
) -> Callable[[PlaneName], bool]:
    """Return a check for the planes of this manager."""
    groups = settings.controllers
    roles = {role for role, on in (("project", groups.management), ("cell", groups.cell)) if on}

    def is_served(plane: PlaneName) -> bool:
        role = plane_role(plane)
        return role in roles and (plane in dependencies.planes or role == "project")

    return is_served


def _limit_planes(is_served: Callable[[PlaneName], bool], dispatch: Dispatch) -> Dispatch:
    async def dispatch_limited(request: Request) -> Response:
        plane, _ = split_path(request.path)
        return await (dispatch if is_served(plane) else _refuse_plane)(request)

    return dispatch_limited


async def _refuse_plane(request: Request) -> Response:
    error = NotFound("this gateway does not serve the plane of the request")
    return Response(error.code, encode(to_status(error)))


def _namespace_name(namespace: Namespace) -> str:
    return namespace.metadata.name


def _log_audit_event(event: AuditEvent) -> None:
    _audit_log.info("%s", audit_line(event))
