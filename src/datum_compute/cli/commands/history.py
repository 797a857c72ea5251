"""``rollout history|show|diff``: the revisions of a workload.

The platform records each change as a WorkloadRevision, independent of the client.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches

import click

from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import CONFIG_MAP, REVISION
from datum_compute.api.labels import WORKLOAD_NAME
from datum_compute.api.meta.codec import DecodeError, JsonObject, canonical, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.object_diff import render_changes
from datum_compute.cli.arguments import strip_type_of, workload_argument
from datum_compute.cli.completion import workload_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.render.difference import exit_with_2_on_error, print_difference
from datum_compute.cli.render.documents import (
    RevisionDocument,
    RevisionEntry,
    extend_document,
    to_document,
)
from datum_compute.cli.render.listing import (
    ListColumn,
    Listing,
    age_of,
    list_options,
    print_listing,
)
from datum_compute.cli.workload.observe import find_workload
from datum_compute.planning.workload.history import RecordedSpec, images_of, recorded_fields

# --- The history of older command lines
# They stored one JSON entry for each revision in a ConfigMap, with numbers of their own, which are
# shown as ``legacy-N``. Entries that cannot be read are left out. The name of the ConfigMap is
# ``compute.datumapis.com-revision-history.<workload>``.


PREFIX = "legacy-"
_CONFIG_MAP = "compute.datumapis.com-revision-history."


async def read_legacy(session: Session, workload: Workload) -> list[WorkloadRevision]:
    """Return the revisions, the oldest first; none without the ConfigMap."""
    name = workload.metadata.name
    try:
        found = await session.client.get(CONFIG_MAP, Ref(session.namespace, _CONFIG_MAP + name))
    except (NotFound, Forbidden):
        return []
    read = [_revision(workload, text) for text in found.data.values()]
    return sorted((r for r in read if r is not None), key=lambda row: row.spec.revision)


def _revision(workload: Workload, text: str) -> WorkloadRevision | None:
    try:
        entry = json.loads(text)
        spec = json.loads(entry["spec"]) if isinstance(entry["spec"], str) else entry["spec"]
        return from_json(_document(workload, entry, spec), WorkloadRevision)
    except (ValueError, KeyError, TypeError, DecodeError):
        return None


def _document(workload: Workload, entry: JsonObject, spec: JsonObject) -> JsonObject:
    changes = entry.get("changes") or []
    return {
        "metadata": {
            "name": f"{PREFIX}{entry['rev']}",
            "creationTimestamp": entry.get("timestamp"),
        },
        "spec": {
            "workloadRef": {"name": workload.metadata.name, "uid": workload.metadata.uid},
            "revision": entry["rev"],
            "templateHash": entry.get("templateHash") or "",
            "template": spec["template"],
            "placements": spec["placements"],
            "changes": [changes] if isinstance(changes, str) else changes,
            "actor": entry.get("actor") or "",
        },
    }


# --- history


class RevisionName(click.ParamType[str]):
    """The number of a revision, or ``legacy-N`` for one that an older command line recorded."""

    name = "revision"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        number = value.removeprefix(PREFIX)
        if not (number.isascii() and number.isdigit() and 1 <= int(number) < 2**31):
            self.fail(f"{value!r} is not the number of a revision.", param, ctx)
        return value


REVISION_NAME = RevisionName()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A revision with its name on the command line."""

    name: str
    revision: WorkloadRevision


@click.command("history")
@workload_argument
@list_options
@connection_options
@click.pass_context
def history(ctx: click.Context, name: str, output_format: str, no_headers: bool) -> None:
    """List the revisions of the workload NAME, the newest first. The last 20 are kept.

    \b
    Examples:
      datumctl compute rollout history web
      datumctl compute rollout history web -o json
    """

    async def body(session: Session) -> None:
        found = await read_history(session, await find_workload(session, name))
        listing = _listing(session.environment.now(), found)
        rows = found[::-1]
        print_listing(session.output, listing, rows, output_format, headers=not no_headers)

    run_in_session(ctx, body)


@click.command("show")
@click.argument("name", callback=strip_type_of("workload"), shell_complete=workload_names)
@click.argument("revision", type=REVISION_NAME)
@output_option("yaml", "json")
@connection_options
@click.pass_context
def show(ctx: click.Context, name: str, revision: str, output_format: str) -> None:
    """Show the template and the placements of the workload NAME in one REVISION.

    \b
    Example:
      datumctl compute rollout show web 3
    """

    async def body(session: Session) -> None:
        found = await read_history(session, await find_workload(session, name))
        recorded = pick_revision(session, name, found, revision)
        shown = to_document(revision_document(recorded))
        if output_format == "json":
            session.output.json(shown)
        else:
            session.output.yaml(shown)

    run_in_session(ctx, body)


