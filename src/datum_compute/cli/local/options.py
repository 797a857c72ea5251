"""Options of ``local up``, and their conflicts with a platform that runs already.

A running platform keeps its options. ``local up`` with other options fails, and the error contains
the commands that restart the platform with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from datum_compute.api.planes import member_name
from datum_compute.app.state_directory import StateError, read_last_cells, read_last_driver
from datum_compute.cli.environment import CliEnvironment, default_state_dir
from datum_compute.cli.errors import UsageError
from datum_compute.cli.local.platform import LocalProcess, find_running
from datum_compute.cli.options import STATE_DIR_FLAG, F, remember_flag


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of ``local up``. The defaults select nothing."""

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
    """A flag, and the value that the running platform has instead."""

    flag: str
    current: str


def check_option_conflicts(
    environment: CliEnvironment,
    state_dir: Path,
    options: UpOptions,
    cells: list[Path] | None = None,
) -> None:
    """Raise UsageError if a running platform has other options.

    ``cells`` are the state directories of cells with their own processes, or None if all cells run
    in one process.
    """
    running = find_running(state_dir)
    conflicts = [*_find_port_conflict(options, running)]
    if cells is not None:
        conflicts += _find_process_conflicts(options, cells)
    elif running is not None:
        conflicts += _find_driver_conflicts(options, state_dir)
        conflicts += _find_cells_conflict(options, state_dir)
    if not conflicts:
        return
    listed = ", ".join(f"{c.flag} (currently {c.current})" for c in dict.fromkeys(conflicts))
    down = environment.command("local", "down")
    up = environment.command("local", "up", *options.flags, "--detach")
    raise UsageError(
        f"The platform in {state_dir} is already running with other options: {listed}.",
        f"Nothing was changed. To restart it with these options:\n  {down}\n  {up}",
    )


def _find_port_conflict(
    options: UpOptions, running: LocalProcess | None
) -> Iterator[OptionConflict]:
    if running is not None and options.port not in (0, running.port):
        yield OptionConflict(f"--port={options.port}", str(running.port))


def _find_driver_conflicts(options: UpOptions, directory: Path) -> Iterator[OptionConflict]:
    try:
        driver, engine = read_last_driver(directory)
    except StateError:
        return  # the driver is unknown; the next start reports the error
    if driver and options.driver not in ("auto", driver):
        yield OptionConflict(f"--driver={options.driver}", driver)
    if driver and options.engine not in ("", engine):
        yield OptionConflict(f"--engine={options.engine}", engine or "none")


def _find_cells_conflict(options: UpOptions, state_dir: Path) -> Iterator[OptionConflict]:
    current = [member_name(cell) for cell in read_last_cells(state_dir)]
    if options.cells and current and sorted(options.cell_names) != sorted(current):
        yield OptionConflict(f"--cells={options.cells}", ",".join(current))


def _find_process_conflicts(options: UpOptions, cells: list[Path]) -> Iterator[OptionConflict]:
    alive = [directory for directory in cells if find_running(directory) is not None]
    for directory in alive:
        yield from _find_driver_conflicts(options, directory)
    if options.cells and any(directory.name not in options.cell_names for directory in alive):
        yield OptionConflict(
            f"--cells={options.cells}", ",".join(directory.name for directory in alive)
        )


# --- Options of several ``local`` commands: the state directory, and durations below a second


_SHORT = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ms|s)")


def state_dir_option(command: F) -> F:
    return click.option(
        STATE_DIR_FLAG,
        metavar="DIR",
        callback=_state_dir,
        help="State directory.  [default: $DATUM_STATE_DIR, else below $XDG_STATE_HOME]",
    )(command)


def _state_dir(ctx: click.Context, _param: click.Parameter, value: str | None) -> Path:
    # Resolved, because a running process is identified by the directory on its command line.
    default = default_state_dir(ctx.obj).resolve()
    state_dir = Path(value).expanduser().resolve() if value else default
    if state_dir != default:
        remember_flag(ctx, STATE_DIR_FLAG, str(state_dir))
    return state_dir


def parse_short(text: str) -> float:
    """Return the seconds of ``50ms`` or ``1.5s``."""
    found = _SHORT.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write for example 50ms or 2s.")
    number, unit = found.groups()
    seconds = float(number) / 1000 if unit == "ms" else float(number)
    if seconds > 60:
        raise click.BadParameter(f"{text!r} is more than a minute.")
    return seconds
