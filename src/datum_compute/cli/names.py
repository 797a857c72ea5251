"""What people write on a command line, checked and brought into one form."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datum_compute.api.planes import normalized_city
from datum_compute.cli.context import Surroundings
from datum_compute.cli.errors import UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_RULE = "Use up to 63 lower case letters, digits and dashes, with no dash first or last."


def is_workload_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_workload_name(name: str, surroundings: Surroundings) -> None:
    if not name:
        example = surroundings.command("deploy", "web", "--image=IMAGE", "--city=DFW")
        raise UsageError("Say which workload, or give a file with -f.", f"For example: {example}")
    if not is_workload_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a workload.", NAME_RULE, field="metadata.name"
        )


def parse_cities(values: Sequence[str]) -> tuple[str, ...]:
    cities = [normalized_city(city) for value in values for city in value.split(",")]
    if not all(cities):
        raise UsageError("--city has an empty city in it.", "Write for example --city=DFW,ORD.")
    return tuple(dict.fromkeys(cities))


def parse_env(values: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """``NAME=VALUE`` sets, ``NAME-`` takes away."""
    parsed: dict[str, str | None] = {}
    for pair in values:
        name, equals, value = pair.partition("=")
        is_removal = not equals and name.endswith("-")
        name = name[:-1] if is_removal else name
        if not (equals or is_removal) or not _ENV_NAME.fullmatch(name):
            # The value is not repeated: it may be a secret.
            shown = f"{name}=..." if equals else name
            raise UsageError(f"--env {shown!r} is not NAME=VALUE.", "For example --env MODE=fast")
        if name in parsed:
            raise UsageError(f"--env sets {name!r} twice.")
        parsed[name] = None if is_removal else value
    return tuple(parsed.items())
