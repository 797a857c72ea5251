"""A machine becomes a cell: its keys are made, the hub is asked with a join token, and what it
answers is kept. Asked again after a lost answer it shows the same key, and gets the same again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from datum_compute.api.cellidentity import cell_user_of
from datum_compute.api.celljoin import CELL_JOIN, CellJoin, CellJoinSpec, CellJoinStatus
from datum_compute.api.identity import normalized_city
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import HUB, cell_plane, path_prefix
from datum_compute.app.cell_membership import Membership, MembershipFiles
from datum_compute.app.certificates import ensure_certificate, signing_request
from datum_compute.app.lastrun import remember_port, remembered_port
from datum_compute.app.state_credentials import ensure_credentials
from datum_compute.app.state_directory import StateError, private_directory
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.server.http.server import HOST, listening_socket

OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]


@dataclass(frozen=True, slots=True)
class Joining:
    """``advertise`` is the host under which the hub reaches the cell; ``port`` 0 is the one last
    used, or any free one. Without ``authority`` the machine's authorities are trusted."""

    state_dir: Path
    cell: str
    city: str
    hub: str
    token: str = field(repr=False)
    authority: bytes | None = None
    advertise: str = HOST
    port: int = 0


async def join(joining: Joining, open_transport: OpenTransport, now: datetime) -> Membership:
    state = private_directory(joining.state_dir)
    files = MembershipFiles(state)
    joined = files.read()
    if joined is not None and joined.cell != joining.cell:
        raise StateError(f"{state} belongs to cell {joined.cell}; choose another with --state-dir")
    membership = Membership(
        cell=joining.cell,
        city=normalized_city(joining.city),
        hub=joining.hub.rstrip("/"),
        endpoint=_endpoint(joining),
    )
    credentials = ensure_credentials(state / "tokens.json", (membership.plane,), of_cell=True)
    names = () if joining.advertise == HOST else (joining.advertise,)
    certificate = ensure_certificate(state, now, names=names)
    spec = CellJoinSpec(
        cell=membership.cell,
        city=membership.city,
        endpoint=membership.endpoint,
        authority=certificate.authority.read_text(),
        hub_token=credentials.hub,
        request=signing_request(files.key, cell_user_of(membership.cell)),
    )
    connection = Connection(
        server=membership.hub,
        path_prefix=path_prefix(HUB),
        token=joining.token,
        ca_pem=joining.authority,
    )
    async with open_transport(connection) as transport:
        answer = await _asked(build_client(connection, transport), spec)
    files.write(membership, answer.certificate, answer.authority)
    return membership


async def renew(
    hub: Client,
    files: MembershipFiles,
    membership: Membership,
    hub_token: str = "",
    endpoint: str = "",
) -> None:
    """A new certificate for the key that the cell has; and for the hub the token by which and the
    address at which it reaches the cell from now on, if there is another."""
    request = signing_request(files.key, cell_user_of(membership.cell))
    spec = CellJoinSpec(
        cell=membership.cell, request=request, hub_token=hub_token, endpoint=endpoint
    )
    answer = await _asked(hub, spec)
    files.write(membership, answer.certificate, answer.authority)


async def _asked(hub: Client, spec: CellJoinSpec) -> CellJoinStatus:
    answered = await hub.create(CELL_JOIN, CellJoin(metadata=ObjectMeta(), spec=spec))
    return answered.status


def _endpoint(joining: Joining) -> str:
    port = joining.port or remembered_port(joining.state_dir)
    if not port:
        with listening_socket(0) as bound:
            port = bound.getsockname()[1]
    remember_port(joining.state_dir, port)
    host = f"[{joining.advertise}]" if ":" in joining.advertise else joining.advertise
    return f"https://{host}:{port}{path_prefix(cell_plane(joining.cell))}"
