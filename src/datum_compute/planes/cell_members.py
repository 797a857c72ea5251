"""Connections to cells of other processes, which have joined the hub.

A Cluster with an https endpoint is such a cell. As with Karmada, the Secret with the name of the
Cluster contains the credentials. ``controllers/platform/cell_members.py`` connects each cell while
its Cluster exists, and again when its address or credentials change.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from datum_compute.api.core import Secret
from datum_compute.api.gateway import GATEWAY, GATEWAY_AUTHORITY
from datum_compute.api.karmada import Cluster
from datum_compute.api.planes import PlaneName
from datum_compute.client.auth.connection import Connection, OpenTransport
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.runtime.manager import Manager

_log = logging.getLogger(__name__)


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

    An annotation of the Cluster contains the address of the gateway. Without it, the API of the
    cell is the gateway. The gateway accepts the token of the API. Its certificate may be signed by
    another authority.
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


async def ignore_city(_city: str) -> None:
    """Ignore the city: another process registers it."""


@dataclass(frozen=True, slots=True)
class CellMemberOptions:
    """How a process connects to the cells of its hub, and what it uses the connections for."""

    open_transport: OpenTransport
    # Called with the city of a cell before the cell is connected.
    register_city: Callable[[str], Awaitable[None]] = ignore_city
    # Connects the gateway of this process to a cell until the stack is closed.
    connect_gateway: Callable[[PlaneName, Connection, AsyncExitStack], Awaitable[None]] | None = (
        None
    )
    local_cells: Collection[PlaneName] = ()  # of this process; they need no connection
    connection_of: Callable[[Cluster, Secret | None], Connection | None] = connection_to
    engages_planes: bool = True  # run the controllers of this process on the cells


@dataclass(frozen=True, slots=True)
class _OpenConnection:
    connection: Connection
    opened: AsyncExitStack


class CellMembers:
    """The connections of this process to cells."""

    def __init__(self, manager: Manager[Any], options: CellMemberOptions) -> None:
        self._manager = manager
        self._options = options
        self._open: dict[PlaneName, _OpenConnection] = {}

    def find_connection(
        self, plane: PlaneName, cluster: Cluster, secret: Secret | None
    ) -> Connection | None:
        """Return the connection that the cell should have; None if it should have none."""
        if plane in self._options.local_cells:
            return None
        return self._options.connection_of(cluster, secret)

    async def connect(self, plane: PlaneName, connection: Connection, city: str) -> None:
        """Connect the cell. No-op if it has this connection already.

        Raise ApiError, Unreachable or ValueError if that fails. The cell is then not connected.
        """
        current = self._open.get(plane)
        if current is not None and current.connection == connection:
            return
        await self.disconnect(plane)
        await self._options.register_city(city)
        async with AsyncExitStack() as opening:
            transport = await opening.enter_async_context(self._options.open_transport(connection))
            if self._options.connect_gateway is not None:
                await self._options.connect_gateway(plane, connection, opening)
            if self._options.engages_planes:
                self._manager.engage(plane, build_client(connection, transport))
            self._open[plane] = _OpenConnection(connection, opening.pop_all())
        _log.info("connected to %s at %s", plane, connection.server)

    async def disconnect(self, plane: PlaneName) -> None:
        current = self._open.pop(plane, None)
        if current is None:
            return
        if self._options.engages_planes:
            self._manager.disengage(plane)
        await current.opened.aclose()
        _log.info("disconnected from %s", plane)
