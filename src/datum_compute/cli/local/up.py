"""``local ...``: the whole platform on this machine, in one process."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click

from datum_compute.cli.commands.doctor import describe_drivers
from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.environment import (
    API_HOST,
    CREDENTIALS_HELPER,
    KUBECONFIG,
    CliEnvironment,
    default_state_dir,
)
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.local.backup import backup, restore_backup
from datum_compute.cli.local.chaos import chaos
from datum_compute.cli.local.migrate import export_platform
from datum_compute.cli.local.options import UpOptions, check_wishes
from datum_compute.cli.local.options import state_dir_option as _state_dir_option
from datum_compute.cli.local.platform import (
    LogReader,
    Running,
    find_running,
    holds_a_platform,
    log_file,
    prepare_state_dir,
    remove_state,
    server_command,
    start_detached,
    stop,
    wait_ready,
)
from datum_compute.cli.local.processes import (
    Started,
    cell_directories,
    cell_directory,
    start_processes,
    stop_cells,
    wants_processes,
)
from datum_compute.cli.local.status import local_status, observe
from datum_compute.cli.options import yes_option
from datum_compute.cli.render.output import build_output, render_count
from datum_compute.cli.render.prompt import confirm

_LOOK_EVERY_S = 0.2
_CELL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@click.group(short_help="Run the platform on this machine.", invoke_without_command=True)
@click.pass_context
def local(ctx: click.Context) -> None:
    """Run the whole platform on this machine: every plane and every cell, in one process.

    \b
    Examples:
      datumctl compute local up --detach
      datumctl compute local down
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@local.command()
@_state_dir_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 is the one last used, or any free one.",
)
@click.option(
    "--driver",
    type=click.Choice(["auto", "containers", "simulated"]),
    default="auto",
    show_default=True,
    help="What runs the instances; auto: as last time, else containers if an engine answers.",
)
@click.option(
    "--engine",
    default="",
    metavar="SOCKET",
    help="Socket of podman or Docker.  [default: the first of the usual ones that answers]",
)
@click.option(
    "--cells",
    default="",
    metavar="NAME,...",
    callback=lambda _ctx, _param, value: _parse_cells(value),
    help="A cell for each city.  [default: the ones last used, or dfw,iad,lhr,syd]",
)
@click.option("--detach", is_flag=True, help="Return when the platform is ready.")
@click.option(
    "--processes/--no-processes",
    default=None,
    help="A process for each cell, which joins as on a machine of its own.  [default: as last]",
)
@click.pass_obj
def up(
    environment: CliEnvironment,
    state_dir: Path,
    port: int,
    driver: str,
    engine: str,
    cells: str,
    detach: bool,
    processes: bool | None,
) -> None:
    """Start the platform, in the foreground unless told otherwise.

    A cell that an earlier run had and this one leaves out counts as unreachable. A platform that
    runs already stays as it is; flags that ask for something else are refused.

    \b
    Example:
      datumctl compute local up --cells=dfw,lhr --detach
    """
    if engine and driver == "simulated":
        raise UsageError("--engine is for containers, and --driver=simulated has none.")
    prepare_state_dir(state_dir)
    wishes = UpOptions(port, driver, engine, cells)
    if wants_processes(state_dir, processes):
        check_wishes(environment, state_dir, wishes, cell_directories(state_dir))
        _up_in_processes(environment, state_dir, wishes, detach=detach)
        return
    check_wishes(environment, state_dir, wishes)
    running = find_running(state_dir)
    if running is not None:
        run_loop(wait_ready(state_dir, running, timeout_s=30))
        _say_running(environment, state_dir, running, "is running already")
        return
    command = server_command(state_dir, port=port, driver=driver, engine=engine, cells=cells)
    if not detach:
        build_output(environment).note("Starting the platform; Ctrl-C stops it.")
        os.execv(command[0], command)  # noqa: S606 - becomes the server, no shell in between
    _say_starting(environment, state_dir)
    running = run_loop(start_detached(command, state_dir))
    _say_running(environment, state_dir, running, "is running")


@local.command()
@_state_dir_option
@click.pass_obj
def down(environment: CliEnvironment, state_dir: Path) -> None:
    """Stop the platform; what it knows stays in its state directory.

    \b
    Example:
      datumctl compute local down
    """
    cells = run_loop(stop_cells(state_dir))
    stopped = run_loop(stop(state_dir))
    what = f"was stopped (pid {stopped.pid})" if stopped else "is not running"
    if cells:
        what += f", with {render_count(len(cells), 'cell')} in processes of their own"
    build_output(environment).data(f"The platform in {state_dir} {what}.")


