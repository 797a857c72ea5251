"""Selection of the driver that runs the instances of this machine.

The driver of ``--driver`` (or containers, with ``--engine``), else the driver of the last run, else
containers if a container engine responds, else simulated. A state directory keeps its driver:
otherwise the simulated driver would report instances as running that were containers, or simulated
instances would become containers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from datum_compute.api.meta.codec import DecodeError, decode_as, encode, to_json
from datum_compute.api.planes import PlaneName
from datum_compute.app.container_host import DEFAULT_SOCKETS, build_containers_driver, find_engine
from datum_compute.app.debounced_file import DebouncedFile
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.ingress_client import IngressClient, launch_ingress
from datum_compute.app.ingress_server import CONFIGURATION_FILE
from datum_compute.app.metrics import UsageMetrics
from datum_compute.app.settings.settings import DriverSettings
from datum_compute.app.state_directory import StateError, read_last_driver
from datum_compute.controllers.context import Context
from datum_compute.controllers.registry import PUBLISHING
from datum_compute.drivers.connections.activations import PrometheusWakeMetrics, WakeHistory
from datum_compute.drivers.connections.draining import wrap_drivers
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.local_network import connect_on_link
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.gateway.cells import CellEndpoints
from datum_compute.ingress.proxy import Proxy
from datum_compute.runtime.controller import Controller

CONTAINERS, SIMULATED, AUTO = "containers", "simulated", "auto"
INGRESS_PROCESS = "process"
# Reasons for a choice, for users.
SAME_AS_LAST_RUN = "as in the last run; local up --driver changes it"
ENGINE_RESPONDS = "an engine responds"
NO_ENGINE = "no container engine responds"

_log = logging.getLogger("datum_compute.local")


@dataclass(frozen=True, slots=True)
class DriverChoice:
    """The selected driver, and its engine, which the next run uses again."""

    driver: str
    reason: str  # of the choice, for users
    summary: str  # for log lines
    engine: str = ""  # its socket


async def _close_nothing() -> None:
    """No-op: simulated machines have no connections."""


@dataclass(frozen=True, slots=True)
class DriverSet:
    """The drivers of the cells of this process, and what they need besides controllers."""

    choice: DriverChoice
    drivers: Mapping[PlaneName, Driver]
    endpoints: CellEndpoints  # for the gateway; cells of other processes are added later
    background_tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    close: Callable[[], Awaitable[None]] = _close_nothing
    traffic: Proxy | IngressClient | None = None

    @property
    def publishing_controllers(self) -> tuple[Controller[Context], ...]:
        """The controllers that publish the ports of machines; simulated machines have none."""
        return PUBLISHING if self.traffic is not None else ()


@dataclass(frozen=True, slots=True)
class MachineHost:
    """Where the machines of this process run."""

    state: Path
    cells: Sequence[PlaneName]
    environment: ProcessEnvironment
    registry: CollectorRegistry
    default_sockets: Sequence[str] = DEFAULT_SOCKETS  # where container engines listen


async def build_machines(settings: DriverSettings, host: MachineHost) -> DriverSet:
    last_driver, last_engine = _last_choice(settings, host.state)
    driver, reason = _requested_driver(settings, last_driver)
    if driver == SIMULATED:
        return _simulated_machines(settings, host, reason)
    engine = settings.engine or last_engine
    sockets = (engine,) if engine else host.default_sockets
    try:
        found = await find_engine(sockets)
    except StateError as error:
        if driver == AUTO:
            _log.info("instances are simulated: %s", error)
            return _simulated_machines(settings, host, NO_ENGINE)
        if last_driver != CONTAINERS:
            raise
        _log.warning("%s; running instances continue, new ones do not start", error)
        summary = "instances are containers, and their engine is unreachable"
        choice = DriverChoice(CONTAINERS, reason, summary, sockets[0])
        return _container_machines(settings, choice, host)
    summary = f"instances are containers of {found.facts.name} {found.facts.version}"
    reason = ENGINE_RESPONDS if driver == AUTO else reason
    choice = DriverChoice(CONTAINERS, reason, summary, found.socket)
    return _container_machines(settings, choice, host)


def uses_ingress_process(settings: DriverSettings, state: Path) -> bool:
    """Return True if published ports are served by a separate process; auto: as in the last run."""
    if settings.ingress == AUTO:
        return (state / CONFIGURATION_FILE).exists()
    return settings.ingress == INGRESS_PROCESS


def _last_choice(settings: DriverSettings, state: Path) -> tuple[str, str]:
    """Return driver and engine of the last run. A damaged record only matters without --driver."""
    try:
        return read_last_driver(state)
    except StateError:
        if settings.name == AUTO:
            raise
        return "", ""


def _requested_driver(settings: DriverSettings, last_driver: str) -> tuple[str, str]:
    """Return the driver, or auto, and the reason."""
    if settings.name != AUTO:
        return settings.name, f"--driver={settings.name}"
    if settings.engine:
        return CONTAINERS, "--engine is set"
    return last_driver or AUTO, SAME_AS_LAST_RUN


def require_same_driver(state: Path, choice: DriverChoice, instances: int) -> None:
    """Refuse to simulate instances that the last run started as containers.

    The containers would run on while the simulated driver reports their instances as running.
    """
    if choice.driver != SIMULATED or not instances:
        return
    try:
        last_driver, _ = read_last_driver(state)
    except StateError:
        return
    if last_driver == CONTAINERS:
        raise StateError(
            f"{instances} instances of {state} run as containers and cannot become simulated. "
            "Start with --driver containers and destroy their workloads first, or use another "
            "--state-dir"
        )


# --- Simulated machines: their table is a file, so that they survive a restart


def _simulated_machines(settings: DriverSettings, host: MachineHost, reason: str) -> DriverSet:
    drivers = {
        cell: simulated_driver(
            machine_table_file(host.state, cell), host.environment.unix_s, boot_s=settings.boot_s
        )
        for cell in host.cells
    }
    return DriverSet(
        DriverChoice(SIMULATED, reason, "instances are simulated"),
        drivers,
        CellEndpoints({}, tuple(drivers), reason),
    )


def machine_table_file(state: Path, cell: PlaneName) -> Path:
    return state / f"machines-{cell.replace('/', '-')}.json"


def simulated_driver(
    path: Path, unix_s: Callable[[], float], *, boot_s: float = 0.0
) -> SimulatedDriver:
    """Return a driver that saves its machines in the file."""
    try:
        content = path.read_bytes() if path.exists() else b""
        found = decode_as(content, dict[str, SimulatedMachine]) if content else {}
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); remove the file: the simulated machines start again"
        ) from error
    table = MachineTable(found)
    save = DebouncedFile(path, lambda: encode_table(table))
    return SimulatedDriver(table, now=unix_s, save=save, boot_s=boot_s)


def encode_table(table: Mapping[str, SimulatedMachine]) -> bytes:
    return encode(to_json(dict(table)))


# --- Containers


def _container_machines(
    settings: DriverSettings, choice: DriverChoice, host: MachineHost
) -> DriverSet:
    engine, elapsed_s = Engine(choice.engine), host.environment.elapsed_s
    drivers = {
        cell: build_containers_driver(host.state, cell, engine, host.environment)
        for cell in host.cells
    }
    activations = WakeHistory(
        host.environment.unix_s, elapsed_s, PrometheusWakeMetrics(host.registry)
    )
    published: Proxy | IngressClient
    if uses_ingress_process(settings, host.state):
        published = IngressClient(host.state, drivers, activations, elapsed_s, launch_ingress)
    else:
        (host.state / CONFIGURATION_FILE).unlink(missing_ok=True)  # the next run uses no ingress
        idle_scaler = IdleScaler(drivers, elapsed_s, activations)
        published = Proxy(idle_scaler, activations, elapsed_s, connect_on_link)
    queries = {cell: driver.queries for cell, driver in drivers.items()}
    usage = UsageMetrics({cell: q.measure_usage for cell, q in queries.items()}, elapsed_s)
    host.registry.register(usage)

    connecting = [published.run] if isinstance(published, IngressClient) else []

    async def close() -> None:
        await published.close()
        await engine.aclose()

    return DriverSet(
        choice,
        wrap_drivers(drivers, published, activations, elapsed_s),
        CellEndpoints(queries, choice_reason=choice.reason),
        background_tasks=[*(driver.run for driver in drivers.values()), usage.run, *connecting],
        close=close,
        traffic=published,
    )
