"""``rollout undo``: restore an earlier revision of a workload.

An undo is a normal change, and so creates a new revision.
"""

from __future__ import annotations

import click

from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.history import REVISION_NAME, pick_revision, read_history
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.render.events import UndoEvent
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.undo_target import (
    PARTS,
    restore_and_annotate,
    select_undo_target,
)
from datum_compute.planning.workload.city_order import is_rolled_back
from datum_compute.planning.workload.history import UndoPart


@click.command("undo")
@workload_argument
@click.option(
    "--to-revision",
    "to_revision",
    type=REVISION_NAME,
    help="Revision to restore. Default: the last revision that differs.",
)
@click.option("--only", type=click.Choice(PARTS), help="Restore only this part.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def undo(
    ctx: click.Context,
    name: str,
    to_revision: str | None,
    only: UndoPart | None,
    dry_run: bool,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Undo the last change of the workload NAME, or restore an earlier revision.

    The template and the cities are restored exactly as recorded. The number of instances does not
    change, unless --only=scale is given. Revisions that differ only in it, or only in a restart,
    are skipped. The command also works during a rollout.

    \b
    Examples:
      datumctl compute rollout undo web
      datumctl compute rollout undo web --to-revision=3 --only=image
    """

    async def body(session: Session) -> None:
        workload = await find_workload(session, name)
        revisions = await read_history(session, workload)
        target = (
            pick_revision(session, name, revisions, to_revision)
            if to_revision
            else select_undo_target(session, workload, revisions, only)
        )
        current = revisions[-1].name
        undo_command = session.command("rollout", "undo", name, f"--to-revision={current}")
        number = target.name
        text = f"Restoring revision {number}. To undo this: {undo_command}"
        if number == current and is_rolled_back(workload):
            text = f"Revision {number} runs already. Its template becomes that of {name} again."
        elif number == current:
            text = f"Revision {number} is the current one."
        session.emit_event(UndoEvent(workload=name, revision=number, undo_with=undo_command), text)
        await change_workload(
            session,
            name,
            lambda stored: restore_and_annotate(stored, target, only, revisions[-1].revision),
            ChangeOptions(timeout_s if wait else None, dry_run),
        )

    run_in_session(ctx, body, as_json=output_format == "json")
