"""``restart``: replace instances, in order; ``rollout restart`` is the same.

A restart of all cities is an annotation of the template. A restart of one city is stored in
``spec.restarts`` of the Workload, so that later deployments of the city include it.
"""

from __future__ import annotations

import click

from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import micro_timestamp
from datum_compute.api.planes import normalize_city
from datum_compute.cli.arguments import unknown_city, workload_argument
from datum_compute.cli.completion import city_names
from datum_compute.cli.connect.session import run_in_session
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload


@click.command("restart", short_help="Replace every instance, in order.")
@workload_argument
@click.option(
    "--city", metavar="CODE", help="Only the instances in this city.", shell_complete=city_names
)
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def restart(
    ctx: click.Context,
    name: str,
    city: str | None,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Replace every instance of the workload NAME, in the order of a rollout.

    \b
    Examples:
      datumctl compute restart web --no-wait
      datumctl compute restart web --city=DFW
    """
    environment: CliEnvironment = ctx.obj
    now = micro_timestamp(environment.now())  # two restarts within a second differ

    def change(workload: JsonObject) -> None:
        if city is None:
            restart_everywhere(workload, now)
        else:
            restart_city(workload, normalize_city(city), now)

    where = f" in {normalize_city(city)}" if city is not None else ""
    summary = f"Replacing every instance of {name}{where}."
    options = ChangeOptions(timeout_s if wait else None, summary=summary)
    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, options),
        as_json=output_format == "json",
    )


def restart_everywhere(workload: JsonObject, now: str) -> None:
    metadata = workload["spec"]["template"].setdefault("metadata", {})
    metadata.setdefault("annotations", {})[RESTARTED_AT] = now


def restart_city(workload: JsonObject, city: str, now: str) -> None:
    """Record a restart of the city. Remove entries of cities that the workload does not run in."""
    spec = workload["spec"]
    present = [normalize_city(c) for p in spec["placements"] for c in p["cityCodes"]]
    if city not in present:
        raise unknown_city(workload["metadata"]["name"], city, present)
    kept = [r for r in spec.get("restarts", []) if r["cityCode"] in present]
    others = [r for r in kept if r["cityCode"] != city]
    spec["restarts"] = [*others, {"cityCode": city, "at": now}]


COMMAND = restart
