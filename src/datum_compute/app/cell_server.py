"""``compute-cell``: the plane of one cell in a process of its own, with its controllers.

The cell has joined a hub before (``cell_membership.py``). It reaches the hub and the projects over
TLS with its own certificate, which it renews. While the hub is unreachable, the cell continues with
the objects of its own plane. Its state directory holds its store, its machines and its keys.
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
from urllib.parse import urlsplit

import msgspec

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.cell_membership import (
    HubTokenRotation,
    Membership,
    MembershipFiles,
    renew,
    run_renewal,
)
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.driver_selection import MachineHost, build_machines
from datum_compute.app.environment import ProcessEnvironment, process_environment
from datum_compute.app.heartbeat import Heartbeat
from datum_compute.app.manager_connections import transport_opener
from datum_compute.app.metrics import process_registry
from datum_compute.app.platform import (
    MANAGER_AGENT,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
    SecurityOptions,
)
from datum_compute.app.process import (
    ApiPort,
    BackgroundTask,
    ServerProcess,
    ServerStorage,
    bind_api_socket,
    run_process,
    serve_until,
)
from datum_compute.app.settings.settings import CellSettings, cell_settings
from datum_compute.app.state_credentials import (
    PlaneTokens,
    ensure_credentials,
    ensure_signer,
    write_kubeconfigs,
)
from datum_compute.app.state_directory import (
    StateError,
    ensure_private_directory,
    read_last_port,
    require_database,
)
from datum_compute.client.client import Client
from datum_compute.controllers import registry
from datum_compute.planes.planes import hub_label_scope, project_label_scope
from datum_compute.server.http.listen import bind_listener
from datum_compute.server.options import AdmissionOptions
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from datum_compute.telemetry.context import Tracer

_log = logging.getLogger(__name__)

TOKENS_FILE = "tokens.json"


@exit_on_broken_pipe
def main(arguments: Sequence[str] | None = None) -> int:
    settings = cell_settings(sys.argv[1:] if arguments is None else arguments)
    return run_process(
        settings.telemetry, "compute-cell", settings.state_dir, partial(serve, settings)
    )


async def serve(settings: CellSettings, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
    state = ensure_private_directory(settings.state_dir)
    files, environment = MembershipFiles(state), process_environment()
    membership = files.read()
    if membership is None:
        raise StateError(
            f"{state} does not belong to a cell that has joined: run `cell join` first"
        )
    connection = files.connection(membership, HUB)
    async with transport_opener(environment)(connection) as transport:

        def client_of(plane: PlaneName) -> Client:
            return Client(transport, prefix=path_prefix(plane), token="", agent=MANAGER_AGENT)

        hub = _HubConnection(membership, files, client_of)
        await _serve(settings, hub, environment, stop, tracer)


@dataclass(frozen=True, slots=True)
class _HubConnection:
    """How this cell reaches the planes of the hub's process."""

    membership: Membership
    files: MembershipFiles
    client_of: Callable[[PlaneName], Client]


async def _serve(
    settings: CellSettings,
    hub: _HubConnection,
    environment: ProcessEnvironment,
    stop: asyncio.Event,
    tracer: Tracer | None,
) -> None:
    state, membership, listener = settings.state_dir, hub.membership, settings.listener
    require_database(state)
    metrics = process_registry()
    host = MachineHost(state, (membership.plane,), environment, metrics)
    machines = await build_machines(settings.driver, host)
    credentials = ensure_credentials(state / TOKENS_FILE, (membership.plane,), of_cell=True)
    certificate = ensure_certificate(state, datetime.now(UTC), names=listener.server_names)
    journal, audit = SqliteJournal(state / "store.db"), AuditLog(state / "audit.log")

    def reach(plane: PlaneName) -> Client:
        if plane == membership.plane:
            return platform.client(plane, credentials.manager)
        return hub.client_of(plane)

    options = PlatformOptions(
        control=ControllerOptions(
            (*registry.CELL_PROCESS, *machines.publishing_controllers),
            reach,
            machines.traffic,
            project_scope=project_label_scope(membership.cell),
            enforces_quota=settings.enforces_quota,
        ),
        security=SecurityOptions(
            authority=certificate.authority.read_text(),
            signer=ensure_signer(state / "service-accounts.key"),
            audit=audit.record,
        ),
        admission=AdmissionOptions(flow_limits=listener.flow_limits),
        registry=metrics,
        tracer=tracer,
    )
    layout = PlaneLayout((), machines.drivers, center=False)
    platform = Platform(layout, environment, journal, credentials, options)
    bound, membership = bind_cell_socket(state, membership, listener.port, listener.address)
    authority = certificate.authority.read_bytes()
    process = ServerProcess(
        platform,
        ServerStorage(state, journal, audit),
        machines,
        ApiPort(certificate, listener.port_limits),
        on_ready=partial(_write_kubeconfigs, settings, credentials, authority),
        background_tasks=_background_tasks(
            settings, replace(hub, membership=membership), platform, environment
        ),
    )
    await serve_until(process, bound, stop)


