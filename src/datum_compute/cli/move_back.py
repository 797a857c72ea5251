"""``rollout return``: shares that moved to fallback cities go back to their own."""

from __future__ import annotations

import click

from datum_compute.api.labels import RETURNED_AT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.cli.adjust import Waiting, adjust
from datum_compute.cli.context import Surroundings
from datum_compute.cli.naming import workload_argument
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.session import run_in_session


@click.command("return", short_help="Move back from fallback cities.")
@workload_argument
@output_option("table", "json")
@connection_options
@click.pass_context
def move_back(ctx: click.Context, name: str, output_format: str) -> None:
    """Move the workload NAME back from its fallback cities. Each stays until the city that it
    stands for is available; what does not come up stays where it is.

    \b
    Example:
      datumctl compute rollout return web
    """
    surroundings: Surroundings = ctx.obj
    now = timestamp(surroundings.now())

    def change(workload: JsonObject) -> None:
        workload["metadata"].setdefault("annotations", {})[RETURNED_AT] = now

    run_in_session(
        ctx,
        lambda session: adjust(session, name, change, Waiting(None)),
        as_json=output_format == "json",
    )
