"""Where the hub reaches a cell, and what happens when that port is taken.

A cell on the loopback address takes another port and tells the hub, with its own credential. One
that was given a name for others does not: whatever leads to its port, a firewall or a forwarding,
knows that port only, so it refuses to start until the port is free or it joins with another one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.app.cell_membership import Membership, MembershipFiles
from datum_compute.app.joining import renew
from datum_compute.app.lastrun import remembered_port
from datum_compute.app.process import bound_socket
from datum_compute.app.state_directory import StateError
from datum_compute.client.client import Client
from datum_compute.server.http.server import listening_socket

AGAIN_S = 10.0

_log = logging.getLogger(__name__)


def bound_for_cell(
    state: Path, membership: Membership, wanted: int, listen: str
) -> tuple[socket.socket, Membership]:
    """The socket of the cell, and the membership with the address that it has there."""
    if not _is_on_loopback(membership):
        return _bound_as_joined(state, membership, wanted, listen), membership
    bound = bound_socket(state, wanted, listen)
    parts = urlsplit(membership.endpoint)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    there = parts._replace(netloc=f"{host}:{bound.getsockname()[1]}").geturl()
    return bound, replace(membership, endpoint=there)


def _bound_as_joined(
    state: Path, membership: Membership, wanted: int, listen: str
) -> socket.socket:
    port = wanted or remembered_port(state) or urlsplit(membership.endpoint).port or 443
    try:
        return listening_socket(port, listen)
    except OSError as error:
        why = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise StateError(
            f"port {port} of {listen} cannot be used ({why.strerror or why}), and the hub reaches "
            f"this cell at {membership.endpoint}; free the port, or join again with a new token "
            "and another --port"
        ) from error


def _is_on_loopback(membership: Membership) -> bool:
    host = urlsplit(membership.endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def tell_address(hub: Client, files: MembershipFiles, membership: Membership) -> None:
    """Until the hub knows the address. The file says the old one until then, so that a cell that
    ends before is told apart from one that is known."""
    while files.read() != membership:
        try:
            await renew(hub, files, membership, endpoint=membership.endpoint)
            _log.info("the hub was told that this cell is at %s now", membership.endpoint)
        except (ApiError, Unreachable) as error:
            _log.warning("the hub cannot be told that this cell has another port: %s", error)
            await asyncio.sleep(AGAIN_S)
