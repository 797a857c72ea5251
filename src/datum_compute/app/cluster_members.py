"""The cells that have joined: the hub's controllers work with each as long as its Cluster is there.

A Cluster with an https endpoint is a cell of another process. What the hub needs to reach it lies
in the Secret that the Cluster names, as with Karmada. When either changes the cell is reached anew.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
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
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.responses import ListResult
from datum_compute.client.transport.interface import Transport
from datum_compute.client.watch import Watched, follow
from datum_compute.gateway.cells import CellEndpoints, RemoteCell
from datum_compute.planes.planes import project_label_scope
from datum_compute.runtime.cached_client import LabelScope

# --- What a plane holds of one kind, followed for as long as the process runs


T = TypeVar("T", bound=ApiObject)


class Followed(Generic[T]):
    """``changed`` is set with every change; who waits for it clears it."""

    def __init__(
        self, client: Client, watched: Watched[T], random: Random, changed: asyncio.Event
    ) -> None:
        self.objects: dict[Ref, T] = {}
        self.complete = False  # whether all of them have been seen
        self._client = client
        self._watched = watched
        self._random = random
        self._changed = changed

    async def run(self) -> None:
        async with aclosing(follow(self._client, self._watched, self._random)) as news:
            async for item in news:
                if isinstance(item, ListResult):
                    self.objects = {ref_of(obj): obj for obj in item.items}
                    self.complete = True
                elif item.object is None:
                    continue
                elif item.type == "DELETED":
                    self.objects.pop(ref_of(item.object), None)
                else:
                    self.objects[ref_of(item.object)] = item.object
                self._changed.set()


# --- members


AGAIN_S = 5.0

_log = logging.getLogger(__name__)

OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]


class Host(Protocol):
    """Whoever works with the cells."""

    def engage(self, plane: PlaneName, client: Client) -> None: ...

    def disengage(self, plane: PlaneName) -> None: ...


async def unoffered(_city: str) -> None:
    """Somebody else tells the platform of new cities."""


class Unengaged:
    """The host of a process without controllers: it only hears of the cities."""

    def engage(self, plane: PlaneName, client: Client) -> None:
        """Others work with it."""

    def disengage(self, plane: PlaneName) -> None:
        """Nobody here did."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Lets the gateway of this process ask the members about their instances."""

    ways: CellEndpoints
    open_transport: OpenTransport

    async def meet(self, plane: PlaneName, connection: Connection, opened: AsyncExitStack) -> None:
        transport = await opened.enter_async_context(self.open_transport(connection))
        self.ways.add(plane, RemoteCell(member_name(plane), build_client(connection, transport)))
        opened.callback(self.ways.remove, plane)


@dataclass(frozen=True, slots=True)
class _Member:
    connection: Connection
    opened: AsyncExitStack


