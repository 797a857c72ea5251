"""``compute-server``: platform, projects and hub in one process, and by default the cells too.

``datumctl compute local up`` starts this process. All of its data is in the state directory:
database, certificates, tokens, kubeconfig. A restart on the same directory continues where the last
run ended. Cells of other processes join with a token (``cell_server.py``).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    path_prefix,
    project_plane,
)
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.backup.restore import finish_restore
from datum_compute.app.certificates import certify, ensure_certificate
from datum_compute.app.driver_selection import DriverSet, MachineHost, build_machines
from datum_compute.app.environment import ProcessEnvironment, process_environment
from datum_compute.app.fault_injection import FaultInjection
from datum_compute.app.heartbeat import report_local_cells
from datum_compute.app.manager_connections import transport_opener
from datum_compute.app.metrics import process_registry
from datum_compute.app.platform import (
    EVERYTHING,
    MANAGER_AGENT,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
    SecurityOptions,
)
from datum_compute.app.process import (
    ApiPort,
    ServerProcess,
    ServerStorage,
    bind_api_socket,
    run_process,
    serve_until,
)
from datum_compute.app.settings.settings import LocalSettings, local_settings
from datum_compute.app.state_credentials import (
    PlaneTokens,
    ensure_credentials,
    ensure_signer,
    with_projects,
    write_kubeconfigs,
)
from datum_compute.app.state_directory import (
    ensure_private_directory,
    read_last_cells,
    require_database,
    save_cells,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.gateway.cells import CellEndpoints, GatewayConnector
from datum_compute.planes.cell_members import CellMemberOptions
from datum_compute.runtime.controller import Controller
from datum_compute.server.access.client_certificates import IssuedCertificate, SigningRequest
from datum_compute.server.options import AdmissionOptions
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from datum_compute.telemetry.context import Tracer

DEFAULT_PROJECT = project_plane("default")
DEFAULT_CELLS = tuple(cell_plane(city) for city in ("dfw", "iad", "lhr", "syd"))


@exit_on_broken_pipe
def main(arguments: Sequence[str] | None = None) -> int:
    settings = local_settings(sys.argv[1:] if arguments is None else arguments)
    return run_process(
        settings.telemetry, "datum-compute", settings.state_dir, partial(serve, settings)
    )


async def serve(settings: LocalSettings, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
    state = ensure_private_directory(settings.state_dir)
    journal = _claim_journal(state)
    environment, metrics = process_environment(), process_registry()
    host = MachineHost(state, _cells(settings, state), environment, metrics)
    machines = await build_machines(settings.driver, host)
    layout = PlaneLayout((DEFAULT_PROJECT,), machines.drivers)
    credentials = ensure_credentials(state / "tokens.json", layout.planes)
    names = settings.listener.server_names
    certificate = ensure_certificate(state, datetime.now(UTC), names=names)
    audit = AuditLog(state / "audit.log")
    projects_changed = asyncio.Event()
    faults = FaultInjection(state, environment.unix_s)

    def reach(plane: PlaneName) -> Client:
        transport = faults.wrap(plane, InProcessTransport(platform.dispatch))
        token = credentials.manager
        return Client(transport, prefix=path_prefix(plane), token=token, agent=MANAGER_AGENT)

    options = PlatformOptions(
        control=ControllerOptions(
            _controllers(settings, machines),
            reach,
            machines.traffic,
            settings.cells.probing,
            settings.enforces_quota,
            cell_members=_cell_members(settings, environment, machines.endpoints),
        ),
        security=SecurityOptions(
            authority=certificate.authority.read_text(),
            signer=ensure_signer(state / "service-accounts.key"),
            audit=audit.record,
            certify=partial(_certify_cell, state, settings.cells.credential_s),
        ),
        admission=AdmissionOptions(
            flow_limits=settings.listener.flow_limits,
            deprecation_grace_s=settings.deprecation_grace_s,
        ),
        registry=metrics,
        tracer=tracer,
        on_projects_changed=projects_changed.set,
    )
    platform = Platform(layout, environment, journal, credentials, options)
    faults.remove_all()
    kubeconfigs = _Kubeconfigs(state, credentials, certificate.authority, layout.cells, platform)
    process = ServerProcess(
        platform,
        ServerStorage(state, journal, audit),
        machines,
        ApiPort(certificate, settings.listener.port_limits),
        on_ready=kubeconfigs.write,
        background_tasks=(
            faults.run,
            partial(kubeconfigs.follow, projects_changed),
            partial(report_local_cells, platform.bootstrap_client(HUB), platform.cells),
        ),
    )
    bound = bind_api_socket(state, settings.listener.port, settings.listener.address)
    await serve_until(process, bound, stop)


def _claim_journal(state: Path) -> SqliteJournal:
    """Lock the state directory before anything in it is read."""
    journal = SqliteJournal(state / "store.db")
    journal.acquire_lock()
    finish_restore(state)
    require_database(state)
    return journal


def _cells(settings: LocalSettings, state: Path) -> tuple[PlaneName, ...]:
    """Return the cells of this process."""
    if not settings.cells.inside:
        return ()
    return settings.cells.names or read_last_cells(state) or DEFAULT_CELLS


def _controllers(settings: LocalSettings, machines: DriverSet) -> tuple[Controller[Context], ...]:
    if not settings.controllers:
        return (*registry.CLUSTER, *registry.PROJECT_MEMBERSHIP)
    group = EVERYTHING if settings.cells.inside else registry.HUB_PROCESS
    return (*group, *machines.publishing_controllers)


def _cell_members(
    settings: LocalSettings, environment: ProcessEnvironment, endpoints: CellEndpoints
) -> CellMemberOptions:
    gateway = GatewayConnector(endpoints, transport_opener(environment, is_bounded=False))
    return CellMemberOptions(
        transport_opener(environment),
        connect_gateway=gateway.connect,
        engages_planes=settings.controllers,
    )


def _certify_cell(
    state: Path, lifetime_s: float, requested: SigningRequest, user: str, groups: tuple[str, ...]
) -> IssuedCertificate:
    now = datetime.now(UTC)
    return certify(state, requested, user, groups, now, timedelta(seconds=lifetime_s))


@dataclass(slots=True)
class _Kubeconfigs:
    """Writes the kubeconfigs of the state directory: a context for every plane that exists."""

    state: Path
    credentials: PlaneTokens
    authority: Path
    cells: tuple[PlaneName, ...]
    platform: Platform
    port: int = 0

    def write(self, port: int) -> None:
        self.port = port
        known = with_projects(self.credentials, self.platform.projects.list_stored())
        current = DEFAULT_PROJECT if DEFAULT_PROJECT in known.planes else PLATFORM
        write_kubeconfigs(self.state, known, self.authority.read_bytes(), port, current)
        if self.cells:
            save_cells(self.state, self.cells)

    async def follow(self, changed: asyncio.Event) -> None:
        """Write the kubeconfigs after each change of the projects, until cancelled."""
        while True:
            await changed.wait()
            changed.clear()
            self.write(self.port)


if __name__ == "__main__":
    sys.exit(main())