def _write_kubeconfigs(
    settings: CellSettings, credentials: PlaneTokens, authority: bytes, port: int
) -> None:
    (plane,) = credentials.planes
    write_kubeconfigs(settings.state_dir, credentials, authority, port, plane)


def _background_tasks(
    settings: CellSettings,
    connection: _HubConnection,
    platform: Platform,
    environment: ProcessEnvironment,
) -> list[BackgroundTask]:
    """Engage the hub, and return the tasks that maintain the membership."""
    membership, hub = connection.membership, connection.client_of(HUB)
    platform.engage(HUB, hub, hub_label_scope(membership.cell, membership.city))
    heartbeat = Heartbeat(
        hub,
        membership.cell,
        settings.heartbeat,
        environment.unix_s,
        lambda: {"instances": str(platform.count_objects(membership.plane, INSTANCE))},
    )
    tokens = settings.state_dir / TOKENS_FILE
    rotation = HubTokenRotation(tokens, membership.plane, platform.authenticator)

    async def keep_membership() -> None:
        await report_address(hub, connection.files, membership)
        await run_renewal(hub, connection.files, membership, rotation, environment.unix_s)

    return [heartbeat.run, keep_membership]


# --- The address at which the hub reaches the cell, and a port that is in use
# A cell on the loopback address selects another port and reports it to the hub with its own
# credential. A cell with another address does not: its port may be part of firewall rules or port
# forwarding, so the process does not start until the port is free or the cell joins again.


RETRY_S = 10.0


def bind_cell_socket(
    state: Path, membership: Membership, port: int, host: str
) -> tuple[socket.socket, Membership]:
    """Return the socket, and the membership with the address of the socket."""
    if not _is_on_loopback(membership):
        return _bind_joined_port(state, membership, port, host), membership
    bound = bind_api_socket(state, port, host)
    parts = urlsplit(membership.endpoint)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    endpoint = parts._replace(netloc=f"{name}:{bound.getsockname()[1]}").geturl()
    return bound, msgspec.structs.replace(membership, endpoint=endpoint)


def _bind_joined_port(state: Path, membership: Membership, port: int, host: str) -> socket.socket:
    port = port or read_last_port(state) or urlsplit(membership.endpoint).port or 443
    try:
        return bind_listener(port, host)
    except OSError as error:
        why = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise StateError(
            f"port {port} of {host} cannot be used ({why.strerror or why}), and the "
            f"hub reaches this cell at {membership.endpoint}; free the port, or join again with a "
            "new token and another --port"
        ) from error


def _is_on_loopback(membership: Membership) -> bool:
    host = urlsplit(membership.endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def report_address(hub: Client, files: MembershipFiles, membership: Membership) -> None:
    """Report the address to the hub, and retry until it is recorded.

    The membership file contains the previous address until then, so a restart reports it again.
    """
    while files.read() != membership:
        try:
            await renew(hub, files, membership, endpoint=membership.endpoint)
            _log.info("reported the new address of this cell to the hub: %s", membership.endpoint)
        except (ApiError, Unreachable) as error:
            _log.warning("cannot report the new port of this cell to the hub: %s", error)
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    sys.exit(main())
