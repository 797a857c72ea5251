"""``local status``: the state of the local platform, plane by plane."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from datum_compute import __version__
from datum_compute.api.conditions import TRUE, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.http import Request
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER
from datum_compute.api.meta.codec import decode
from datum_compute.api.planes import HUB, cell_plane, plane_role
from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import MissingError
from datum_compute.cli.local.chaos import describe_fault, read_faults
from datum_compute.cli.local.options import state_dir_option
from datum_compute.cli.local.platform import LocalProcess, find_running, is_ready, is_suspended
from datum_compute.cli.local.processes import cell_directories
from datum_compute.cli.options import output_option
from datum_compute.cli.render.documents import PlaneStatus, PlatformStatus, to_document
from datum_compute.cli.render.output import Output, build_output
from datum_compute.cli.workload.cell_reports import ReportedDriver, describe_drivers, read_drivers
from datum_compute.client.auth.kubeconfig import KubeconfigError, build_client, connection_of
from datum_compute.client.auth.kubeconfig_files import load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.interface import Timeouts

_ENGINE_S = 20
ANSWERS, SILENT, UNKNOWN = "answers", "silent", "unknown"
_READ_ERRORS = (OSError, ValueError, KubeconfigError, Unreachable, ApiError)


@dataclass(frozen=True, slots=True)
class PlaneHealth:
    name: str
    health: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PlatformHealth:
    """The state of the platform. ``planes`` is empty if it could not be read."""

    ready: bool
    version: str = ""
    planes: tuple[PlaneHealth, ...] = ()
    drivers: tuple[ReportedDriver, ...] = ()


@click.command("status", short_help="Show the state of the local platform.")
@state_dir_option
@output_option("table", "json")
@click.pass_obj
def local_status(environment: CliEnvironment, state_dir: Path, output_format: str) -> None:
    """Show the state of the platform: planes, cells, port, directory and versions. The exit code
    is 3 if it does not run.

    \b
    Example:
      datumctl compute local status
    """
    output = build_output(environment)
    running = find_running(state_dir)
    health = PlatformHealth(ready=False)
    if running is not None:
        health = run_loop(observe(state_dir, running, environment.now()))
    if output_format == "json":
        output.json(to_document(_status_document(state_dir, running, health)))
    elif running is not None:
        _print_health(output, state_dir, running, health)
    if running is None:
        raise MissingError(
            f"The platform in {state_dir} is not running.",
            f"Start it: {_start_command(environment, state_dir)}",
        )


async def observe(state_dir: Path, running: LocalProcess, now_s: float) -> PlatformHealth:
    if not await is_ready(state_dir, running):
        return PlatformHealth(ready=False)
    try:
        connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]), HUB)
        authority, timeouts = (state_dir / "ca.crt").read_bytes(), Timeouts(connect_s=2, read_s=2)
        async with Http1Transport(running.url, ca_pem=authority, timeouts=timeouts) as transport:
            version = decode((await transport.send(Request("GET", "/version"))).body)
            planes = await _read_planes(state_dir, build_client(connection, transport), now_s)
    except _READ_ERRORS:
        return PlatformHealth(ready=True)
    try:
        drivers = await _read_drivers(state_dir, running, authority)
    except _READ_ERRORS:
        drivers = ()
    return PlatformHealth(True, str(version.get("gitVersion", "")), planes, drivers)


async def _read_drivers(
    state_dir: Path, running: LocalProcess, authority: bytes
) -> tuple[ReportedDriver, ...]:
    """Read the drivers from the current project; a container engine may respond slowly."""
    connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]))
    timeouts = Timeouts(connect_s=2, read_s=_ENGINE_S)
    async with Http1Transport(running.url, ca_pem=authority, timeouts=timeouts) as transport:
        client = build_client(connection, transport)
        return tuple(await read_drivers(client, connection.namespace))


async def _read_planes(state_dir: Path, hub: Client, now_s: float) -> tuple[PlaneHealth, ...]:
    """Return every plane that has a context, and every cell of the hub."""
    found_faults = read_faults(state_dir).items()
    faults = {plane: fault for plane, fault in found_faults if fault.is_active(now_s)}
    broken = {plane: describe_fault(fault, now_s) for plane, fault in faults.items()}
    cut = {plane for plane, fault in faults.items() if fault.kind != "slow"}
    cells = {cell_plane(c.metadata.name): c for c in (await hub.list(CLUSTER)).items}
    found = [
        PlaneHealth(name, ANSWERS, broken.get(name, ""))
        for name in _context_names(state_dir)
        if plane_role(name) != "cell"
    ]
    unresponsive_reasons = {
        cell_plane(d.name): why
        for d in cell_directories(state_dir)
        if (why := _unresponsive_reason(d))
    }
    for name, cluster in sorted(cells.items()):
        health, why = _cell_health(cluster, unresponsive_reasons.get(name, ""), is_cut=name in cut)
        detail = "; ".join(filter(None, (why, broken.get(name, ""))))
        found.append(PlaneHealth(name, health, detail))
    return tuple(found)


def _unresponsive_reason(directory: Path) -> str:
    """Return why the process of a cell does not respond; empty if it does."""
    running = find_running(directory)
    if running is None:
        return "its process does not run"
    return "its process is suspended" if is_suspended(running) else ""


def _cell_health(cluster: Cluster, reason: str, *, is_cut: bool = False) -> tuple[str, str]:
    """Return health and detail of a cell.

    The hub keeps a cell Ready for a grace period; a suspended process or a fault injected by
    ``chaos`` is visible here immediately.
    """
    ready = find_condition(cluster.status.conditions, "Ready")
    if ready is not None and ready.status != TRUE:
        return SILENT, "; ".join(filter(None, (f"since {ready.last_transition_time}", reason)))
    if reason or is_cut:
        return SILENT, "; ".join(filter(None, (reason, "the hub still waits for it")))
    return (UNKNOWN if ready is None else ANSWERS), ""


def _context_names(state_dir: Path) -> list[Any]:
    names = load_kubeconfig([state_dir / "kubeconfig"]).contexts
    return sorted(name for name in names if not name.startswith("operator/"))


def _status_document(
    state_dir: Path, running: LocalProcess | None, health: PlatformHealth
) -> PlatformStatus:
    return PlatformStatus(
        running=running is not None,
        ready=health.ready,
        url=running.url if running else None,
        pid=running.pid if running else None,
        state_dir=str(state_dir),
        version=health.version or None,
        planes=[PlaneStatus(name=p.name, health=p.health, detail=p.detail) for p in health.planes],
        drivers=[driver.document for driver in health.drivers],
    )


def _print_health(
    output: Output, state_dir: Path, running: LocalProcess, health: PlatformHealth
) -> None:
    state = "is running" if health.ready else "is starting or does not respond"
    if not health.ready and is_suspended(running):
        state = "is suspended"
    output.data(f"The platform in {state_dir} {state} at {running.url} (pid {running.pid}).")
    if not health.ready and is_suspended(running):
        output.data(f"Continue it: kill -CONT {running.pid}")
    if not health.planes:
        return
    python = ".".join(map(str, sys.version_info[:3]))
    output.data(f"Server {health.version}, command line {__version__}, Python {python}.")
    for sentence in describe_drivers(health.drivers):
        output.data(sentence)
    rows = [(p.name, p.health, p.detail) for p in health.planes]
    output.data(output.table(("PLANE", "HEALTH", "DETAIL"), rows))


def _start_command(environment: CliEnvironment, state_dir: Path) -> str:
    return environment.command("local", "up", "--detach")
