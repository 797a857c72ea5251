"""Membership of a cell in a hub: its files, joining, and the renewal of credentials.

``membership.json`` is written last, so a directory that contains it also contains the key and the
certificates. In a directory without it, the cell has not joined.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.membership import (
    CELL_JOIN,
    HUB_USER,
    CellJoin,
    CellJoinSpec,
    CellJoinStatus,
    cell_user_of,
)
from datum_compute.api.meta.codec import ApiStruct, DecodeError, decode_as, encode
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import HUB, PlaneName, cell_plane, normalize_city, path_prefix
from datum_compute.app.certificates import BACKDATED, ensure_certificate, signing_request, validity
from datum_compute.app.state_credentials import (
    HUB_TOKEN,
    NEXT_HUB_TOKEN,
    ensure_credentials,
    new_token,
    read_tokens,
)
from datum_compute.app.state_directory import (
    StateError,
    ensure_private_directory,
    read_last_port,
    save_port,
    write_private,
)
from datum_compute.client.auth.connection import Connection, FileSignIn, OpenTransport
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.server.access.authentication import StaticTokens, User
from datum_compute.server.http.listen import HOST, bind_listener

MEMBERSHIP = "membership.json"


class Membership(ApiStruct, frozen=True, kw_only=True):
    """The hub that a cell has joined.

    ``hub`` is the address of the server of the hub and the projects. ``endpoint`` is the address at
    which the hub connects to the cell.
    """

    cell: str
    city: str
    hub: str
    endpoint: str

    @property
    def plane(self) -> PlaneName:
        return cell_plane(self.cell)


@dataclass(frozen=True, slots=True)
class MembershipFiles:
    state: Path

    @property
    def key(self) -> Path:
        return self.state / "cell.key"

    @property
    def certificate(self) -> Path:
        return self.state / "cell.crt"

    @property
    def authority(self) -> Path:
        """The certificate authority of the hub."""
        return self.state / "hub-ca.crt"

    def read(self) -> Membership | None:
        """Return the membership, or None if the cell has not joined."""
        path = self.state / MEMBERSHIP
        try:
            return decode_as(path.read_bytes(), Membership)
        except FileNotFoundError:
            return None
        except DecodeError as error:
            raise StateError(f"{path} is damaged ({error}); join again with a new token") from error

    def write(self, membership: Membership, certificate: str, authority: str) -> None:
        write_private(self.authority, authority.encode())
        write_private(self.certificate, certificate.encode())
        write_private(self.state / MEMBERSHIP, encode(membership))

    def connection(self, membership: Membership, plane: PlaneName) -> Connection:
        """Return a connection to a plane of the hub's server, with the certificate of the cell.

        The connection reads the certificate again after a renewal.
        """
        return Connection(
            server=membership.hub,
            path_prefix=path_prefix(plane),
            ca_pem=self.authority.read_bytes() or None,
            context=plane,
            sign_in=FileSignIn(certificate=(self.certificate, self.key)),
        )


# --- Joining: create a key, request a certificate with a join token, and store the response
# A retry after a lost response sends the same key, and receives the same response.


@dataclass(frozen=True, slots=True)
class Joining:
    """The parameters of ``join``.

    ``advertise`` is the host at which the hub connects to the cell. ``port`` 0 selects the port of
    the last run, or a free one. Without ``authority``, the authorities of the system are trusted.
    """

    state_dir: Path
    cell: str
    city: str
    hub: str
    token: str = field(repr=False)
    authority: bytes | None = None
    advertise: str = HOST
    port: int = 0


async def join(joining: Joining, open_transport: OpenTransport, now: datetime) -> Membership:
    state = ensure_private_directory(joining.state_dir)
    files = MembershipFiles(state)
    joined = files.read()
    if joined is not None and joined.cell != joining.cell:
        raise StateError(f"{state} belongs to cell {joined.cell}; choose another with --state-dir")
    membership = Membership(
        cell=joining.cell,
        city=normalize_city(joining.city),
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
        issued = await _request_credentials(build_client(connection, transport), spec)
    files.write(membership, issued.certificate, issued.authority)
    return membership


async def renew(
    hub: Client,
    files: MembershipFiles,
    membership: Membership,
    hub_token: str = "",
    endpoint: str = "",
) -> None:
    """Request a new certificate for the key of the cell.

    ``hub_token`` and ``endpoint`` replace the token and the address that the hub uses for the cell.
    """
    request = signing_request(files.key, cell_user_of(membership.cell))
    spec = CellJoinSpec(
        cell=membership.cell, request=request, hub_token=hub_token, endpoint=endpoint
    )
    issued = await _request_credentials(hub, spec)
    files.write(membership, issued.certificate, issued.authority)


async def _request_credentials(hub: Client, spec: CellJoinSpec) -> CellJoinStatus:
    created = await hub.create(CELL_JOIN, CellJoin(metadata=ObjectMeta(), spec=spec))
    return created.status


def _endpoint(joining: Joining) -> str:
    port = joining.port or read_last_port(joining.state_dir)
    if not port:
        with bind_listener(0) as bound:
            port = bound.getsockname()[1]
    save_port(joining.state_dir, port)
    host = f"[{joining.advertise}]" if ":" in joining.advertise else joining.advertise
    return f"https://{host}:{port}{path_prefix(cell_plane(joining.cell))}"


# --- The bearer token of the hub on this cell, which is replaced whenever the cell renews its
# certificate
# The cell stores and accepts a new token before it sends the token to the hub. It accepts the old
# token until GRACE_S after the hub has received the new one. A lost response or a crash therefore
# does not lock out the hub: a retry sends the same new token.


# How long the old token stays valid for requests in flight and for open watches of the hub.
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class HubTokenRotation:
    """Replaces the token of the hub in the token file of the cell (``path``)."""

    path: Path
    plane: PlaneName
    authenticator: StaticTokens

    def accept_next(self) -> str:
        """Create the next token, unless the file has one, accept it, and return it for the hub."""
        tokens = read_tokens(self.path)
        if NEXT_HUB_TOKEN not in tokens:
            tokens[NEXT_HUB_TOKEN] = new_token()
            write_private(self.path, encode(tokens))
        next_token = tokens[NEXT_HUB_TOKEN]
        self.authenticator.add(next_token, User(HUB_USER, (), frozenset({self.plane})))
        return next_token

    def promote_next(self) -> str:
        """Replace the stored token after the hub has received the next one. Return the old token.

        The old token stays valid until ``revoke``, or until the process ends.
        """
        tokens = read_tokens(self.path)
        old, tokens[HUB_TOKEN] = tokens[HUB_TOKEN], tokens.pop(NEXT_HUB_TOKEN)
        write_private(self.path, encode(tokens))
        return old

    def revoke(self, token: str) -> None:
        self.authenticator.remove(token)


# --- Renewal of both credentials of a membership
# The certificate of the cell is renewed when a third of its lifetime is left, so that a long outage
# of the hub does not lock out the cell. The hub then receives a new token for the cell. After the
# certificate has expired, the cell needs a new join token.


REMAINING_LIFETIME = 1 / 3  # at which a certificate is renewed
CHECK_INTERVAL_MAX_S = 3600.0
RETRY_S = 30.0

_log = logging.getLogger(__name__)


async def run_renewal(
    hub: Client,
    files: MembershipFiles,
    membership: Membership,
    rotation: HubTokenRotation,
    unix_s: Callable[[], float],
) -> None:
    """Renew the certificate of the cell and the token of the hub whenever they are due."""
    while True:
        wait_s = seconds_until_renewal(files.certificate.read_bytes(), unix_s())
        if wait_s > 0:
            await asyncio.sleep(min(wait_s, CHECK_INTERVAL_MAX_S))
            continue
        try:
            await renew(hub, files, membership, rotation.accept_next())
            old_token = rotation.promote_next()
            _log.info("renewed the certificate of this cell and the token of the hub")
            left_s = seconds_until_renewal(files.certificate.read_bytes(), unix_s())
            await asyncio.sleep(min(GRACE_S, max(0.0, left_s)))
            rotation.revoke(old_token)
        except (ApiError, Unreachable) as error:
            expired = _is_expired(files.certificate.read_bytes(), unix_s())
            hint = "; the certificate has expired: join again with a new token" if expired else ""
            _log.warning("cannot renew the certificate of this cell: %s%s", error, hint)
            await asyncio.sleep(RETRY_S)


def _is_expired(certificate_pem: bytes, now_s: float) -> bool:
    return validity(certificate_pem)[1].timestamp() <= now_s


def seconds_until_renewal(certificate_pem: bytes, now_s: float) -> float:
    """Return the seconds until the certificate is due for renewal; negative if it is overdue."""
    since, until = validity(certificate_pem)
    due = until - max(until - since - BACKDATED, timedelta()) * REMAINING_LIFETIME
    return (due - datetime.fromtimestamp(now_s, UTC)).total_seconds()
