"""What ``local up`` was told, and what of it a platform that runs already does not have.

A running process does not change: what differs is refused, with both commands that get it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from datum_compute.api.planes import member_name
from datum_compute.app.state_directory import StateError, remembered_cells, remembered_driver
from datum_compute.cli.environment import CliEnvironment, default_state_dir
from datum_compute.cli.errors import UsageError
from datum_compute.cli.local.platform import Running, find_running
from datum_compute.cli.options import STATE_DIR_FLAG, F, remember_flag


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Zero, ``auto``, empty and None: no wish."""

    port: int = 0
    driver: str = "auto"
    engine: str = ""
    cells: str = ""

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
        )
        return [f"--{name}={value}" for name, value in given if value]


@dataclass(frozen=True, slots=True)
class OptionConflict:
    flag: str
    has: str


def check_wishes(
    environment: CliEnvironment, state_dir: Path, wishes: UpOptions, cells: list[Path] | None = None
) -> None:
    """Raise for what a process that runs does not have; ``cells`` are the state directories of
    those with a process of their own, None where all are in one."""
    running = find_running(state_dir)
    unmet = [*_unmet_port(wishes, running)]
    if cells is not None:
        unmet += _unmet_by_cells(wishes, cells)
    elif running is not None:
        unmet += [*_unmet_driver(wishes, state_dir), *_unmet_inside(wishes, state_dir)]
    if not unmet:
        return
    said = ", ".join(f"{one.flag} (it has {one.has})" for one in dict.fromkeys(unmet))
    down = environment.command("local", "down")
    up = environment.command("local", "up", *wishes.flags, "--detach")
    raise UsageError(
        f"The platform in {state_dir} is running already, without what was asked for: {said}.",
        f"Nothing was changed. To get it:\n  {down}\n  {up}",
    )


def _unmet_port(wishes: UpOptions, running: Running | None) -> Iterator[OptionConflict]:
    if running is not None and wishes.port not in (0, running.port):
        yield OptionConflict(f"--port={wishes.port}", str(running.port))


def _unmet_driver(wishes: UpOptions, directory: Path) -> Iterator[OptionConflict]:
    try:
        driver, engine = remembered_driver(directory)
    except StateError:
        return  # what it has nobody knows; the next start says so
    if driver and wishes.driver not in ("auto", driver):
        yield OptionConflict(f"--driver={wishes.driver}", driver)
    if driver and wishes.engine not in ("", engine):
        yield OptionConflict(f"--engine={wishes.engine}", engine or "none")


def _unmet_inside(wishes: UpOptions, state_dir: Path) -> Iterator[OptionConflict]:
    has = [member_name(cell) for cell in remembered_cells(state_dir)]
    if wishes.cells and has and sorted(wishes.cell_names) != sorted(has):
        yield OptionConflict(f"--cells={wishes.cells}", ",".join(has))


def _unmet_by_cells(wishes: UpOptions, cells: list[Path]) -> Iterator[OptionConflict]:
    alive = [directory for directory in cells if find_running(directory) is not None]
    for directory in alive:
        yield from _unmet_driver(wishes, directory)
    if wishes.cells and any(directory.name not in wishes.cell_names for directory in alive):
        yield OptionConflict(
            f"--cells={wishes.cells}", ",".join(directory.name for directory in alive)
        )


# --- What verbs of ``local`` share: the state directory, and lengths of time below a second


_SHORT = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ms|s)")


def state_dir_option(command: F) -> F:
    return click.option(
        STATE_DIR_FLAG,
        metavar="DIR",
        callback=_state_dir,
        help="Where the platform keeps its data.  [default: $DATUM_STATE_DIR or the XDG one]",
    )(command)


def _state_dir(ctx: click.Context, _param: click.Parameter, value: str | None) -> Path:
    # Resolved, because the running process is known by the directory on its command line.
    default = default_state_dir(ctx.obj).resolve()
    state_dir = Path(value).expanduser().resolve() if value else default
    if state_dir != default:
        remember_flag(ctx, STATE_DIR_FLAG, str(state_dir))
    return state_dir


def parse_short(text: str) -> float:
    """Seconds of ``50ms`` or ``1.5s``."""
    found = _SHORT.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a length of time; write for example 50ms or 2s.")
    number, unit = found.groups()
    seconds = float(number) / 1000 if unit == "ms" else float(number)
    if seconds > 60:
        raise click.BadParameter(f"{text!r} is more than a minute.")
    return seconds
