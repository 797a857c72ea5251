"""``scale``: how many instances run in each city."""

from __future__ import annotations

import click

from datum_compute.api.codec import JsonObject
from datum_compute.cli.adjust import Waiting, adjust
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import connection_options, wait_options
from datum_compute.cli.session import run_in_session


@click.command(short_help="Change how many instances run in each city.")
@click.argument("name")
@click.option(
    "--min", "minimum", type=click.IntRange(1, 1000), required=True, help="Instances in each city."
)
@click.option("--placement", metavar="NAME", help="Only this placement; all of them without it.")
@wait_options(default="10m")
@connection_options
@click.pass_context
def scale(
    ctx: click.Context, name: str, minimum: int, placement: str | None, wait: bool, timeout_s: int
) -> None:
    """Change how many instances of the workload NAME run in each of its cities.

    \b
    Examples:
      datumctl compute scale web --min=3
      datumctl compute scale web --min=1 --placement=europe --no-wait
    """

    def change(workload: JsonObject) -> None:
        placements = workload["spec"]["placements"]
        for item in _meant(placements, placement, name):
            item.setdefault("scaleSettings", {})["minReplicas"] = minimum

    waiting = Waiting(timeout_s if wait else None)
    run_in_session(ctx, lambda session: adjust(session, name, change, waiting))


def _meant(placements: list[JsonObject], placement: str | None, name: str) -> list[JsonObject]:
    if placement is None:
        return placements
    found = [item for item in placements if item["name"] == placement]
    if not found:
        present = ", ".join(item["name"] for item in placements)
        raise UsageError(f"Workload {name!r} has no placement {placement!r}.", f"It has: {present}")
    return found


COMMAND = scale
