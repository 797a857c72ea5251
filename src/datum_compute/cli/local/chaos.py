"""``local chaos``: cut off, slow down or crash the hub or a cell, and heal it.

The faults are written to a file in the state directory, which the running platform reads. They
affect only the connections of controllers, not those of users.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import click

from datum_compute.api.meta.codec import DecodeError
from datum_compute.api.planes import HUB, cell_plane
from datum_compute.cli.arguments import strip_type_of
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.local.options import parse_short, state_dir_option
from datum_compute.cli.local.platform import find_running
from datum_compute.cli.local.processes import cell_directories, cell_directory, has_processes
from datum_compute.cli.options import F, output_option, parse_duration
from datum_compute.cli.render.output import build_output
from datum_compute.client.transport.faults import (
    Fault,
    FaultsByPlane,
    decode_faults,
    encode_faults,
)

FILE = "chaos.json"
_CRASH_S = 5
_SLOW = "500ms"


def _for_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--for",
        "for_s",
        default=default,
        metavar="DURATION",
        callback=lambda _ctx, _param, value: parse_duration(value) if value else None,
        help="Heal after this time, such as 30s.  [default: "
        + (default or "until it is healed")
        + "]",
    )


@click.group(
    "chaos", short_help="Inject faults into the hub or a cell.", invoke_without_command=True
)
@click.pass_context
def chaos(ctx: click.Context) -> None:
    """Inject faults into the hub or a cell of the local platform.

    The machines of a cell that is cut off continue to run; after 30 s, the project shows their
    instances as Unknown. While the hub is cut off, cells continue to work with their last state.

    \b
    Examples:
      datumctl compute local chaos cut dfw --for=2m
      datumctl compute local chaos slow hub --by=300ms
      datumctl compute local chaos crash iad
      datumctl compute local chaos heal
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@chaos.command()
@click.argument("target", callback=strip_type_of("cell"))
@_for_option("")
@state_dir_option
@click.pass_obj
def cut(environment: CliEnvironment, target: str, for_s: int | None, state_dir: Path) -> None:
    """Interrupt the network connections of TARGET (hub, or the name of a cell).

    \b
    Example:
      datumctl compute local chaos cut dfw --for=2m
    """
    _inject_fault(environment, state_dir, target, Fault(kind="cut"), for_s)


@chaos.command()
@click.argument("target", callback=strip_type_of("cell"))
@click.option(
    "--by",
    "delay_s",
    default=_SLOW,
    show_default=True,
    metavar="TIME",
    callback=lambda _ctx, _param, value: parse_short(value),
    help="Delay that is added to each response.",
)
@_for_option("")
@state_dir_option
@click.pass_obj
def slow(
    environment: CliEnvironment, target: str, delay_s: float, for_s: int | None, state_dir: Path
) -> None:
    """Slow down the network connections of TARGET (hub, or the name of a cell).

    \b
    Example:
      datumctl compute local chaos slow hub
    """
    _inject_fault(environment, state_dir, target, Fault(kind="slow", delay_s=delay_s), for_s)


@chaos.command()
@click.argument("target", callback=strip_type_of("cell"))
@_for_option(f"{_CRASH_S}s")
@state_dir_option
@click.pass_obj
def crash(environment: CliEnvironment, target: str, for_s: int | None, state_dir: Path) -> None:
    """Crash TARGET (hub, or the name of a cell), and restart it after --for.

    \b
    Example:
      datumctl compute local chaos crash dfw
    """
    _inject_fault(environment, state_dir, target, Fault(kind="crash"), for_s)


@chaos.command()
@click.argument("target", default="", callback=strip_type_of("cell"))
@state_dir_option
@click.pass_obj
def heal(environment: CliEnvironment, target: str, state_dir: Path) -> None:
    """Remove the faults of TARGET, or all faults.

    \b
    Example:
      datumctl compute local chaos heal dfw
    """
    _require_running(environment, state_dir)
    faults = _active_faults(environment, read_faults(state_dir))
    is_plane = target and not has_processes(state_dir)
    plane = _parse_target(state_dir, target) if is_plane else ""
    left = {name: fault for name, fault in faults.items() if target and name != plane}
    _write_faults(state_dir, left)
    healed = sorted((set(faults) - set(left)) | set(_resume_processes(state_dir, target)))
    build_output(environment).data(f"Healed: {', '.join(healed) or 'no faults were active'}.")


@chaos.command("status")
@output_option("table", "json")
@state_dir_option
@click.pass_obj
def show(environment: CliEnvironment, output_format: str, state_dir: Path) -> None:
    """Show the faults that are active.

    \b
    Example:
      datumctl compute local chaos status
    """
    output = build_output(environment)
    found = _active_faults(environment, read_faults(state_dir))
    if output_format == "json":
        output.json({plane: fault.kind for plane, fault in found.items()})
    elif not found:
        output.data("No faults are active.")
    for plane, fault in found.items() if output_format != "json" else ():
        output.data(f"{plane}: {describe_fault(fault, environment.now())}")


