"""``rollout status|history|show|diff|undo|restart|pause|resume|return``.

``rollout NAME`` is ``rollout status NAME``; ``restart`` is short for ``rollout restart``.
"""

from __future__ import annotations

import click

from datum_compute.api.labels import RETURNED_AT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.history import diff, history, show
from datum_compute.cli.commands.restart import restart
from datum_compute.cli.commands.undo import undo
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.groups import NounGroup
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.rollout_wait import wait_for_rollout

# --- ``rollout return``: move instances back from fallback cities


@click.command("return", short_help="Move back from fallback cities.")
@workload_argument
@output_option("table", "json")
@connection_options
@click.pass_context
def move_back(ctx: click.Context, name: str, output_format: str) -> None:
    """Move the instances of the workload NAME back from its fallback cities. A fallback city keeps
    its instances until those in the original city are available.

    \b
    Example:
      datumctl compute rollout return web
    """
    environment: CliEnvironment = ctx.obj
    now = timestamp(environment.now())

    def change(workload: JsonObject) -> None:
        workload["metadata"].setdefault("annotations", {})[RETURNED_AT] = now

    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, ChangeOptions(None)),
        as_json=output_format == "json",
    )


# --- rollout verbs


@click.group(
    cls=NounGroup,
    name_means="status",
    short_help="Follow, undo, restart, pause or resume a rollout.",
)
def rollout() -> None:
    """Follow, undo, restart, pause or resume the rollout of a workload, and see its history.

    \b
    Examples:
      datumctl compute rollout web
      datumctl compute rollout history web
      datumctl compute rollout undo web
      datumctl compute rollout pause web
    """


@rollout.command("status")
@workload_argument
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def rollout_status(
    ctx: click.Context, name: str, wait: bool, timeout_s: int, output_format: str
) -> None:
    """Follow the rollout of the workload NAME until it is done; exit code 20 if it fails.

    \b
    Example:
      datumctl compute rollout status web --timeout=2m
    """

    async def body(session: Session) -> None:
        workload = await find_workload(session, name)
        await wait_for_rollout(session, workload, timeout_s=timeout_s if wait else 0)

    run_in_session(ctx, body, as_json=output_format == "json")


@rollout.command("pause")
@workload_argument
@output_option("table", "json")
@connection_options
@click.pass_context
def pause(ctx: click.Context, name: str, output_format: str) -> None:
    """Pause the rollout of the workload NAME. Scaling still works.

    \b
    Example:
      datumctl compute rollout pause web
    """

    def change(workload: JsonObject) -> None:
        workload["spec"]["paused"] = True

    resumed = ctx.obj.command("rollout", "resume", name)
    options = ChangeOptions(None, note=f"No instance is replaced until you resume it: {resumed}")
    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, options),
        as_json=output_format == "json",
    )


@rollout.command("resume")
@workload_argument
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def resume(ctx: click.Context, name: str, wait: bool, timeout_s: int, output_format: str) -> None:
    """Resume the paused rollout of the workload NAME.

    \b
    Example:
      datumctl compute rollout resume web
    """

    def change(workload: JsonObject) -> None:
        workload["spec"].pop("paused", None)

    options = ChangeOptions(timeout_s if wait else None)
    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, options),
        as_json=output_format == "json",
    )


for _command in (history, show, diff, undo, restart, move_back):
    rollout.add_command(_command)

COMMAND = rollout
