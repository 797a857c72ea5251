"""``scale``: set the number of instances in each city."""

from __future__ import annotations

from difflib import get_close_matches

import click

from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.connect.session import run_in_session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload


@click.command(short_help="Change how many instances run in each city.")
@workload_argument
@click.option(
    "--min", "minimum", type=click.IntRange(1, 1000), required=True, help="Instances in each city."
)
@click.option("--placement", metavar="NAME", help="Only this placement. Default: all placements.")
@click.option("--skip-checks", is_flag=True, help="Scale even if the quota is too small.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def scale(
    ctx: click.Context,
    name: str,
    minimum: int,
    placement: str | None,
    skip_checks: bool,
    dry_run: bool,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Change how many instances of the workload NAME run in each of its cities.

    If the quota is too small, nothing is changed.

    \b
    Examples:
      datumctl compute scale web --min=3
      datumctl compute scale web --min=3 --dry-run
      datumctl compute scale web --min=1 --placement=europe --no-wait
    """

    def change(workload: JsonObject) -> None:
        placements = workload["spec"]["placements"]
        for item in _select_placements(placements, placement, name):
            item.setdefault("scaleSettings", {})["minReplicas"] = minimum

    options = ChangeOptions(
        timeout_s if wait else None, dry_run, check_quota=True, skip_checks=skip_checks
    )
    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, options),
        as_json=output_format == "json",
    )


def _select_placements(
    placements: list[JsonObject], placement: str | None, name: str
) -> list[JsonObject]:
    if placement is None:
        return placements
    found = [item for item in placements if item["name"] == placement]
    if not found:
        present = [item["name"] for item in placements]
        close = get_close_matches(placement, present, n=1)
        guess = f"Did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"Workload {name!r} has no placement {placement!r}.",
            f"{guess}Existing placements: {', '.join(present)}",
        )
    return found


COMMAND = scale
