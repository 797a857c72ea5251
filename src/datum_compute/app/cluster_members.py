"""Cells of other processes: the process connects to each cell while its Cluster exists.

A Cluster with an https endpoint is a cell of another process. As with Karmada, the Cluster names
the Secret with the credentials of the cell. When either changes, the connection is opened again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from datum_compute.api.core import Secret
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.gateway import GATEWAY, GATEWAY_AUTHORITY
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, Cluster
from datum_compute.api.kinds import CLUSTER, NAMESPACE, SECRET
from datum_compute.api.labels import TOPOLOGY_CITY, UPSTREAM_CLUSTER
from datum_compute.api.meta.objects import ApiObject, Ref, ref_of
from datum_compute.api.planes import (
    PlaneName,
    cell_plane,
    decode_project_label,
    member_name,
    project_plane,
)
from datum_compute.client.auth.connection import Connection, OpenTransport
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.responses import ListResult
from datum_compute.client.watch import Watched, follow
from datum_compute.gateway.cells import CellEndpoints, RemoteCell
from datum_compute.planes.planes import project_label_scope
from datum_compute.runtime.cached_client import LabelScope

T = TypeVar("T", bound=ApiObject)

RETRY_S = 5.0

_log = logging.getLogger(__name__)


class ObservedObjects(Generic[T]):
    """The objects of one kind on a plane. ``changed`` is set after every change."""

    def __init__(
        self, client: Client, watched: Watched[T], random: Random, changed: asyncio.Event
    ) -> None:
        self.objects: dict[Ref, T] = {}
        self.is_synced = False  # True after the first complete list
        self._client = client
        self._watched = watched
        self._random = random
        self._changed = changed

    async def run(self) -> None:
        async with aclosing(follow(self._client, self._watched, self._random)) as events:
            async for event in events:
                if isinstance(event, ListResult):
                    self.objects = {ref_of(obj): obj for obj in event.items}
                    self.is_synced = True
                elif event.object is None:
                    continue
                elif event.type == "DELETED":
                    self.objects.pop(ref_of(event.object), None)
                else:
                    self.objects[ref_of(event.object)] = event.object
                self._changed.set()


# --- Connections to cells


class CellHost(Protocol):
    """Runs controllers on cells."""

    def engage(self, plane: PlaneName, client: Client) -> None: ...

    def disengage(self, plane: PlaneName) -> None: ...


class NoControllers:
    """The host of a process that runs no controllers on cells."""

    def engage(self, plane: PlaneName, client: Client) -> None:
        """No-op."""

    def disengage(self, plane: PlaneName) -> None:
        """No-op."""


async def ignore_city(_city: str) -> None:
    """Ignore the city: another process registers it."""


@dataclass(frozen=True, slots=True)
class GatewayConnector:
    """Adds connected cells to the gateway of this process."""

    endpoints: CellEndpoints
    open_transport: OpenTransport

    async def connect(
        self, plane: PlaneName, connection: Connection, opened: AsyncExitStack
    ) -> None:
        """Connect the gateway to the cell until ``opened`` is closed."""
        transport = await opened.enter_async_context(self.open_transport(connection))
        cell = RemoteCell(member_name(plane), build_client(connection, transport))
        self.endpoints.add(plane, cell)
        opened.callback(self.endpoints.remove, plane)


@dataclass(frozen=True, slots=True)
class CellTarget:
    """Where cells connect: the host of their controllers, and the gateway."""

    host: CellHost
    # Called with the city of a cell before its controllers start.
    register_city: Callable[[str], Awaitable[None]] = ignore_city
    gateway: GatewayConnector | None = None
    local_cells: Collection[PlaneName] = ()  # of this process; they need no connection


@dataclass(frozen=True, slots=True)
class _CellConnection:
    connection: Connection
    opened: AsyncExitStack


def connection_to(cluster: Cluster, secret: Secret | None) -> Connection | None:
    """Return the connection to the API of a cell of another process.

    Return None for a cell of this process, and if the credentials are missing or invalid.
    """
    endpoint = urlsplit(cluster.spec.api_endpoint)
    if endpoint.scheme != "https" or not endpoint.netloc or secret is None:
        return None
    try:
        token, authority = (_decode_field(secret, name) for name in ("token", "caBundle"))
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Connection(
        server=f"https://{endpoint.netloc}",
        path_prefix=endpoint.path.rstrip("/"),
        token=token,
        ca_pem=authority.encode() or None,
        context=cluster.metadata.name,
    )


def gateway_connection_to(cluster: Cluster, secret: Secret | None) -> Connection | None:
    """Return the connection to the gateway of a cell.

    Without an annotation with its address, the API of the cell is the gateway. The token is that
    of the API; another authority may have signed the certificate.
    """
    address = cluster.metadata.annotations.get(GATEWAY, "")
    if not address:
        return connection_to(cluster, secret)
    spec = replace(cluster.spec, api_endpoint=address)
    found = connection_to(replace(cluster, spec=spec), secret)
    if found is None or secret is None or not secret.data.get(GATEWAY_AUTHORITY):
        return found
    try:
        return dataclasses.replace(found, ca_pem=_decode_field(secret, GATEWAY_AUTHORITY).encode())
    except (binascii.Error, UnicodeDecodeError):
        return None


def _decode_field(secret: Secret, name: str) -> str:
    return base64.b64decode(secret.data.get(name, "")).decode()


class CellConnector:
    """Connects the process to the cells of the hub. ``connection_of`` selects API or gateway."""

    def __init__(
        self,
        hub: Client,
        target: CellTarget,
        open_transport: OpenTransport,
        random: Random,
        connection_of: Callable[[Cluster, Secret | None], Connection | None] = connection_to,
    ) -> None:
        self._target = target
        self._open_transport = open_transport
        self._connection_of = connection_of
        self._changed = asyncio.Event()
        self._clusters = ObservedObjects(hub, Watched(CLUSTER), random, self._changed)
        secrets = Watched(SECRET, namespace=CREDENTIALS_NAMESPACE)
        self._secrets = ObservedObjects(hub, secrets, random, self._changed)
        self._connected: dict[PlaneName, _CellConnection] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clusters.run())
            group.create_task(self._secrets.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._clusters.is_synced and self._secrets.is_synced:
                    await self._reconcile()

    async def _reconcile(self) -> None:
        desired = self._desired_connections()
        for plane in [plane for plane in self._connected if plane not in desired]:
            await self._disconnect(plane)
        for plane, (cluster, connection) in desired.items():
            current = self._connected.get(plane)
            if current is not None and current.connection == connection:
                continue
            try:
                await self._connect(plane, cluster, connection)
            except (ApiError, Unreachable, ValueError) as error:
                _log.warning("cannot connect to %s: %s", plane, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._changed.set)

    def _desired_connections(self) -> dict[PlaneName, tuple[Cluster, Connection]]:
        desired = {}
        for ref, cluster in sorted(self._clusters.objects.items()):
            secret = self._secrets.objects.get(Ref(CREDENTIALS_NAMESPACE, ref.name))
            connection, plane = self._connection_of(cluster, secret), _plane_of_cluster(ref.name)
            is_local = plane in self._target.local_cells
            if connection is not None and plane is not None and not is_local:
                desired[plane] = (cluster, connection)
        return desired

    async def _connect(self, plane: PlaneName, cluster: Cluster, connection: Connection) -> None:
        await self._disconnect(plane)
        city = cluster.metadata.labels.get(TOPOLOGY_CITY, cluster.metadata.name)
        await self._target.register_city(city)
        opened = AsyncExitStack()
        transport = await opened.enter_async_context(self._open_transport(connection))
        if self._target.gateway is not None:
            await self._target.gateway.connect(plane, connection, opened)
        self._connected[plane] = _CellConnection(connection, opened)
        self._target.host.engage(plane, build_client(connection, transport))
        _log.info("connected to %s at %s", plane, connection.server)

    async def _disconnect(self, plane: PlaneName) -> None:
        current = self._connected.pop(plane, None)
        if current is not None:
            self._target.host.disengage(plane)
            await current.opened.aclose()
            _log.info("disconnected from %s", plane)


def _plane_of_cluster(name: str) -> PlaneName | None:
    try:
        return cell_plane(name)
    except ValueError:  # a Cluster with a name that no cell can have
        return None


# --- Projects of a cell: those that a namespace of the cell names as its origin
# The controllers of the cell maintain the quota claims of its instances in these projects. A
# project is disengaged after its last namespace was deleted from the cell.


class ProjectHost(Protocol):
    def engage(self, plane: PlaneName, client: Client, part: LabelScope | None = None) -> None: ...

    def disengage(self, plane: PlaneName) -> None: ...


class UpstreamProjects:
    """Engages the projects of a cell."""

    def __init__(
        self,
        cell: str,
        own_plane: Client,
        host: ProjectHost,
        client_of: Callable[[PlaneName], Client],
        random: Random,
    ) -> None:
        self._cell = cell
        self._host = host
        self._client_of = client_of
        self._changed = asyncio.Event()
        self._namespaces = ObservedObjects(own_plane, Watched(NAMESPACE), random, self._changed)
        self._engaged: dict[PlaneName, None] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._reconcile()

    def _reconcile(self) -> None:
        desired = dict.fromkeys(self._projects())
        for plane in [plane for plane in self._engaged if plane not in desired]:
            del self._engaged[plane]
            self._host.disengage(plane)
        for plane in desired:
            if plane not in self._engaged:
                self._engaged[plane] = None
                self._host.engage(plane, self._client_of(plane), project_label_scope(self._cell))

    def _projects(self) -> list[PlaneName]:
        found = []
        for _, namespace in sorted(self._namespaces.objects.items()):
            project = decode_project_label(namespace.metadata.labels.get(UPSTREAM_CLUSTER, ""))
            try:
                found += [project_plane(project)] if project else []
            except ValueError:
                continue  # a label that was edited by hand
        return found
