"""``stop``: stop the instances of a workload and keep them.

It sets ``spec.stopped`` of the Workload. The instances keep their names, addresses and quota, and
``start`` starts them again.
"""

from __future__ import annotations

import asyncio

import click

from datum_compute.api.compute.instance import AVAILABLE
from datum_compute.api.conditions import Reason, find_condition
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import ConflictError, StoppedError, TimedOutError
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.render.events import HaltedEvent
from datum_compute.cli.render.output import one_line, render_age, render_count
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload
from datum_compute.cli.workload.observe import belongs_to, find_workload
from datum_compute.cli.workload.wait import StateReached, WatchNext, wait_until


@click.command("stop", short_help="Stop a workload and keep its instances.")
@workload_argument
@wait_options(default="1m")
@output_option("table", "json")
@connection_options
@click.pass_context
def stop(ctx: click.Context, name: str, wait: bool, timeout_s: int, output_format: str) -> None:
    """Stop all instances of the workload NAME. They keep their names, addresses and quota.

    `start` starts them again. Changes to a stopped workload take effect when it starts.

    \b
    Examples:
      datumctl compute stop web
      datumctl compute stop web --no-wait
    """

    def change(workload: JsonObject) -> None:
        workload["spec"]["stopped"] = True

    async def body(session: Session) -> None:
        note = f"Start it again: {session.command('start', name)}"
        options = ChangeOptions(None, note=note, summary=f"Stopping all instances of {name}.")
        await change_workload(session, name, change, options)
        if wait:
            await _wait_until_stopped(session, name, timeout_s)

    run_in_session(ctx, body, as_json=output_format == "json")


async def _wait_until_stopped(session: Session, name: str, timeout_s: float) -> None:
    """Wait until each reachable cell has confirmed that no instance of the workload runs."""
    written = await find_workload(session, name)
    uid, generation = written.metadata.uid, written.metadata.generation
    clock = asyncio.get_running_loop().time
    started_s, latest = clock(), ""

    async def poll() -> StateReached[int] | WatchNext:
        nonlocal latest
        workload = await find_workload(session, name)
        if workload.metadata.uid != uid or not workload.spec.stopped:
            raise ConflictError(
                f"Workload {name!r} was changed by another client while this command waited.",
                f"Show its status: {session.command('status', name)}",
            )
        available = find_condition(workload.status.conditions, AVAILABLE)
        latest = available.message if available is not None else ""
        is_current = workload.status.observed_generation >= generation
        halted = (Reason.STOPPED, Reason.PROJECT_SUSPENDED)
        if is_current and available is not None and available.reason in halted:
            return StateReached(workload.status.replicas)
        version = workload.metadata.resource_version
        return WatchNext(WORKLOAD, version, lambda obj: belongs_to(obj, uid))

    try:
        replicas = await wait_until(session, poll, timeout_s=timeout_s)
    except TimeoutError:
        raise TimedOutError(
            f"{name!r} is not stopped after {render_age(timeout_s)}: {one_line(latest)}",
            f"It is still being stopped. Show its status: {session.command('status', name)}",
        ) from None
    except asyncio.CancelledError:
        # Only Ctrl-C cancels a command; what was written stays written.
        raise StoppedError(
            f"Stopped waiting; the instances of {name!r} are still being stopped.",
            f"Show its status: {session.command('status', name)}",
        ) from None
    elapsed_s = clock() - started_s
    session.emit_event(
        HaltedEvent(
            workload=name,
            generation=generation,
            elapsed_seconds=round(elapsed_s, 3),
            instances=replicas,
        ),
        f"{name} is stopped: {render_count(replicas, 'instance')} kept ({elapsed_s:.1f} s).",
        color="green",
    )


COMMAND = stop