def describe_fault(fault: Fault, now_s: float) -> str:
    words = {"cut": "cut off", "crash": "crashed", "slow": f"slower by {fault.delay_s:g} s"}
    left = f", for {fault.until_s - now_s:.0f} s more" if fault.until_s is not None else ""
    return words[fault.kind] + left


def read_faults(state_dir: Path) -> FaultsByPlane:
    try:
        return decode_faults((state_dir / FILE).read_bytes())
    except (OSError, DecodeError):
        return {}


def _inject_fault(
    environment: CliEnvironment, state_dir: Path, target: str, fault: Fault, for_s: int | None
) -> None:
    _require_running(environment, state_dir)
    if has_processes(state_dir):
        if fault.kind == "cut" and for_s is not None:
            raise UsageError(
                "--for does not apply to processes: a suspended process does not resume by itself."
            )
        _signal_process(environment, state_dir, target, fault)
        return
    plane, now_s = _parse_target(state_dir, target), environment.now()
    until_s = now_s + for_s if for_s is not None else None
    timed_fault = Fault(kind=fault.kind, delay_s=fault.delay_s, until_s=until_s)
    faults = {**_active_faults(environment, read_faults(state_dir)), plane: timed_fault}
    _write_faults(state_dir, faults)
    output = build_output(environment)
    output.data(f"{plane}: {describe_fault(timed_fault, now_s)}")
    if for_s is None:
        output.note(f"Heal it: {environment.command('local', 'chaos', 'heal', target)}")


def _signal_process(
    environment: CliEnvironment, state_dir: Path, target: str, fault: Fault
) -> None:
    """Suspend or kill the process of a cell or of the hub.

    To others, a suspended process looks like one whose network connection is interrupted.
    """
    if fault.kind == "slow":
        raise UsageError(f"{target} has its own process: only cut and crash are possible.")
    directory = state_dir if target == HUB else cell_directory(state_dir, target)
    running = find_running(directory)
    if running is None:
        raise _no_process(environment, state_dir, target)
    signal_ = signal.SIGSTOP if fault.kind == "cut" else signal.SIGKILL
    os.kill(running.pid, signal_)
    words = ("heal", target) if fault.kind == "cut" else ()
    recovery_command = (
        ("local", "chaos", *words) if words else ("local", "up", "--processes", "--detach")
    )
    output = build_output(environment)
    output.data(f"{target}: sent {signal_.name} to process {running.pid}")
    output.note(f"Undo it: {environment.command(*recovery_command)}")


def _no_process(environment: CliEnvironment, state_dir: Path, target: str) -> MissingError:
    cells = [path.name for path in cell_directories(state_dir)]
    if target not in cells:
        return MissingError(f"There is no {target!r}.", f"Name one of: {', '.join((HUB, *cells))}.")
    return MissingError(
        f"The process of {target} is not running.",
        f"Start it: {environment.command('local', 'up', '--processes', '--detach')}",
    )


def _resume_processes(state_dir: Path, target: str) -> list[str]:
    """Resume suspended processes. Return the names of their planes."""
    resumed: list[str] = []
    found = {HUB: state_dir, **{path.name: path for path in cell_directories(state_dir)}}
    for name, directory in found.items() if has_processes(state_dir) else ():
        running = find_running(directory)
        if running is not None and target in ("", name):
            os.kill(running.pid, signal.SIGCONT)
            resumed.append(HUB if name == HUB else cell_plane(name))
    return resumed


def _active_faults(environment: CliEnvironment, faults: FaultsByPlane) -> FaultsByPlane:
    now_s = environment.now()
    return {plane: fault for plane, fault in sorted(faults.items()) if fault.is_active(now_s)}


def _parse_target(state_dir: Path, target: str) -> str:
    cells = _read_cell_names(state_dir)
    if target != HUB and target not in cells:
        raise UsageError(f"There is no {target!r}.", f"Name one of: hub, {', '.join(cells)}.")
    return HUB if target == HUB else cell_plane(target)


def _read_cell_names(state_dir: Path) -> list[str]:
    try:
        return list(json.loads((state_dir / "cells.json").read_bytes())["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _require_running(environment: CliEnvironment, state_dir: Path) -> None:
    if find_running(state_dir) is None:
        raise MissingError(
            f"The platform in {state_dir} is not running.",
            f"Start it: {environment.command('local', 'up', '--detach')}",
        )


def _write_faults(state_dir: Path, faults: FaultsByPlane) -> None:
    """Replace the file atomically, because the platform may read it at any time."""
    file, new = state_dir / FILE, state_dir / f".{FILE}.new"
    if not faults:
        file.unlink(missing_ok=True)
        return
    with open(new, "wb", opener=_open_private) as opened:
        opened.write(encode_faults(faults))
    new.replace(file)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
