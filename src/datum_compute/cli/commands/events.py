"""``events``: recent events of the project, or of one workload and its parts."""

from __future__ import annotations

import click

from datum_compute.api.events import Event
from datum_compute.api.kinds import DEPLOYMENT, EVENT, WORKLOAD
from datum_compute.cli.arguments import strip_type_of
from datum_compute.cli.completion import workload_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import EventEntry
from datum_compute.cli.render.listing import (
    ListColumn,
    Listing,
    age_since,
    list_options,
    print_listing,
)
from datum_compute.cli.workload.observe import find_workload, observe_parts


@click.command(short_help="Show the events of a workload.")
@click.argument(
    "name", required=False, callback=strip_type_of("workload"), shell_complete=workload_names
)
@click.option("--warnings", is_flag=True, help="Show only warnings.")
@list_options
@connection_options
@click.pass_context
def events(
    ctx: click.Context, name: str | None, warnings: bool, output_format: str, no_headers: bool
) -> None:
    """Show the recent events, the newest last: of the workload NAME with its deployments and
    instances, or of the whole project. Events are kept for an hour.

    \b
    Examples:
      datumctl compute events
      datumctl compute events web --warnings
    """

    async def body(session: Session) -> None:
        concerned = await _uids_of(session, name) if name is not None else None
        listed = (await session.client.list(EVENT, session.namespace)).items
        rows = [
            event
            for event in listed
            if (concerned is None or event.involved_object.uid in concerned)
            and not _repeats_instance_event(event)
        ]
        rows = sorted((e for e in rows if not warnings or e.type == "Warning"), key=_moment)
        if not rows:
            session.output.note(f"No recent events of {name or session.target_name}.")
        listing = listing_at(session.environment.now())
        print_listing(session.output, listing, rows, output_format, headers=not no_headers)

    run_in_session(ctx, body)


def _repeats_instance_event(event: Event) -> bool:
    """Return True for an event of a Workload that repeats one of an Instance or its deployment."""
    related = event.related.kind if event.related else ""
    return event.involved_object.kind == WORKLOAD.kind and related == DEPLOYMENT.kind


async def _uids_of(session: Session, name: str) -> set[str]:
    workload = await find_workload(session, name)
    observed = await observe_parts(session, workload)
    parts = (*observed.deployments.items, *observed.instances.items)
    return {workload.metadata.uid, *(part.metadata.uid for part in parts)}


def last_seen(event: Event) -> str:
    """Return when it happened last; RFC 3339 in UTC sorts as text."""
    series = event.series.last_observed_time if event.series else None
    moments = (series, event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return next((moment for moment in moments if moment), "")


def _moment(event: Event) -> tuple[str, int]:
    """Return the time in whole seconds, and the order of the writes within a second."""
    version = event.metadata.resource_version
    return last_seen(event), int(version) if version.isdecimal() else 0


def count_of(event: Event) -> int:
    return max(1, event.count or 0, event.series.count if event.series else 0)


def listing_at(now: float) -> Listing[Event]:
    return Listing(
        noun="event",
        columns=(
            ListColumn("LAST SEEN", lambda event: age_since(last_seen(event), now)),
            ListColumn("TYPE", lambda event: event.type or "Normal"),
            ListColumn("REASON", lambda event: event.reason),
            ListColumn(
                "OBJECT", lambda event: f"{event.involved_object.kind}/{event.involved_object.name}"
            ),
            ListColumn("MESSAGE", lambda event: event.message),
            ListColumn("COUNT", count_of, wide=True),
            ListColumn(
                "FROM", lambda event: event.reporting_component or event.source.component, wide=True
            ),
        ),
        document=_document,
        name=lambda event: event.metadata.name,
    )


def _document(event: Event) -> EventEntry:
    return EventEntry(
        last_seen=last_seen(event),
        type=event.type or "Normal",
        reason=event.reason,
        kind=event.involved_object.kind,
        name=event.involved_object.name,
        message=event.message,
        count=count_of(event),
    )


COMMAND = events