@click.command("diff")
@click.argument("name", callback=strip_type_of("workload"), shell_complete=workload_names)
@click.argument("older", type=REVISION_NAME, required=False)
@click.argument("newer", type=REVISION_NAME, required=False)
@output_option("table", "json")
@connection_options
@click.pass_context
def diff(
    ctx: click.Context, name: str, older: str | None, newer: str | None, output_format: str
) -> int:
    """Show the changes between two revisions of the workload NAME, or between one revision and the
    current workload. Without a revision, show the last change.

    The exit code is 0 without differences, 1 with differences, and 2 or more after an error. Values
    of environment variables are not shown.

    \b
    Examples:
      datumctl compute rollout diff web
      datumctl compute rollout diff web 2
      datumctl compute rollout diff web 2 4
    """

    async def body(session: Session) -> int:
        workload = await find_workload(session, name)
        found = await read_history(session, workload)
        first = older or previous_revision(session, name, found)
        before = recorded_fields(pick_revision(session, name, found, first).revision.spec)
        after = (
            workload.spec
            if newer is None
            else pick_revision(session, name, found, newer).revision.spec
        )
        lines = render_changes({"spec": before}, {"spec": recorded_fields(after)})
        return print_difference(session, {name: lines}, output_format)

    with exit_with_2_on_error():
        return run_in_session(ctx, body)


async def read_history(session: Session, workload: Workload) -> list[Recorded]:
    """Return the revisions of the workload, the oldest first, by uid: the name may be reused."""
    labels = {WORKLOAD_NAME: workload.metadata.name}
    listed = await session.client.list(REVISION, session.namespace, labels=labels)
    uid = workload.metadata.uid
    own = [revision for revision in listed.items if revision.spec.workload_ref.uid == uid]
    own.sort(key=lambda revision: revision.spec.revision)
    found = [Recorded(r.metadata.name, r) for r in await read_legacy(session, workload)]
    found += [Recorded(str(r.spec.revision), r) for r in own]
    if not found:
        raise MissingError(
            f"Workload {workload.metadata.name!r} has no revisions yet.",
            "The platform records a change within seconds. Run the command again.",
        )
    return found


def pick_revision(session: Session, name: str, found: list[Recorded], wanted: str) -> Recorded:
    by_name = {recorded.name: recorded for recorded in found}
    if wanted not in by_name:
        close = get_close_matches(wanted, by_name, n=1)
        guess = f" Did you mean {close[0]}?" if close else ""
        raise MissingError(
            f"Workload {name!r} has no revision {wanted}.{guess}",
            f"List the revisions: {session.command('rollout', 'history', name)}",
        )
    return by_name[wanted]


def previous_revision(session: Session, name: str, found: list[Recorded]) -> str:
    """Return the revision before the current one."""
    if len(found) < 2:
        raise UsageError(
            f"Workload {name!r} has only one revision.",
            f"List the revisions: {session.command('rollout', 'history', name)}",
        )
    return found[-2].name


def comparable_spec(spec: RecordedSpec) -> JsonObject:
    """Return the template and the placements, which an undo restores."""
    return {"template": canonical(spec.template), "placements": canonical(spec.placements)}


def revision_document(recorded: Recorded) -> RevisionDocument:
    spec = recorded.revision.spec
    compared = comparable_spec(spec)
    return RevisionDocument(
        revision=spec.revision,
        name=recorded.name,
        created_at=recorded.revision.metadata.creation_timestamp,
        actor=spec.actor,
        restores=spec.restores,
        cause=spec.cause,
        changes=list(spec.changes),
        template_hash=spec.template_hash,
        template=compared["template"],
        placements=compared["placements"],
        images=canonical(spec.images),
    )


def _listing(now: float, found: list[Recorded]) -> Listing[Recorded]:
    """``found`` is the whole history, the current revision last."""
    active = found[-1].name
    return Listing(
        noun="revision",
        columns=(
            ListColumn("REV", lambda row: row.name),
            ListColumn("WHEN", lambda row: age_of(row.revision, now)),
            ListColumn(
                "IMAGE", lambda row: ", ".join(images_of(row.revision.spec.template).values())
            ),
            ListColumn("CHANGES", lambda row: _changes_text(row.revision, found)),
            ListColumn("BY", lambda row: row.revision.spec.actor or "-"),
            ListColumn("STATUS", lambda row: "active" if row.name == active else "-"),
        ),
        document=lambda row: extend_document(
            RevisionEntry, revision_document(row), active=row.name == active
        ),
        name=lambda row: row.name,
    )


def _changes_text(revision: WorkloadRevision, found: list[Recorded]) -> str:
    spec = revision.spec
    changes = spec.changes[0] if spec.changes else "created" if spec.revision == 1 else ""
    if len(spec.changes) > 1:
        changes += f" (+{len(spec.changes) - 1})"
    if spec.restores is None:
        return changes or "-"
    then = next((r.revision for r in found if r.name == str(spec.restores)), None)
    same = then is not None and comparable_spec(then.spec) == comparable_spec(spec)
    how = "automatic rollback" if spec.cause == "AutomaticRollback" else "rollback"
    text = f"{how} to {'' if same else 'the template of '}revision {spec.restores}"
    return f"{text}: {changes}" if changes else text
