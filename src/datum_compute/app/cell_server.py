"""``compute-cell``: the plane of one cell in a process of its own, with the controllers beside it.

The cell has joined a hub before (``joining.py``); this process serves its plane, works on it, and
reaches the hub and the projects over TLS with the cell's own certificate, which it renews. With the
hub away it goes on with what it knows. Its state directory is its own: store, machines, keys.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from random import Random

from datum_compute.api.kinds import INSTANCE
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.cell_membership import Membership, MembershipFiles
from datum_compute.app.celladdress import bound_for_cell, tell_address
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.driver_selection import build_machines, publishing_over
from datum_compute.app.environment import Ports, real_ports
from datum_compute.app.heartbeat import Heartbeat
from datum_compute.app.hubtoken import HubToken
from datum_compute.app.kubeconfig import write_kubeconfigs
from datum_compute.app.metrics import process_registry
from datum_compute.app.outside import opener
from datum_compute.app.platform import MANAGER_AGENT, Layout, Platform, Safeguards
from datum_compute.app.process import Beside, Serving, run_process, serve_until
from datum_compute.app.renewal import keep_renewed
from datum_compute.app.settings.settings import CellSettings, cell_settings
from datum_compute.app.signingkey import ensure_signer
from datum_compute.app.state_credentials import Credentials, ensure_credentials
from datum_compute.app.state_directory import StateError, private_directory
from datum_compute.app.statefiles import demand_database
from datum_compute.app.upstream import UpstreamProjects
from datum_compute.client.client import Client
from datum_compute.controllers import registry
from datum_compute.planes.planes import hub_label_scope
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.broken_pipe import quiet_when_unread
from datum_compute.telemetry.traces import Tracer

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
    async with opener(ports)(connection) as transport:

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
    machines = await build_machines(settings, state, (plane,), ports, counted)
    credentials = ensure_credentials(state / TOKENS, (plane,), of_cell=True)
    certificate = ensure_certificate(state, datetime.now(UTC), names=settings.server_names)
    journal, audit = SqliteJournal(state / "store.db"), AuditLog(state / "audit.log")
    platform = Platform(
        Layout((), machines.drivers, centre=False),
        ports,
        journal,
        credentials,
        controllers=(*registry.CELL_PROCESS, *publishing_over(machines)),
        traffic=machines.traffic,
        safeguards=Safeguards(
            authority=certificate.authority.read_text(),
            signer=ensure_signer(state / "service-accounts.key"),
            audit=audit.keep,
        ),
        registry=counted,
        tracer=tracer,
        flow_limits=settings.flow_limits,
    )
    bound, membership = bound_for_cell(state, membership, settings.port, settings.listen)
    serving = Serving(
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
        port_limits=settings.port_limits,
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
        settings.heartbeat_s,
        ports.unix_s,
        settings.capacity,
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
