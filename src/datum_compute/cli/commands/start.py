"""``start``: start the instances of a stopped workload again.

It removes ``spec.stopped`` from the Workload, and waits like a rollout.
"""

from __future__ import annotations

import click

from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.connect.session import run_in_session
from datum_compute.cli.options import connection_options, output_option, wait_options
from datum_compute.cli.workload.deploy import ChangeOptions, change_workload


@click.command("start", short_help="Start a stopped workload.")
@workload_argument
@wait_options(default="2m")
@output_option("table", "json")
@connection_options
@click.pass_context
def start(ctx: click.Context, name: str, wait: bool, timeout_s: int, output_format: str) -> None:
    """Start the stopped workload NAME, with the same instances.

    \b
    Examples:
      datumctl compute start web
      datumctl compute start web --timeout=30s
    """

    def change(workload: JsonObject) -> None:
        workload["spec"].pop("stopped", None)

    summary = f"Starting the instances of {name}."
    options = ChangeOptions(timeout_s if wait else None, summary=summary)
    run_in_session(
        ctx,
        lambda session: change_workload(session, name, change, options),
        as_json=output_format == "json",
    )


COMMAND = start
