"""``local up|down|status|logs|reset``: the whole platform on this machine, in one process."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path

import click

from datum_compute.cli.context import (
    API_HOST,
    CREDENTIALS_HELPER,
    KUBECONFIG,
    Surroundings,
    default_state_dir,
)
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.options import F, output_option, yes_option
from datum_compute.cli.output import build_output
from datum_compute.cli.platform_process import (
    Running,
    find_running,
    is_ready,
    prepare_state_dir,
    server_command,
    start_detached,
    stop,
    wait_ready,
)
from datum_compute.cli.platform_state import (
    LogReader,
    holds_a_platform,
    log_file,
    remove_state,
)
from datum_compute.cli.prompt import confirm
from datum_compute.cli.session import run_loop

_LOOK_EVERY_S = 0.2
_CELL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _state_dir_option(command: F) -> F:
    return click.option(
        "--state-dir",
        metavar="DIR",
        callback=_state_dir,
        help="Where the platform keeps its data.  [default: $DATUM_STATE_DIR or the XDG one]",
    )(command)


def _state_dir(ctx: click.Context, _param: click.Parameter, value: str | None) -> Path:
    # Resolved, because the running process is known by the directory on its command line.
    named = Path(value).expanduser() if value else default_state_dir(ctx.obj)
    return named.resolve()


@click.group(short_help="Run the whole platform on this machine.", invoke_without_command=True)
@click.pass_context
def local(ctx: click.Context) -> None:
    """Run the whole platform on this machine: every plane and every cell, in one process."""
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
    type=click.Choice(["simulated"]),
    default="simulated",
    show_default=True,
    help="What runs the instances.",
)
@click.option(
    "--cells",
    default="",
    metavar="NAME,...",
    callback=lambda _ctx, _param, value: _parse_cells(value),
    help="A cell for each city.  [default: the ones last used, or dfw,iad,lhr,syd]",
)
@click.option("--detach", is_flag=True, help="Return when the platform is ready.")
@click.pass_obj
def up(
    surroundings: Surroundings, state_dir: Path, port: int, driver: str, cells: str, detach: bool
) -> None:
    """Start the platform, in the foreground unless told otherwise.

    A cell that an earlier run had and this one leaves out counts as unreachable.
    """
    prepare_state_dir(state_dir)
    running = find_running(state_dir)
    if running is not None:
        run_loop(wait_ready(state_dir, running, timeout_s=30))
        _say_running(surroundings, state_dir, running, "is running already")
        return
    command = server_command(state_dir, port=port, driver=driver, cells=cells)
    if not detach:
        build_output(surroundings).note("Starting the platform; Ctrl-C stops it.")
        os.execv(command[0], command)  # noqa: S606 - becomes the server, no shell in between
    running = run_loop(start_detached(command, state_dir))
    _say_running(surroundings, state_dir, running, "is running")


@local.command()
@_state_dir_option
@click.pass_obj
def down(surroundings: Surroundings, state_dir: Path) -> None:
    """Stop the platform; what it knows stays in its state directory."""
    stopped = run_loop(stop(state_dir))
    what = f"was stopped (pid {stopped.pid})" if stopped else "is not running"
    build_output(surroundings).data(f"The platform in {state_dir} {what}.")


@local.command("status")
@_state_dir_option
@output_option("table", "json")
@click.pass_obj
def local_status(surroundings: Surroundings, state_dir: Path, output_format: str) -> None:
    """Say whether the platform runs; exit code 3 if it does not."""
    output = build_output(surroundings)
    running = find_running(state_dir)
    ready = running is not None and run_loop(is_ready(state_dir, running))
    if output_format == "json":
        output.json(
            {
                "running": running is not None,
                "ready": ready,
                "url": running.url if running else None,
                "pid": running.pid if running else None,
                "stateDir": str(state_dir),
            }
        )
    elif running:
        state = "is running" if ready else "is starting, or does not answer,"
        output.data(f"The platform in {state_dir} {state} at {running.url} (pid {running.pid}).")
    if running is None:
        raise MissingError(
            f"The platform in {state_dir} is not running.",
            f"Start it: {_command(surroundings, state_dir, 'local', 'up', '--detach')}",
        )


@local.command("logs")
@_state_dir_option
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help="Last lines.")
@click.pass_obj
def local_logs(surroundings: Surroundings, state_dir: Path, follow: bool, tail: int) -> None:
    """Show what the platform itself says, as opposed to the instances."""
    log = log_file(state_dir)
    if not log.is_file():
        raise MissingError(
            f"There is no log in {state_dir}; only a platform started with --detach writes one.",
            f"Start it: {_command(surroundings, state_dir, 'local', 'up', '--detach')}",
        )
    output, reader = build_output(surroundings), LogReader(log)
    for line in reader.added()[-tail or sys.maxsize :]:
        output.data(line)
    while follow:
        surroundings.stdout.flush()
        time.sleep(_LOOK_EVERY_S)
        for line in reader.added():
            output.data(line)


@local.command("reset")
@_state_dir_option
@yes_option
@click.pass_obj
def reset(surroundings: Surroundings, state_dir: Path, yes: bool) -> None:
    """Stop the platform and delete everything it knows: workloads, history, certificates, tokens.

    Every other file in the directory stays.
    """
    output = build_output(surroundings)
    if not holds_a_platform(state_dir):
        output.data(f"There is no platform in {state_dir}.")
        return
    if not yes:
        confirm(surroundings, f"Delete the platform in {state_dir} with all its workloads?")
    run_loop(stop(state_dir))
    remove_state(state_dir)
    output.data(f"The platform in {state_dir} was deleted.")


def _parse_cells(text: str) -> str:
    names = [name.strip().lower() for name in text.split(",")] if text else []
    for name in names:
        if not _CELL.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a cell.", "Write --cells=dfw,iad.")
    if len(set(names)) != len(names):
        raise UsageError("--cells names a cell twice.")
    return ",".join(names)


def _say_running(surroundings: Surroundings, state_dir: Path, running: Running, what: str) -> None:
    output = build_output(surroundings)
    kubeconfig = shlex.quote(str(state_dir / "kubeconfig"))
    output.data(f"The platform {what} at {running.url} (pid {running.pid}).")
    words = ["deploy", "web", "--image=IMAGE", "--city=DFW"]
    if _is_found_by_default(surroundings, state_dir):
        deploy = surroundings.command(*words)
    else:
        deploy = surroundings.command(*words, f"--kubeconfig={kubeconfig}")
    output.note(f"Deploy to it:  {deploy}")
    output.note(f"Look inside:   kubectl --kubeconfig={kubeconfig} get workloads")
    output.note(f"Stop it:       {_command(surroundings, state_dir, 'local', 'down')}")


def _command(surroundings: Surroundings, state_dir: Path, *words: str) -> str:
    if state_dir == default_state_dir(surroundings).resolve():
        return surroundings.command(*words)
    return surroundings.command(*words, f"--state-dir={shlex.quote(str(state_dir))}")


def _is_found_by_default(surroundings: Surroundings, state_dir: Path) -> bool:
    """Whether other verbs come to this platform without being told."""
    elsewhere = (API_HOST, CREDENTIALS_HELPER, KUBECONFIG)
    is_default = state_dir == default_state_dir(surroundings).resolve()
    return is_default and not any(surroundings.environ.get(name) for name in elsewhere)


COMMAND = local