@local.command("logs")
@_state_dir_option
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help="Last lines.")
@click.option("--cell", default="", metavar="NAME", help="Of a cell with its own process.")
@click.pass_obj
def local_logs(
    environment: CliEnvironment, state_dir: Path, follow: bool, tail: int, cell: str
) -> None:
    """Show what the platform itself says, as opposed to the instances.

    \b
    Example:
      datumctl compute local logs --follow
    """
    state_dir = cell_directory(state_dir, cell) if cell else state_dir
    log = log_file(state_dir)
    if not log.is_file():
        raise MissingError(
            f"There is no log in {state_dir}; only a platform started with --detach writes one.",
            f"Start it: {environment.command('local', 'up', '--detach')}",
        )
    output, reader = build_output(environment), LogReader(log)
    for line in reader.added()[-tail or sys.maxsize :]:
        output.data(line)
    while follow:
        environment.stdout.flush()
        time.sleep(_LOOK_EVERY_S)
        for line in reader.added():
            output.data(line)


@local.command("reset")
@_state_dir_option
@yes_option
@click.pass_obj
def reset(environment: CliEnvironment, state_dir: Path, yes: bool) -> None:
    """Stop the platform and delete everything it knows: workloads, history, certificates, tokens.

    Every other file in the directory stays.

    \b
    Example:
      datumctl compute local reset
    """
    output = build_output(environment)
    if not holds_a_platform(state_dir):
        output.data(f"There is no platform in {state_dir}.")
        return
    if not yes:
        confirm(environment, f"Delete the platform in {state_dir} with all its workloads?")
    run_loop(stop_cells(state_dir))
    run_loop(stop(state_dir))
    for directory in cell_directories(state_dir):
        remove_state(directory)
    remove_state(state_dir)
    output.data(f"The platform in {state_dir} was deleted.")


def _up_in_processes(
    environment: CliEnvironment, state_dir: Path, wishes: UpOptions, *, detach: bool
) -> None:
    """Nothing is gained by becoming one of many: in the foreground we wait, and stop them all."""
    _say_starting(environment, state_dir)
    started = run_loop(start_processes(environment, state_dir, wishes))
    _say_running(environment, state_dir, started.running, "is running")
    _say_left(environment, state_dir, started)
    if detach:
        return
    build_output(environment).note("Ctrl-C stops it.")
    try:
        while find_running(state_dir) is not None:
            time.sleep(_LOOK_EVERY_S)
    finally:
        run_loop(stop_cells(state_dir))
        run_loop(stop(state_dir))


def _say_left(environment: CliEnvironment, state_dir: Path, started: Started) -> None:
    if not started.left:
        return
    every = ",".join(path.name for path in cell_directories(state_dir))
    again = environment.command("local", "up", f"--cells={every}", "--detach")
    output = build_output(environment)
    output.note(f"Not started, for having left the platform: {', '.join(started.left)}.")
    output.note(f"Join again:    {again}")


def _parse_cells(text: str) -> str:
    names = [name.strip().lower() for name in text.split(",")] if text else []
    for name in names:
        if not _CELL.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a cell.", "Write --cells=dfw,iad.")
    if len(set(names)) != len(names):
        raise UsageError("--cells names a cell twice.")
    return ",".join(names)


def _say_starting(environment: CliEnvironment, state_dir: Path) -> None:
    """So that nobody takes the silence of a slow machine for the end."""
    build_output(environment).note(f"Starting the platform in {state_dir} ...")


def _say_running(environment: CliEnvironment, state_dir: Path, running: Running, what: str) -> None:
    output = build_output(environment)
    kubeconfig = str(state_dir / "kubeconfig")
    output.data(f"The platform {what} at {running.url} (pid {running.pid}).")
    words = ["deploy", "web", "--image=IMAGE", "--city=DFW"]
    if _is_found_by_default(environment, state_dir):
        deploy = environment.command(*words)
    else:
        deploy = environment.command(*words, f"--kubeconfig={kubeconfig}")
    for sentence in describe_drivers(
        run_loop(observe(state_dir, running, environment.now())).drivers
    ):
        output.data(sentence)
    output.note(f"Deploy to it:  {deploy}")
    output.note(f"Look inside:   kubectl --kubeconfig={shlex.quote(kubeconfig)} get workloads")
    output.note(f"Stop it:       {environment.command('local', 'down')}")


def _is_found_by_default(environment: CliEnvironment, state_dir: Path) -> bool:
    """Whether other verbs come to this platform without being told."""
    elsewhere = (API_HOST, CREDENTIALS_HELPER, KUBECONFIG)
    is_default = state_dir == default_state_dir(environment).resolve()
    return is_default and not any(environment.environ.get(name) for name in elsewhere)


local.add_command(local_status)
local.add_command(chaos)
local.add_command(backup)
local.add_command(restore_backup)
local.add_command(export_platform)

COMMAND = local
