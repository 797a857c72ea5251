"""``cities``: the cities that are available to the project."""

from __future__ import annotations

import click

from datum_compute.api.conditions import TRUE, Condition, find_condition
from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.meta.fields import CITY_CODE_KEY
from datum_compute.api.networking.location import LocationBinding
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import CityEntry
from datum_compute.cli.render.health import humanize_reason
from datum_compute.cli.render.listing import ListColumn, Listing, list_options, print_listing


@click.command(short_help="List the cities that workloads can run in.")
@list_options
@connection_options
@click.pass_context
def cities(ctx: click.Context, output_format: str, no_headers: bool) -> None:
    """List the cities that the workloads of this project can run in.

    \b
    Examples:
      datumctl compute cities
      datumctl compute cities -o name
    """

    async def body(session: Session) -> None:
        bindings = (await session.client.list(LOCATION_BINDING)).items
        if not bindings:
            session.output.note(
                f"No cities are available to {session.target_name} yet. "
                "Ask an operator to add a LocationBinding."
            )
        rows = sorted(bindings, key=city_of)
        print_listing(session.output, LISTING, rows, output_format, headers=not no_headers)

    run_in_session(ctx, body)


def city_of(binding: LocationBinding) -> str:
    return binding.spec.topology.get(CITY_CODE_KEY, "")


def _available_condition(binding: LocationBinding) -> Condition | None:
    return find_condition(binding.status.conditions, "Available")


def _status(binding: LocationBinding) -> str:
    condition = _available_condition(binding)
    if condition is None:
        return "Unknown"
    return (
        "Available"
        if condition.status == TRUE
        else f"Unavailable ({humanize_reason(condition.reason)})"
    )


def _message(binding: LocationBinding) -> str:
    condition = _available_condition(binding)
    return condition.message if condition else ""


def _problem_message(binding: LocationBinding) -> str:
    condition = _available_condition(binding)
    return "-" if condition is None or condition.status == TRUE else condition.message or "-"


def _document(binding: LocationBinding) -> CityEntry:
    condition = _available_condition(binding)
    return CityEntry(
        city=city_of(binding),
        name=binding.metadata.name,
        display_name=binding.spec.display_name,
        available=condition.status if condition else "Unknown",
        reason=condition.reason if condition else "",
        message=_message(binding),
    )


LISTING: Listing[LocationBinding] = Listing(
    noun="city",
    columns=(
        ListColumn("CITY", city_of),
        ListColumn("STATUS", _status),
        ListColumn("MESSAGE", _problem_message),
        ListColumn("LOCATION", lambda binding: binding.spec.location_ref.name, wide=True),
    ),
    document=_document,
    name=city_of,
)

COMMAND = cities
