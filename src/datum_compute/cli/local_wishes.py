"""What ``local up`` was told, and what of it a platform that runs already does not have.

A running process does not change: what differs is refused, with both commands that get it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.planes import member_name
from datum_compute.app.state_directory import StateError, remembered_cells, remembered_driver
from datum_compute.cli.context import Surroundings, default_state_dir
from datum_compute.cli.errors import UsageError
from datum_compute.cli.platform_process import Running, argument_of, find_running

LATENCY = "--latency-seconds"


@dataclass(frozen=True, slots=True)
class Wishes:
    """Zero, ``auto``, empty and None: no wish."""

    port: int = 0
    driver: str = "auto"
    engine: str = ""
    cells: str = ""
    latency_s: float | None = None

    @property
    def cell_names(self) -> list[str]:
        return self.cells.split(",") if self.cells else []

    @property
    def flags(self) -> list[str]:
        given = (
            ("port", str(self.port) if self.port else ""),
            ("driver", self.driver if self.driver != "auto" else ""),
            ("engine", self.engine),
            ("cells", self.cells),
            ("latency", "" if self.latency_s is None else _milliseconds(self.latency_s)),
        )
        return [f"--{name}={shlex.quote(value)}" for name, value in given if value]


@dataclass(frozen=True, slots=True)
class Unmet:
    flag: str
    has: str


def check_wishes(
    surroundings: Surroundings, state_dir: Path, wishes: Wishes, cells: list[Path] | None = None
) -> None:
    """Raise for what a process that runs does not have; ``cells`` are the state directories of
    those with a process of their own, None where all are in one."""
    running = find_running(state_dir)
    unmet = [*_unmet_port(wishes, running)]
    if cells is not None:
        unmet += _unmet_by_cells(wishes, cells)
    elif running is not None:
        unmet += [*_unmet_driver(wishes, state_dir), *_unmet_inside(wishes, state_dir, running)]
    if not unmet:
        return
    said = ", ".join(f"{one.flag} (it has {one.has})" for one in dict.fromkeys(unmet))
    down, up = (_command(surroundings, state_dir, verb) for verb in ("down", "up"))
    more = " ".join([*wishes.flags, "--detach"])
    raise UsageError(
        f"The platform in {state_dir} is running already, without what was asked for: {said}.",
        f"Nothing was changed. To get it:\n  {down}\n  {up} {more}",
    )


def _unmet_port(wishes: Wishes, running: Running | None) -> Iterator[Unmet]:
    if running is not None and wishes.port not in (0, running.port):
        yield Unmet(f"--port={wishes.port}", str(running.port))


def _unmet_driver(wishes: Wishes, directory: Path) -> Iterator[Unmet]:
    try:
        driver, engine = remembered_driver(directory)
    except StateError:
        return  # what it has nobody knows; the next start says so
    if driver and wishes.driver not in ("auto", driver):
        yield Unmet(f"--driver={wishes.driver}", driver)
    if driver and wishes.engine not in ("", engine):
        yield Unmet(f"--engine={wishes.engine}", engine or "none")


def _unmet_inside(wishes: Wishes, state_dir: Path, running: Running) -> Iterator[Unmet]:
    has = [member_name(cell) for cell in remembered_cells(state_dir)]
    if wishes.cells and has and sorted(wishes.cell_names) != sorted(has):
        yield Unmet(f"--cells={wishes.cells}", ",".join(has))
    latency_s = float(argument_of(running, LATENCY) or 0)
    if wishes.latency_s not in (None, latency_s):
        yield Unmet(f"--latency={_milliseconds(wishes.latency_s or 0)}", _milliseconds(latency_s))


def _unmet_by_cells(wishes: Wishes, cells: list[Path]) -> Iterator[Unmet]:
    alive = [directory for directory in cells if find_running(directory) is not None]
    for directory in alive:
        yield from _unmet_driver(wishes, directory)
    if wishes.cells and any(directory.name not in wishes.cell_names for directory in alive):
        yield Unmet(f"--cells={wishes.cells}", ",".join(directory.name for directory in alive))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g}ms"


def _command(surroundings: Surroundings, state_dir: Path, verb: str) -> str:
    if state_dir == default_state_dir(surroundings).resolve():
        return surroundings.command("local", verb)
    return surroundings.command("local", verb, f"--state-dir={shlex.quote(str(state_dir))}")
