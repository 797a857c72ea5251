"""Which driver runs the instances of this host: as told, else as in the last run, else real
containers if an engine answers. Who names an engine has asked for containers.

The choice of a state directory stays: instances that were containers are not called running by a
driver that only pretends, and pretended ones do not become real by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from datum_compute.api.meta.codec import DecodeError, decode_as, encode, to_json
from datum_compute.api.planes import PlaneName
from datum_compute.app.container_host import SOCKETS, containers_driver, find_engine
from datum_compute.app.debounced_file import DebouncedFile
from datum_compute.app.environment import Ports
from datum_compute.app.metrics import UsageMetrics
from datum_compute.app.settings.settings import DriverSettings
from datum_compute.app.state_directory import StateError, remembered_driver
from datum_compute.controllers.context import Context
from datum_compute.controllers.registry import PUBLISHING
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.drivers.traffic import Traffic
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints
from datum_compute.ingress.activations import PrometheusWakes, WakeBook
from datum_compute.ingress.drivers import with_traffic
from datum_compute.ingress.idle_scaler import IdleScaler
from datum_compute.ingress.proxy import Proxy
from datum_compute.runtime.controller import Controller

# --- The simulated driver's table of machines, kept in a file so that machines outlive a restart


async def nothing_to_close() -> None:
    """No connection was opened."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What realises the Servers of each cell, and what must run for it beside the controllers."""

    driver: str  # its name, for the next run
    told: str  # for people
    why: str  # it was chosen
    drivers: Mapping[PlaneName, Driver]
    engine: str = ""  # its socket, for the next run
    runs: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    close: Callable[[], Awaitable[None]] = nothing_to_close
    traffic: Traffic | None = None
    ways: Mapping[PlaneName, CellEndpoint] = field(default_factory=dict)  # to what runs in them

    def cell_ways(self) -> CellEndpoints:
        """For the gateway: cells of other processes may be added."""
        return CellEndpoints(
            self.ways, [cell for cell in self.drivers if cell not in self.ways], self.why
        )


def simulated_driver(
    path: Path, unix_s: Callable[[], float], *, boot_s: float = 0.0
) -> SimulatedDriver:
    try:
        content = path.read_bytes() if path.exists() else b""
        found = decode_as(content, dict[str, SimulatedMachine]) if content else {}
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); remove it: the simulated machines start again"
        ) from error
    table = MachineTable(found)
    save = DebouncedFile(path, lambda: encode_table(table))
    return SimulatedDriver(table, now=unix_s, save=save, boot_s=boot_s)


def encode_table(table: Mapping[str, SimulatedMachine]) -> bytes:
    return encode(to_json(dict(table)))


# --- choice


# How a driver was chosen, for people.
AS_LAST_TIME = "as in the last run; local up --driver changes it"
ENGINE_ANSWERS = "an engine answers"
NO_ENGINE = "no container engine answers"

_log = logging.getLogger("datum_compute.local")


async def build_machines(
    settings: DriverSettings,
    state: Path,
    cells: Sequence[PlaneName],
    ports: Ports,
    registry: CollectorRegistry,
    usual: Sequence[str] = SOCKETS,
) -> Machines:
    """``registry`` takes what is counted of them; ``usual`` is where engines listen."""
    last, engine = _last(settings, state)
    wanted, why = _wanted(settings, last)
    if wanted == "simulated":
        return _simulated(settings, state, cells, ports, why)
    engine = settings.engine or engine
    sockets = (engine,) if engine else usual
    try:
        found = await find_engine(sockets)
    except StateError as error:
        if wanted == "auto":
            _log.info("instances are simulated: %s", error)
            return _simulated(settings, state, cells, ports, NO_ENGINE)
        if last != "containers":
            raise
        _log.warning("%s; instances that run go on, nothing new is started", error)
        told = "containers of an engine that is away"
        return _containers(sockets[0], told, why, state, cells, ports, registry)
    told = f"instances are containers of {found.facts.name} {found.facts.version}"
    why = ENGINE_ANSWERS if wanted == "auto" else why
    return _containers(found.socket, told, why, state, cells, ports, registry)


def _last(settings: DriverSettings, state: Path) -> tuple[str, str]:
    """What the last run had. Who says what it is to be need not know."""
    try:
        return remembered_driver(state)
    except StateError:
        if settings.name == "auto":
            raise
        return "", ""


def _wanted(settings: DriverSettings, last: str) -> tuple[str, str]:
    """The driver, and why it is that one."""
    if settings.name != "auto":
        return settings.name, f"as --driver={settings.name} says"
    if settings.engine:
        return "containers", "as --engine says"
    return last or "auto", AS_LAST_TIME


def publishing_over(machines: Machines) -> tuple[Controller[Context], ...]:
    """What publishes the ports of machines that have any."""
    return PUBLISHING if machines.traffic is not None else ()


def _simulated(
    settings: DriverSettings,
    state: Path,
    cells: Sequence[PlaneName],
    ports: Ports,
    why: str,
) -> Machines:
    drivers = {
        cell: simulated_driver(
            state / f"machines-{cell.replace('/', '-')}.json", ports.unix_s, boot_s=settings.boot_s
        )
        for cell in cells
    }
    return Machines("simulated", "instances are simulated", why, drivers)


def _containers(
    socket: str,
    told: str,
    why: str,
    state: Path,
    cells: Sequence[PlaneName],
    ports: Ports,
    registry: CollectorRegistry,
) -> Machines:
    engine = Engine(socket)
    real = {cell: containers_driver(state, cell, engine, ports) for cell in cells}
    book = WakeBook(ports.unix_s, ports.elapsed_s, PrometheusWakes(registry))
    proxy = Proxy(IdleScaler(real, ports.elapsed_s, book), book, ports.elapsed_s)
    inside = {cell: driver.queries for cell, driver in real.items()}
    readings = {cell: machines.measure_usage for cell, machines in inside.items()}
    usage = UsageMetrics(readings, ports.elapsed_s)
    registry.register(usage)

    async def close() -> None:
        await proxy.close()
        await engine.aclose()

    return Machines(
        driver="containers",
        told=told,
        why=why,
        engine=socket,
        drivers=with_traffic(real, proxy.take_out, book, ports.elapsed_s),
        runs=[*(driver.run for driver in real.values()), usage.run],
        close=close,
        traffic=proxy,
        ways=inside,
    )