class Members:
    """``offer`` hears of the city of every cell before its controllers do. Planes that are
    ``inside`` of this process are worked with anyway. ``connected_to`` is for those who reach them
    in another way than the hub's controllers do."""

    def __init__(
        self,
        hub: Client,
        host: Host,
        offer: Callable[[str], Awaitable[None]],
        open_transport: OpenTransport,
        random: Random,
        inside: Collection[PlaneName] = (),
        relay: Relay | None = None,
        connected_to: Callable[[Cluster, Secret | None], Connection | None] | None = None,
    ) -> None:
        self._connected_to = connected_to or connection_to
        self._relay = relay
        self._host = host
        self._inside = inside
        self._offer = offer
        self._open_transport = open_transport
        self._changed = asyncio.Event()
        self._clusters = Followed(hub, Watched(CLUSTER), random, self._changed)
        secrets = Watched(SECRET, namespace=CREDENTIALS_NAMESPACE)
        self._secrets = Followed(hub, secrets, random, self._changed)
        self._members: dict[PlaneName, _Member] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clusters.run())
            group.create_task(self._secrets.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._clusters.complete and self._secrets.complete:
                    await self._settle()

    async def _settle(self) -> None:
        wanted = {}
        for ref, cluster in sorted(self._clusters.objects.items()):
            secret = self._secrets.objects.get(Ref(CREDENTIALS_NAMESPACE, ref.name))
            connection, plane = self._connected_to(cluster, secret), _plane_of(ref.name)
            if connection is not None and plane is not None and plane not in self._inside:
                wanted[plane] = (cluster, connection)
        for plane in [plane for plane in self._members if plane not in wanted]:
            await self._leave(plane)
        for plane, (cluster, connection) in wanted.items():
            known = self._members.get(plane)
            if known is not None and known.connection == connection:
                continue
            try:
                await self._meet(plane, cluster, connection)
            except (ApiError, Unreachable, ValueError) as error:
                _log.warning("%s cannot be worked with: %s", plane, error)
                asyncio.get_running_loop().call_later(AGAIN_S, self._changed.set)

    async def _meet(self, plane: PlaneName, cluster: Cluster, connection: Connection) -> None:
        await self._leave(plane)
        await self._offer(cluster.metadata.labels.get(TOPOLOGY_CITY, cluster.metadata.name))
        opened = AsyncExitStack()
        transport = await opened.enter_async_context(self._open_transport(connection))
        if self._relay is not None:
            await self._relay.meet(plane, connection, opened)
        self._members[plane] = _Member(connection, opened)
        self._host.engage(plane, build_client(connection, transport))
        _log.info("%s is a member, at %s", plane, connection.server)

    async def _leave(self, plane: PlaneName) -> None:
        member = self._members.pop(plane, None)
        if member is not None:
            self._host.disengage(plane)
            await member.opened.aclose()
            _log.info("%s is no longer reached as it was", plane)


def _plane_of(cell: str) -> PlaneName | None:
    try:
        return cell_plane(cell)
    except ValueError:  # a Cluster that somebody made by hand
        return None


def connection_to(cluster: Cluster, secret: Secret | None) -> Connection | None:
    """How the hub reaches a cell of another process; None for one of this process, or without what
    it takes."""
    endpoint = urlsplit(cluster.spec.api_endpoint)
    if endpoint.scheme != "https" or not endpoint.netloc or secret is None:
        return None
    try:
        token, authority = (_text(secret, name) for name in ("token", "caBundle"))
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Connection(
        server=f"https://{endpoint.netloc}",
        path_prefix=endpoint.path.rstrip("/"),
        token=token,
        ca_pem=authority.encode() or None,
        context=cluster.metadata.name,
    )


def gateway_of(cluster: Cluster, secret: Secret | None) -> Connection | None:
    """How the gateway of a cell is reached: where its Cluster says that it has one of its own, else
    as its API. The token is the same; who signed its certificate may be somebody else."""
    own = cluster.metadata.annotations.get(GATEWAY, "")
    if not own:
        return connection_to(cluster, secret)
    there = replace(cluster.spec, api_endpoint=own)
    found = connection_to(replace(cluster, spec=there), secret)
    if found is None or secret is None or not secret.data.get(GATEWAY_AUTHORITY):
        return found
    try:
        return dataclasses.replace(found, ca_pem=_text(secret, GATEWAY_AUTHORITY).encode())
    except (binascii.Error, UnicodeDecodeError):
        return None


def _text(secret: Secret, name: str) -> str:
    return base64.b64decode(secret.data.get(name, "")).decode()


# --- The projects that a cell works for: each that a namespace of the cell says it is from
# The controllers of the cell keep the quota claims of its instances there. A project is left when
# the last of its namespaces has gone from the cell.


class ProjectHost(Protocol):
    def engage(self, plane: PlaneName, client: Client, part: LabelScope | None = None) -> None: ...

    def disengage(self, plane: PlaneName) -> None: ...


class UpstreamProjects:
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
        self._namespaces = Followed(own_plane, Watched(NAMESPACE), random, self._changed)
        self._engaged: dict[PlaneName, None] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._settle()

    def _settle(self) -> None:
        wanted = dict.fromkeys(self._projects())
        for plane in [plane for plane in self._engaged if plane not in wanted]:
            del self._engaged[plane]
            self._host.disengage(plane)
        for plane in wanted:
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
                continue  # a label that somebody edited
        return found
