"""The names that commands take: given, or from ``datum.toml``; completed with those that exist.

As with kubectl, and as ``-o name`` prints them, the type may stand before a name:
``workload/web``. It has to be the one that the command is about.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from datum_compute.cli.completion import container_names, instance_names, workload_names
from datum_compute.cli.connect.project_file import FILE_NAME, find_project_file
from datum_compute.cli.environment import Surroundings
from datum_compute.cli.options import F


def workload_argument(command: F) -> F:
    """NAME of a workload; where it is left out, the one that ``datum.toml`` names."""
    return _argument(command, "workload")


def workload_or_instance_argument(command: F) -> F:
    """As ``workload_argument``; an instance will do as well."""
    return _argument(command, "workload", "instance")


def _argument(command: F, *types: str) -> F:
    return click.argument(
        *("name",),
        required=False,
        callback=lambda ctx, _param, value: _given_or_known(ctx, bare_name(value, *types)),
        shell_complete=workload_names,
    )(command)


def instance_argument(command: F) -> F:
    return click.argument("name", callback=named("instance"), shell_complete=instance_names)(
        command
    )


def named(*types: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback for arguments that are names."""
    return lambda _ctx, _param, value: bare_name(value, *types)


def bare_name(text: str | None, *types: str) -> str | None:
    """The name of ``TYPE/NAME``, whose type has to be one of these; other text as it is."""
    before, slash, name = (text or "").partition("/")
    if not slash:
        return text
    given = before.lower().partition(".")[0]  # of workloads.compute.datumapis.com
    if given not in (*types, *(f"{one}s" for one in types)) or not name:
        article = "an" if types[0][0] in "aeiou" else "a"
        meant = " or ".join(types)
        raise click.BadParameter(f"{text!r} does not name {article} {meant}; write NAME alone.")
    return name


def container_option(command: F) -> F:
    return click.option(
        *("-c", "--container"),
        metavar="NAME",
        help="Container of the instance; the first without it.",
        shell_complete=container_names,
    )(command)


def _given_or_known(ctx: click.Context, value: str | None) -> str:
    if value:
        return value
    surroundings: Surroundings = ctx.obj
    known = find_project_file(surroundings).workload
    if not known:
        message = f"Missing argument 'NAME', and no {FILE_NAME} here names a workload."
        raise click.UsageError(message, ctx)
    return known
