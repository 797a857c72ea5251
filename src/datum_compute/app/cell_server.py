"""``compute-cell``: the plane of one cell in a process of its own, with the controllers beside it.

The cell has joined a hub before (``joining.py``); this process serves its plane, works on it, and
reaches the hub and the projects over TLS with the cell's own certificate, which it renews. With the
hub away it goes on with what it knows. Its state directory is its own: store, machines, keys.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import msgspec

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.cell_membership import (
    HubToken,
    Membership,
    MembershipFiles,
    keep_renewed,
    renew,
)
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.cluster_members import UpstreamProjects
from datum_compute.app.driver_selection import build_machines, publishing_over
from datum_compute.app.environment import Ports, real_ports
from datum_compute.app.heartbeat import Heartbeat
from datum_compute.app.manager_connections import transport_opener
from datum_compute.app.metrics import process_registry
from datum_compute.app.platform import MANAGER_AGENT, PlaneLayout, Platform, SecurityOptions
from datum_compute.app.process import Beside, ServerProcess, bound_socket, run_process, serve_until
from datum_compute.app.settings.settings import CellSettings, cell_settings
from datum_compute.app.state_credentials import (
    Credentials,
    ensure_credentials,
    ensure_signer,
    write_kubeconfigs,
)
from datum_compute.app.state_directory import (
    StateError,
    demand_database,
    private_directory,
    remembered_port,
)
from datum_compute.client.client import Client
from datum_compute.controllers import registry
from datum_compute.planes.planes import hub_label_scope
from datum_compute.server.http.listen import bind_listener
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.broken_pipe import quiet_when_unread
from datum_compute.telemetry.context import Tracer

# --- Where the hub reaches a cell, and what happens when that port is taken
# A cell on the loopback address takes another port and tells the hub, with its own credential. One
# that was given a name for others does not: whatever leads to its port, a firewall or a forwarding,
# knows that port only, so it refuses to start until the port is free or it joins with another one.


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
    return bound, msgspec.structs.replace(membership, endpoint=there)


def _bound_as_joined(
    state: Path, membership: Membership, wanted: int, listen: str
) -> socket.socket:
    port = wanted or remembered_port(state) or urlsplit(membership.endpoint).port or 443
    try:
        return bind_listener(port, listen)
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


# --- cell server


TOKENS = "tokens.json"


@quiet_when_unread
def main(arguments: Sequence[str] | None = None) -> int:
    settings = cell_settings(sys.argv[1:] if arguments is None else arguments)
    return run_process(
        settings.telemetry, "compute-cell", settings.state_dir, partial(serve, settings)
    )


async def serve(settings: CellSettings, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
    state = private_directory(settings.state_dir)
    files, ports = MembershipFiles(state), real_ports()
    membership = files.read()
    if membership is None:
        raise StateError(f"{state} is not that of a cell that has joined: run `cell join` first")
    connection = files.connection(membership, HUB)
    async with transport_opener(ports)(connection) as transport:

        def client_of(plane: PlaneName) -> Client:
            return Client(transport, prefix=path_prefix(plane), token="", agent=MANAGER_AGENT)

        upwards = _Upwards(membership, files, client_of)
        await _serve(settings, upwards, ports, stop, tracer)


@dataclass(frozen=True, slots=True)
class _Upwards:
    """The way to the planes of the hub's process, as this cell."""

    membership: Membership
    files: MembershipFiles
    client_of: Callable[[PlaneName], Client]


async def _serve(
    settings: CellSettings,
    upwards: _Upwards,
    ports: Ports,
    stop: asyncio.Event,
    tracer: Tracer | None,
) -> None:
    state, membership = settings.state_dir, upwards.membership
    demand_database(state)
    plane = membership.plane
    counted = process_registry()
    machines = await build_machines(settings.driver, state, (plane,), ports, counted)
    credentials = ensure_credentials(state / TOKENS, (plane,), of_cell=True)
    certificate = ensure_certificate(state, datetime.now(UTC), names=settings.listener.server_names)
    journal, audit = SqliteJournal(state / "store.db"), AuditLog(state / "audit.log")
    platform = Platform(
        PlaneLayout((), machines.drivers, centre=False),
        ports,
        journal,
        credentials,
        controllers=(*registry.CELL_PROCESS, *publishing_over(machines)),
        traffic=machines.traffic,
        safeguards=SecurityOptions(
            authority=certificate.authority.read_text(),
            signer=ensure_signer(state / "service-accounts.key"),
            audit=audit.keep,
        ),
        registry=counted,
        tracer=tracer,
        flow_limits=settings.listener.flow_limits,
    )
    bound, membership = bound_for_cell(
        state, membership, settings.listener.port, settings.listener.address
    )
    serving = ServerProcess(
        state,
        platform,
        journal,
        certificate,
        audit,
        ports.unix_s,
        when_ready=partial(_tell_of, settings, credentials, certificate.authority.read_bytes()),
        machines=machines,
        ways=machines.cell_ways(),
        beside=_beside(settings, replace(upwards, membership=membership), platform, ports),
        port_limits=settings.listener.port_limits,
    )
    await serve_until(serving, bound, stop)


def _tell_of(settings: CellSettings, credentials: Credentials, authority: bytes, port: int) -> None:
    (plane,) = credentials.planes
    write_kubeconfigs(settings.state_dir, credentials, authority, port, plane)


def _beside(
    settings: CellSettings, upwards: _Upwards, platform: Platform, ports: Ports
) -> list[Beside]:
    """What runs besides the plane and its controllers; the hub is engaged at once."""
    membership, hub = upwards.membership, upwards.client_of(HUB)
    random = Random(ports.random.getrandbits(64))  # noqa: S311 - jitter, not secrets
    own = platform.bootstrap_client(membership.plane)
    platform.engage(HUB, hub, hub_label_scope(membership.cell, membership.city))
    projects = UpstreamProjects(membership.cell, own, platform, upwards.client_of, random)
    heartbeat = Heartbeat(
        hub,
        membership.cell,
        settings.heartbeat.every_s,
        ports.unix_s,
        settings.heartbeat.capacity,
        lambda: {"instances": str(platform.count(membership.plane, INSTANCE))},
    )
    tokens = settings.state_dir / TOKENS
    token = HubToken(tokens, membership.plane, platform.authenticator)

    async def keep_known() -> None:
        await tell_address(hub, upwards.files, membership)
        await keep_renewed(hub, upwards.files, membership, token, ports.unix_s)

    return [projects.run, heartbeat.run, keep_known]


if __name__ == "__main__":
    sys.exit(main())
