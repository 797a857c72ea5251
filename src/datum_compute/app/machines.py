"""The simulated driver's table of machines, kept in a file so that machines outlive a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datum_compute.api.meta.codec import DecodeError, decode_as, encode, plain
from datum_compute.api.planes import PlaneName
from datum_compute.app.debounced_file import Paced
from datum_compute.app.gateway.ways import CellWay, CellWays
from datum_compute.app.state_directory import StateError
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.drivers.traffic import Traffic


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
    ways: Mapping[PlaneName, CellWay] = field(default_factory=dict)  # to what runs in them

    def cell_ways(self) -> CellWays:
        """For the gateway: cells of other processes may be added."""
        return CellWays(
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
    save = Paced(path, lambda: encode_table(table))
    return SimulatedDriver(table, now=unix_s, save=save, boot_s=boot_s)


def encode_table(table: Mapping[str, SimulatedMachine]) -> bytes:
    return encode(plain(dict(table)))
