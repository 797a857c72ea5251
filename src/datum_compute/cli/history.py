"""``rollout history|show|diff``: what a workload was asked to be.

The platform itself keeps the record (WorkloadRevision), whoever made the change.
"""

from __future__ import annotations

from difflib import get_close_matches

import click

from datum_compute.api.changes import render_changes
from datum_compute.api.codec import JsonObject, canonical
from datum_compute.api.kinds import REVISION
from datum_compute.api.labels import WORKLOAD_NAME
from datum_compute.api.workload import Workload
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.cli.errors import MissingError
from datum_compute.cli.listing import Column, Listing, list_options, print_listing
from datum_compute.cli.observe import find_workload
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.times import age_of


@click.command("history")
@click.argument("name")
@list_options
@connection_options
@click.pass_context
def history(ctx: click.Context, name: str, output_format: str, no_headers: bool) -> None:
    """List what the workload NAME was asked to be, the newest first. The last 20 are kept.

    \b
    Examples:
      datumctl compute rollout history web
      datumctl compute rollout history web -o json
    """

    async def body(session: Session) -> None:
        found = await read_history(session, await find_workload(session, name))
        listing = _listing(session.surroundings.now(), found[-1].spec.revision if found else 0)
        rows = found[::-1]
        print_listing(session.output, listing, rows, output_format, headers=not no_headers)

    run_in_session(ctx, body)


@click.command("show")
@click.argument("name")
@click.argument("revision", type=click.IntRange(1))
@output_option("yaml", "json")
@connection_options
@click.pass_context
def show(ctx: click.Context, name: str, revision: int, output_format: str) -> None:
    """Show what the workload NAME was asked to be in one REVISION.

    \b
    Example:
      datumctl compute rollout show web 3
    """

    async def body(session: Session) -> None:
        found = await read_history(session, await find_workload(session, name))
        shown = revision_document(pick_revision(session, name, found, revision))
        if output_format == "json":
            session.output.json(shown)
        else:
            session.output.yaml(shown)

    run_in_session(ctx, body)


@click.command("diff")
@click.argument("name")
@click.argument("older", type=click.IntRange(1))
@click.argument("newer", type=click.IntRange(1), required=False)
@connection_options
@click.pass_context
def diff(ctx: click.Context, name: str, older: int, newer: int | None) -> int:
    """Show what lies between two revisions of the workload NAME, or between one and the present.

    Exit code 0 if there is no difference, 1 if there is. Values of environment variables are not
    shown.

    \b
    Examples:
      datumctl compute rollout diff web 2
      datumctl compute rollout diff web 2 4
    """

    async def body(session: Session) -> int:
        workload = await find_workload(session, name)
        found = await read_history(session, workload)
        before = asked_of(pick_revision(session, name, found, older).spec)
        after = workload.spec if newer is None else pick_revision(session, name, found, newer).spec
        lines = render_changes({"spec": before}, {"spec": asked_of(after)})
        for line in lines:
            session.output.data(line)
        if not lines:
            session.output.note("No difference.")
        return 1 if lines else 0

    return run_in_session(ctx, body)


async def read_history(session: Session, workload: Workload) -> list[WorkloadRevision]:
    """The revisions of this very workload, oldest first."""
    labels = {WORKLOAD_NAME: workload.metadata.name}
    listed = await session.client.list(REVISION, session.namespace, labels=labels)
    uid = workload.metadata.uid
    own = [revision for revision in listed.items if revision.spec.workload_ref.uid == uid]
    if not own:
        raise MissingError(
            f"Nothing is on record of workload {workload.metadata.name!r} yet.",
            "The platform records a change within a moment; run this again.",
        )
    return sorted(own, key=lambda revision: revision.spec.revision)


def pick_revision(
    session: Session, name: str, found: list[WorkloadRevision], number: int
) -> WorkloadRevision:
    by_number = {revision.spec.revision: revision for revision in found}
    if number not in by_number:
        close = get_close_matches(str(number), [str(known) for known in by_number], n=1)
        guess = f" Did you mean {close[0]}?" if close else ""
        raise MissingError(
            f"Workload {name!r} has no revision {number} on record.{guess}",
            f"See: {session.command('rollout', 'history', name)}",
        )
    return by_number[number]


def asked_of(spec: object) -> JsonObject:
    whole = canonical(spec)
    return {"template": whole["template"], "placements": whole["placements"]}


def revision_document(revision: WorkloadRevision) -> JsonObject:
    spec = revision.spec
    return {
        "revision": spec.revision,
        "createdAt": revision.metadata.creation_timestamp,
        "actor": spec.actor,
        "restores": spec.restores,
        "changes": list(spec.changes),
        "templateHash": spec.template_hash,
        **asked_of(spec),
    }


def _listing(now: float, active: int) -> Listing[WorkloadRevision]:
    return Listing(
        noun="revision",
        columns=(
            Column("REV", lambda r: r.spec.revision),
            Column("WHEN", lambda r: age_of(r, now)),
            Column("IMAGE", lambda r: ", ".join(_images(r))),
            Column("CHANGES", _changes_text),
            Column("BY", lambda r: r.spec.actor or "-"),
            Column("STATUS", lambda r: "active" if r.spec.revision == active else "-"),
        ),
        document=lambda r: {**revision_document(r), "active": r.spec.revision == active},
        name=lambda r: str(r.spec.revision),
    )


def _images(revision: WorkloadRevision) -> list[str]:
    return [c.image for c in revision.spec.template.spec.runtime.sandbox.containers]


def _changes_text(revision: WorkloadRevision) -> str:
    spec = revision.spec
    if spec.restores is not None:
        return f"back to revision {spec.restores}"
    if not spec.changes:
        return "first" if spec.revision == 1 else "-"
    more = len(spec.changes) - 1
    return spec.changes[0] + (f" (+{more})" if more else "")
