"""``init``: write ``datum.toml``, so that commands in this directory need no workload name."""

from __future__ import annotations

import click

from datum_compute.cli.arguments import (
    check_workload_name,
    is_workload_name,
    parse_cities,
    strip_type_of,
)
from datum_compute.cli.completion import city_names, workload_names
from datum_compute.cli.connect.project_file import FILE_NAME, ProjectFile, render_project_file
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import connection_options, target_options
from datum_compute.cli.render.output import build_output
from datum_compute.cli.render.prompt import prompt_text


@click.command(short_help="Write datum.toml with the default workload.")
@click.argument(
    "name", required=False, callback=strip_type_of("workload"), shell_complete=workload_names
)
@click.option(
    *("--city", "cities"),
    multiple=True,
    metavar="CODE",
    help="City of the first deploy; repeat the flag, or separate codes by commas.",
    shell_complete=city_names,
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@connection_options
@click.pass_context
def init(ctx: click.Context, name: str | None, cities: tuple[str, ...], force: bool) -> None:
    """Write datum.toml to this directory: the workload NAME, its project and its cities. Commands
    in this directory and below then need no workload name.

    \b
    Examples:
      datumctl compute init web --city=DFW,LHR
      datumctl compute init web --project=shop
    """
    environment: CliEnvironment = ctx.obj
    path = environment.cwd / FILE_NAME
    if path.exists() and not force:
        raise UsageError(f"{FILE_NAME} already exists.", "Replace it with --force.")
    if not name and environment.may_ask:
        default = environment.cwd.name
        name = prompt_text(environment, "Workload", default if is_workload_name(default) else "")
    check_workload_name(name or "", environment)
    content = ProjectFile(None, target_options(ctx).project, name or "", parse_cities(cities))
    try:
        path.write_text(render_project_file(content), "utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {FILE_NAME}: {error.strerror}.") from error
    output = build_output(environment)
    output.data(FILE_NAME)
    deploy = environment.command("deploy", "--image=IMAGE")
    output.note(f"In this directory, commands need no workload name. Try: {deploy}")


COMMAND = init
