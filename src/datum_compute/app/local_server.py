"""``compute-server``: platform, projects and hub in one process, and the cells too unless told
otherwise. This is the process behind ``datumctl compute local up``.

Its state directory holds everything: the database, the certificates, the tokens, the kubeconfig.
Started again on the same directory it goes on where it was. Cells of other processes join it with a
token (``cell_server.py``).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

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
from datum_compute.app.cluster_members import Members, Relay, Unengaged
from datum_compute.app.driver_selection import Machines, build_machines, publishing_over
from datum_compute.app.environment import Ports, real_ports
from datum_compute.app.fault_injection import FaultInjector
from datum_compute.app.heartbeat import tell_of_own_cells
from datum_compute.app.manager_connections import transport_opener
from datum_compute.app.metrics import process_registry
from datum_compute.app.platform import (
    EVERYTHING,
    MANAGER_AGENT,
    PlaneLayout,
    Platform,
    SecurityOptions,
)
from datum_compute.app.process import ServerProcess, bound_socket, run_process, serve_until
from datum_compute.app.settings.settings import LocalSettings, local_settings
from datum_compute.app.state_credentials import (
    Credentials,
    ensure_credentials,
    ensure_signer,
    with_projects,
    write_kubeconfigs,
)
from datum_compute.app.state_directory import (
    demand_database,
    private_directory,
    remember_cells,
    remembered_cells,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.gateway.cells import CellEndpoints
from datum_compute.runtime.controller import Controller
from datum_compute.server.access.client_certificates import IssuedCertificate, SigningRequest
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.broken_pipe import quiet_when_unread
from datum_compute.telemetry.context import Tracer

PROJECT = project_plane("default")
CELLS = tuple(cell_plane(city) for city in ("dfw", "iad", "lhr", "syd"))


@quiet_when_unread
def main(arguments: Sequence[str] | None = None) -> int:
    settings = local_settings(sys.argv[1:] if arguments is None else arguments)
    return run_process(
        settings.telemetry, "datum-compute", settings.state_dir, partial(serve, settings)
    )


async def serve(settings: LocalSettings, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
    state = private_directory(settings.state_dir)
    journal = _claimed_journal(state)
    ports, counted = real_ports(), process_registry()
    machines = await build_machines(settings.driver, state, _cells(settings, state), ports, counted)
    layout = PlaneLayout((PROJECT,), machines.drivers)
    credentials = ensure_credentials(state / "tokens.json", layout.planes)
    certificate = ensure_certificate(state, datetime.now(UTC), names=settings.listener.server_names)
    audit = AuditLog(state / "audit.log")
    changed = asyncio.Event()
    chaos = FaultInjector(state, ports.unix_s)

    def reach(plane: PlaneName) -> Client:
        transport = chaos.around(plane, InProcessTransport(platform.dispatch))
        token = credentials.manager
        return Client(transport, prefix=path_prefix(plane), token=token, agent=MANAGER_AGENT)

    platform = Platform(
        layout,
        ports,
        journal,
        credentials,
        controllers=_controllers(settings, machines),
        safeguards=SecurityOptions(
            authority=certificate.authority.read_text(),
            signer=ensure_signer(state / "service-accounts.key"),
            audit=audit.keep,
            certify=partial(_certified, state, settings.cells.credential_s),
        ),
        registry=counted,
        tracer=tracer,
        deprecation_grace_s=settings.deprecation_grace_s,
        traffic=machines.traffic,
        cell_probing=settings.cells.probing,
        flow_limits=settings.listener.flow_limits,
        projects_changed=changed.set,
        reach=reach,
    )
    chaos.heal()
    ways = machines.cell_ways()
    contexts = _Contexts(state, credentials, certificate.authority, layout.cells, platform)
    serving = ServerProcess(
        state,
        platform,
        journal,
        certificate,
        audit,
        ports.unix_s,
        when_ready=contexts.write,
        machines=machines,
        ways=ways,
        beside=(
            chaos.run,
            partial(contexts.follow, changed),
            partial(_work_with_members, settings, platform, ports, ways),
        ),
        port_limits=settings.listener.port_limits,
    )
    bound = bound_socket(settings.state_dir, settings.listener.port, settings.listener.address)
    await serve_until(serving, bound, stop)


def _claimed_journal(state: Path) -> SqliteJournal:
    """Before anything of the directory is read."""
    journal = SqliteJournal(state / "store.db")
    journal.claim()
    finish_restore(state)
    demand_database(state)
    return journal


def _cells(settings: LocalSettings, state: Path) -> tuple[PlaneName, ...]:
    """Those of this process."""
    if not settings.cells.inside:
        return ()
    return settings.cells.names or remembered_cells(state) or CELLS


def _controllers(settings: LocalSettings, machines: Machines) -> tuple[Controller[Context], ...]:
    if not settings.controllers:
        return (*registry.CLUSTER, *registry.PROJECT_MEMBERSHIP)
    group = EVERYTHING if settings.cells.inside else registry.HUB_PROCESS
    return (*group, *publishing_over(machines))


def _certified(
    state: Path, lifetime_s: float, requested: SigningRequest, user: str, groups: tuple[str, ...]
) -> IssuedCertificate:
    now = datetime.now(UTC)
    return certify(state, requested, user, groups, now, timedelta(seconds=lifetime_s))


@dataclass(slots=True)
class _Contexts:
    """Keeps the kubeconfigs: every project has a context while it is there."""

    state: Path
    credentials: Credentials
    authority: Path
    cells: tuple[PlaneName, ...]
    platform: Platform
    port: int = 0

    def write(self, port: int) -> None:
        self.port = port
        known = with_projects(self.credentials, self.platform.projects.stored())
        current = PROJECT if PROJECT in known.planes else PLATFORM
        write_kubeconfigs(self.state, known, self.authority.read_bytes(), port, current)
        if self.cells:
            remember_cells(self.state, self.cells)

    async def follow(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            self.write(self.port)


async def _work_with_members(
    settings: LocalSettings, platform: Platform, ports: Ports, ways: CellEndpoints
) -> None:
    random = Random(ports.random.getrandbits(64))  # noqa: S311 - jitter, not secrets
    hub = platform.bootstrap_client(HUB)
    await tell_of_own_cells(hub, platform.cells)
    host = platform if settings.controllers else Unengaged()
    members = Members(
        hub,
        host,
        platform.offer,
        transport_opener(ports),
        random,
        platform.cells,
        relay=Relay(ways, transport_opener(ports, is_bounded=False)),
    )
    await members.run()


if __name__ == "__main__":
    sys.exit(main())
