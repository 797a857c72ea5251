"""Arguments of commands: names of workloads and instances, cities and other values.

A name is given on the command line or comes from ``datum.toml``. Shells complete existing names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import click

from datum_compute.api.planes import normalize_city
from datum_compute.cli.completion import container_names, instance_names, workload_names
from datum_compute.cli.connect.project_file import FILE_NAME, find_project_file
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_RULE = "Use up to 63 lower-case letters, digits and dashes, and no dash at either end."

F = TypeVar("F", bound=Callable[..., Any])


def is_workload_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_workload_name(name: str, environment: CliEnvironment) -> None:
    if not name:
        example = environment.command("deploy", "web", "--image=IMAGE", "--city=DFW")
        raise UsageError("Missing the name of a workload, or -f FILE.", f"Example: {example}")
    if not is_workload_name(name):
        raise UsageError(
            f"{name!r} is not a valid name of a workload.", NAME_RULE, field="metadata.name"
        )


def parse_cities(values: Sequence[str]) -> tuple[str, ...]:
    cities = [normalize_city(city) for value in values for city in value.split(",")]
    if not all(cities):
        raise UsageError("--city contains an empty city.", "Example: --city=DFW,ORD")
    return tuple(dict.fromkeys(cities))


def unknown_city(workload_name: str, city: str, cities: Sequence[str]) -> UsageError:
    """Return the error for a city in which no placement of the workload is."""
    close = get_close_matches(city, cities, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return UsageError(
        f"Workload {workload_name!r} does not run in {city}.",
        f"{guess}It runs in: {', '.join(dict.fromkeys(cities))}",
        field="--city",
    )


def parse_env(values: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Parse ``NAME=VALUE``, which sets a variable, and ``NAME-``, which removes it (None)."""
    parsed: dict[str, str | None] = {}
    for pair in values:
        name, equals, value = pair.partition("=")
        is_removal = not equals and name.endswith("-")
        name = name[:-1] if is_removal else name
        if not (equals or is_removal) or not _ENV_NAME.fullmatch(name):
            # The message does not contain the value, which may be a secret.
            shown = f"{name}=..." if equals else name
            raise UsageError(f"--env {shown!r} is not NAME=VALUE.", "Example: --env MODE=fast")
        if name in parsed:
            raise UsageError(f"--env sets {name!r} twice.")
        parsed[name] = None if is_removal else value
    return tuple(parsed.items())


def workload_argument(command: F) -> F:
    """Add the argument NAME of a workload. Default: the workload in ``datum.toml``."""
    return _argument(command, "workload")


def workload_or_instance_argument(command: F) -> F:
    """Add the argument NAME of a workload or an instance."""
    return _argument(command, "workload", "instance")


def _argument(command: F, *types: str) -> F:
    return click.argument(
        *("name",),
        required=False,
        callback=lambda ctx, _param, value: _given_or_saved_name(ctx, bare_name(value, *types)),
        shell_complete=workload_names,
    )(command)


def instance_argument(command: F) -> F:
    return click.argument(
        "name", callback=strip_type_of("instance"), shell_complete=instance_names
    )(command)


def strip_type_of(
    *types: str,
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a callback that removes the type of a name such as ``workload/web``."""
    return lambda _ctx, _param, value: bare_name(value, *types)


def bare_name(text: str | None, *types: str) -> str | None:
    """Return NAME of ``TYPE/NAME``, whose type must be one of ``types``; other text unchanged."""
    type_part, slash, name = (text or "").partition("/")
    if not slash:
        return text
    type_name = type_part.lower().partition(".")[0]  # of workloads.compute.datumapis.com
    if type_name not in (*types, *(f"{singular}s" for singular in types)) or not name:
        article = "an" if types[0][0] in "aeiou" else "a"
        expected_types = " or ".join(types)
        raise click.BadParameter(f"{text!r} is not the name of {article} {expected_types}.")
    return name


def container_option(command: F) -> F:
    return click.option(
        *("-c", "--container"),
        metavar="NAME",
        help="Container of the instance. Default: the first one.",
        shell_complete=container_names,
    )(command)


def _given_or_saved_name(ctx: click.Context, value: str | None) -> str:
    if value:
        return value
    environment: CliEnvironment = ctx.obj
    known = find_project_file(environment).workload
    if not known:
        message = f"Missing argument 'NAME', and no {FILE_NAME} with a workload was found."
        raise click.UsageError(message, ctx)
    return known
