"""``rollout status|history|show|diff|undo|restart|pause|resume``, and ``restart`` for short.

``rollout NAME`` is ``rollout status NAME``.
"""

from __future__ import annotations

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.timestamps import micro_timestamp
from datum_compute.cli.adjust import Waiting, adjust
from datum_compute.cli.context import Surroundings
from datum_compute.cli.history import diff, history, show
from datum_compute.cli.observe import find_workload
from datum_compute.cli.options import connection_options, wait_options
from datum_compute.cli.rollout_wait import wait_for_rollout
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.undo import undo


class _NameMeansStatus(click.Group):
    """A first word that is no verb is the name of a workload."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["status", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_NameMeansStatus, short_help="Follow, undo, restart, pause or resume a rollout.")
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
@click.argument("name")
@wait_options(default="10m")
@connection_options
@click.pass_context
def rollout_status(ctx: click.Context, name: str, wait: bool, timeout_s: int) -> None:
    """Follow the rollout of the workload NAME until it is done; exit code 20 if it fails.

    \b
    Example:
      datumctl compute rollout status web --timeout=2m
    """

    async def body(session: Session) -> None:
        workload = await find_workload(session, name)
        await wait_for_rollout(session, workload, timeout_s=timeout_s if wait else 0)

    run_in_session(ctx, body)


@click.command("restart", short_help="Replace every instance, in order.")
@click.argument("name")
@wait_options(default="10m")
@connection_options
@click.pass_context
def restart(ctx: click.Context, name: str, wait: bool, timeout_s: int) -> None:
    """Replace every instance of the workload NAME, in the order of a rollout.

    \b
    Example:
      datumctl compute restart web --no-wait
    """
    surroundings: Surroundings = ctx.obj
    now = micro_timestamp(surroundings.now())  # twice in a second is twice

    def change(workload: JsonObject) -> None:
        metadata = workload["spec"]["template"].setdefault("metadata", {})
        metadata.setdefault("annotations", {})[RESTARTED_AT] = now

    waiting = Waiting(timeout_s if wait else None)
    run_in_session(ctx, lambda session: adjust(session, name, change, waiting))


@rollout.command("pause")
@click.argument("name")
@connection_options
@click.pass_context
def pause(ctx: click.Context, name: str) -> None:
    """Hold the rollout of the workload NAME where it is. Scaling goes on.

    \b
    Example:
      datumctl compute rollout pause web
    """

    def change(workload: JsonObject) -> None:
        workload["spec"]["paused"] = True

    run_in_session(ctx, lambda session: adjust(session, name, change, Waiting(None)))


@rollout.command("resume")
@click.argument("name")
@wait_options(default="10m")
@connection_options
@click.pass_context
def resume(ctx: click.Context, name: str, wait: bool, timeout_s: int) -> None:
    """Let a paused rollout of the workload NAME go on.

    \b
    Example:
      datumctl compute rollout resume web
    """

    def change(workload: JsonObject) -> None:
        workload["spec"].pop("paused", None)

    waiting = Waiting(timeout_s if wait else None)
    run_in_session(ctx, lambda session: adjust(session, name, change, waiting))


for _command in (history, show, diff, undo, restart):
    rollout.add_command(_command)

COMMAND = rollout
