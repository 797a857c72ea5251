"""``local ...``: the whole platform on this machine, in one process."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click

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
from datum_compute.cli.local.options import UpOptions, check_option_conflicts
from datum_compute.cli.local.options import state_dir_option as _state_dir_option
from datum_compute.cli.local.platform import (
    LocalProcess,
    LogFileReader,
    find_ingress,
    find_running,
    has_platform_state,
    log_file,
    prepare_state_dir,
    remove_state,
    server_command,
    start_detached,
    stop,
    stop_ingress,
    wait_ready,
)
from datum_compute.cli.local.processes import (
    Started,
    cell_directories,
    cell_directory,
    should_use_processes,
    start_processes,
    stop_cells,
)
from datum_compute.cli.local.status import local_status, observe
from datum_compute.cli.options import yes_option
from datum_compute.cli.render.output import build_output
from datum_compute.cli.render.prompt import confirm
from datum_compute.cli.workload.cell_reports import describe_drivers

_POLL_INTERVAL_S = 0.2
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
    help="Port to listen on. 0 selects the previous port, or any free port.",
)
@click.option(
    "--driver",
    type=click.Choice(["auto", "containers", "simulated"]),
    default="auto",
    show_default=True,
    help="Driver that runs instances. auto: the previous one, else containers if an engine runs.",
)
@click.option(
    "--engine",
    default="",
    metavar="SOCKET",
    help="Socket of podman or Docker.  [default: the first default socket that responds]",
)
@click.option(
    "--cells",
    default="",
    metavar="NAME,...",
    callback=lambda _ctx, _param, value: _parse_cells(value),
    help="Cells to run, one per city.  [default: the previous cells, or dfw,iad,lhr,syd]",
)
@click.option(
    "--detach", is_flag=True, help="Run in the background; return when the platform is ready."
)
@click.option(
    "--processes/--no-processes",
    default=None,
    help="Run each cell in its own process, as on several machines.  [default: as before]",
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
    """Start the platform in the foreground, or in the background with --detach.

    A cell of the previous run that --cells leaves out becomes unreachable. If the platform runs
    already with other options, the command fails and changes nothing.

    \b
    Example:
      datumctl compute local up --cells=dfw,lhr --detach
    """
    if engine and driver == "simulated":
        raise UsageError(
            "--engine has no effect with --driver=simulated.", "Leave out one of them."
        )
    prepare_state_dir(state_dir)
    options = UpOptions(port, driver, engine, cells)
    if should_use_processes(environment, state_dir, processes):
        check_option_conflicts(environment, state_dir, options, cell_directories(state_dir))
        _up_in_processes(environment, state_dir, options, detach=detach)
        return
    check_option_conflicts(environment, state_dir, options)
    running = find_running(state_dir)
    if running is not None:
        run_loop(wait_ready(state_dir, running, timeout_s=30))
        _print_running(environment, state_dir, running, "is running already")
        return
    command = server_command(state_dir, port=port, driver=driver, engine=engine, cells=cells)
    if not detach:
        build_output(environment).note("Starting the platform; Ctrl-C stops it.")
        os.execv(command[0], command)  # noqa: S606 - becomes the server, no shell in between
    _print_starting(environment, state_dir)
    running = run_loop(start_detached(command, state_dir))
    _print_running(environment, state_dir, running, "is running")


@local.command()
@_state_dir_option
@click.option("--all", "stop_all", is_flag=True, help="Also stop the process of published ports.")
@click.pass_obj
def down(environment: CliEnvironment, state_dir: Path, stop_all: bool) -> None:
    """Stop the platform. Its state directory is kept.

    Containers keep running, and so does the process that serves their published ports. --all
    stops that process too.

    \b
    Examples:
      datumctl compute local down
      datumctl compute local down --all
    """
    cells = run_loop(stop_cells(state_dir))
    stopped = run_loop(stop(state_dir))
    what = f"was stopped (pid {stopped.pid})" if stopped else "is not running"
    if cells:
        what += f"; cells stopped: {len(cells)}"
    directories = [state_dir, *cell_directories(state_dir)]
    ingresses = [pid for pid in map(find_ingress, directories) if pid is not None]
    if stop_all:
        for directory in directories:
            run_loop(stop_ingress(directory))
        what += "; published ports were closed" if ingresses else ""
    output = build_output(environment)
    output.data(f"The platform in {state_dir} {what}.")
    if ingresses and not stop_all:
        close = environment.command("local", "down", "--all")
        output.note(f"Published ports stay open. To close them:  {close}")


@local.command("logs")
@_state_dir_option
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C.")
@click.option(
    "--tail", type=click.IntRange(0), default=100, show_default=True, help="Number of last lines."
)
@click.option("--cell", default="", metavar="NAME", help="Log of a cell that has its own process.")
@click.pass_obj
def local_logs(
    environment: CliEnvironment, state_dir: Path, follow: bool, tail: int, cell: str
) -> None:
    """Show the log of the platform itself. The command logs shows the logs of instances.

    \b
    Example:
      datumctl compute local logs --follow
    """
    state_dir = cell_directory(state_dir, cell) if cell else state_dir
    log = log_file(state_dir)
    if not log.is_file():
        raise MissingError(
            f"There is no log in {state_dir}: only a platform started with --detach writes one.",
            f"Start it: {environment.command('local', 'up', '--detach')}",
        )
    output, reader = build_output(environment), LogFileReader(log)
    for line in reader.read_new_lines()[-tail or sys.maxsize :]:
        output.data(line)
    while follow:
        environment.stdout.flush()
        time.sleep(_POLL_INTERVAL_S)
        for line in reader.read_new_lines():
            output.data(line)


@local.command("reset")
@_state_dir_option
@yes_option
@click.pass_obj
def reset(environment: CliEnvironment, state_dir: Path, yes: bool) -> None:
    """Stop the platform and delete its state: workloads, history, certificates, tokens.

    Other files in the directory are kept.

    \b
    Example:
      datumctl compute local reset
    """
    output = build_output(environment)
    if not has_platform_state(state_dir):
        output.data(f"There is no platform in {state_dir}.")
        return
    if not yes:
        confirm(environment, f"Delete the platform in {state_dir} with all its workloads?")
    run_loop(stop_cells(state_dir))
    run_loop(stop(state_dir))
    for directory in cell_directories(state_dir):
        run_loop(stop_ingress(directory))
        remove_state(directory)
    run_loop(stop_ingress(state_dir))
    remove_state(state_dir)
    output.data(f"The platform in {state_dir} was deleted.")


def _up_in_processes(
    environment: CliEnvironment, state_dir: Path, options: UpOptions, *, detach: bool
) -> None:
    """Start all processes. In the foreground, wait for Ctrl-C and then stop them."""
    _print_starting(environment, state_dir)
    started = run_loop(start_processes(environment, state_dir, options))
    _print_running(environment, state_dir, started.running, "is running")
    _print_not_started(environment, state_dir, started)
    if detach:
        return
    build_output(environment).note("Ctrl-C stops it.")
    try:
        while find_running(state_dir) is not None:
            time.sleep(_POLL_INTERVAL_S)
    finally:
        run_loop(stop_cells(state_dir))
        run_loop(stop(state_dir))


def _print_not_started(environment: CliEnvironment, state_dir: Path, started: Started) -> None:
    if not started.left:
        return
    every = ",".join(path.name for path in cell_directories(state_dir))
    join_command = environment.command("local", "up", f"--cells={every}", "--detach")
    output = build_output(environment)
    output.note(f"Not started, because they left the platform: {', '.join(started.left)}.")
    output.note(f"Join again:    {join_command}")


def _parse_cells(text: str) -> str:
    names = [name.strip().lower() for name in text.split(",")] if text else []
    for name in names:
        if not _CELL.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a valid name of a cell.", "Write for example --cells=dfw,iad."
            )
    if len(set(names)) != len(names):
        raise UsageError("--cells names a cell twice.")
    return ",".join(names)


def _print_starting(environment: CliEnvironment, state_dir: Path) -> None:
    # Without this line, a slow start looks like a command that hangs.
    build_output(environment).note(f"Starting the platform in {state_dir} ...")


def _print_running(
    environment: CliEnvironment, state_dir: Path, running: LocalProcess, what: str
) -> None:
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
    output.note(f"Use kubectl:   kubectl --kubeconfig={shlex.quote(kubeconfig)} get workloads")
    output.note(f"Stop it:       {environment.command('local', 'down')}")


def _is_found_by_default(environment: CliEnvironment, state_dir: Path) -> bool:
    """Return True if other commands use this platform without further flags."""
    environ = environment.environ
    if environ.get(API_HOST) or environ.get(CREDENTIALS_HELPER):
        return False
    selected = environ.get(KUBECONFIG)
    if selected:
        return Path(selected) == state_dir / "kubeconfig"
    return state_dir == default_state_dir(environment).resolve()


local.add_command(local_status)
local.add_command(chaos)
local.add_command(backup)
local.add_command(restore_backup)
local.add_command(export_platform)

COMMAND = local
