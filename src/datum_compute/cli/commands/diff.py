"""``diff -f FILE``: show what a deploy of the file would change."""

from __future__ import annotations

import click

from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.render.difference import exit_with_2_on_error, print_difference
from datum_compute.cli.render.plan import render_plan
from datum_compute.cli.workload.edits import manifest_edit
from datum_compute.cli.workload.manifest import read_manifests
from datum_compute.cli.workload.plan import build_plan


@click.command(short_help="Show what a file would change.")
@click.option(
    *("-f", "--file", "file"),
    required=True,
    metavar="FILE",
    help="Workloads in YAML or JSON: a file, a directory, or - for stdin.",
)
@output_option("table", "json")
@connection_options
@click.pass_context
def diff(ctx: click.Context, file: str, output_format: str) -> int:
    """Show what a deploy of the file would change, from a dry run on the server.

    The exit code is 0 without differences, 1 with differences, and 2 or more after an error. Values
    of environment variables are not shown.

    \b
    Examples:
      datumctl compute diff -f web.yaml
      datumctl compute diff -f ./workloads -o json
    """
    manifests = read_manifests(file, ctx.obj)

    async def body(session: Session) -> int:
        changes = {}
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            plan = await build_plan(session, name, manifest_edit(manifest, session.namespace))
            new = "new " if plan.observed is None else ""
            changes[name] = [f"{new}{line}" for line in render_plan(plan)]
        return print_difference(session, changes, output_format)

    with exit_with_2_on_error():
        return run_in_session(ctx, body)


COMMAND = diff
