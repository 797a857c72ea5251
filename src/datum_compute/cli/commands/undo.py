"""``rollout undo``: back to what a workload was.

An undo is a change like any other, and so becomes a revision of its own.
"""

from __future__ import annotations

import click

from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.history import REVISION_NAME, pick_revision, read_history
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.undo_target import PARTS, Part, find_undo_target, restore


@click.command("undo")
@workload_argument
@click.option(
    "--to-revision", "to", type=REVISION_NAME, help="Which; the last that was another one."
)
@click.option("--only", type=click.Choice(PARTS), help="Go back in this part alone.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def undo(
    ctx: click.Context,
    name: str,
    to: str | None,
    only: Part | None,
    dry_run: bool,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Make the workload NAME what it was before its last change, or in an earlier revision.

    Template and cities go back; the number of instances stays as it is now, and a change of it
    alone is passed over, unless --only=scale asks for it. It works in the middle of a rollout that
    fails, too.

    \b
    Examples:
      datumctl compute rollout undo web
      datumctl compute rollout undo web --to-revision=3 --only=image
    """

    async def body(session: Session) -> None:
        found = await read_history(session, await find_workload(session, name))
        target = (
            pick_revision(session, name, found, to)
            if to
            else find_undo_target(session, name, found, only)
        )
        present = found[-1].name
        again = session.command("rollout", "undo", name, f"--to-revision={present}")
        number = target.name
        session.emit_event(
            "undo",
            f"Back to revision {number}. To undo that: {again}",
            workload=name,
            revision=number,
            undoWith=again,
        )
        await change_workload(
            session,
            name,
            lambda workload: restore(workload, target.revision, only),
            ChangeOptions(timeout_s if wait else None, dry_run),
        )

    run_in_session(ctx, body, as_json=output_format == "json")
