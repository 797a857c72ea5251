"""``rollout undo``: back to what a workload was.

An undo is a change like any other, and so becomes a revision of its own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.cli.adjust import Waiting, adjust
from datum_compute.cli.errors import UsageError
from datum_compute.cli.history import (
    REVISION_NAME,
    Recorded,
    asked_of,
    pick_revision,
    previous_revision,
    read_history,
)
from datum_compute.cli.manifest import with_defaults
from datum_compute.cli.naming import workload_argument
from datum_compute.cli.observe import find_workload
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.session import Session, run_in_session

Part = Literal["image", "template", "scale"]
PARTS: tuple[Part, ...] = ("image", "template", "scale")


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
            else _before_the_last_change(session, name, found, only)
        )
        present = found[-1].name
        again = session.command("rollout", "undo", name, f"--to-revision={present}")
        number = target.name
        session.tell(
            "undo",
            f"Back to revision {number}. To undo that: {again}",
            workload=name,
            revision=number,
            undoWith=again,
        )
        await adjust(
            session,
            name,
            lambda workload: restore(workload, target.revision, only),
            Waiting(timeout_s if wait else None, dry_run),
        )

    run_in_session(ctx, body, as_json=output_format == "json")


def _before_the_last_change(
    session: Session, name: str, found: list[Recorded], only: Part | None
) -> Recorded:
    """The newest that is another one in what is restored: after a scale that is not the last."""
    previous_revision(session, name, found)  # or there is none
    present = {"spec": with_defaults(asked_of(found[-1].revision.spec))}
    for earlier in reversed(found[:-1]):
        then = deepcopy(present)
        restore(then, earlier.revision, only)
        if then != present:
            return earlier
    part = only or "anything but the number of instances"
    raise UsageError(
        f"No revision of workload {name!r} on record differs in {part}: nothing to go back to.",
        f"See: {session.command('rollout', 'history', name)}",
    )


def restore(workload: JsonObject, target: WorkloadRevision, only: Part | None) -> None:
    """Edit the workload into what it was; what ``only`` does not name stays as it is now."""
    # With the defaults that the server fills in, or they would look like a change.
    spec, then = workload["spec"], with_defaults(asked_of(target.spec))
    match only:
        case "image":
            _restore_images(spec["template"], then["template"])
        case "template":
            spec["template"] = then["template"]
        case "scale":
            _restore_scale(spec["placements"], then["placements"])
        case None:
            spec["template"] = then["template"]
            present, spec["placements"] = spec["placements"], then["placements"]
            _restore_scale(spec["placements"], present)


def _restore_images(template: JsonObject, then: JsonObject) -> None:
    images = {container["name"]: container["image"] for container in _containers(then)}
    for container in _containers(template):
        container["image"] = images.get(container["name"], container["image"])


def _restore_scale(placements: list[JsonObject], then: list[JsonObject]) -> None:
    settings = {placement["name"]: placement["scaleSettings"] for placement in then}
    for placement in placements:
        placement["scaleSettings"] = settings.get(placement["name"], placement["scaleSettings"])


def _containers(template: JsonObject) -> list[JsonObject]:
    containers: list[JsonObject] = template["spec"]["runtime"]["sandbox"]["containers"]
    return containers
