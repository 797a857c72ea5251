"""``version``: print the version of the command line."""

from __future__ import annotations

import click

from datum_compute import __version__
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.options import output_option
from datum_compute.cli.render.documents import VersionDocument, to_document
from datum_compute.cli.render.output import build_output


@click.command(short_help="Show the version.")
@output_option("table", "json")
@click.pass_obj
def version(environment: CliEnvironment, output_format: str) -> None:
    """Show the version.

    \b
    Example:
      datumctl compute version -o json
    """
    output = build_output(environment)
    if output_format == "json":
        output.json(to_document(VersionDocument(version=__version__)))
    else:
        output.data(f"datum-compute {__version__}")


COMMAND = version
