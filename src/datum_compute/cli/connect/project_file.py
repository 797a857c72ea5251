"""``datum.toml``: project, workload and cities of a directory, so that commands need no name.

The file is searched in the working directory and its parents. Flags and variables take precedence.

    project = "default"      # optional; default: the context
    workload = "web"
    cities = ["DFW", "LHR"]  # cities of the first deploy; --city takes precedence
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from datum_compute.cli.environment import CliEnvironment, read_text_file
from datum_compute.cli.errors import UsageError

PROJECT_FILE_BYTES_MAX = 64 * 1024
FILE_NAME = "datum.toml"
_KEYS = ("project", "workload", "cities")


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """Content of ``datum.toml``; keys that it does not contain are empty."""

    path: Path | None = None
    project: str = ""
    workload: str = ""
    cities: tuple[str, ...] = ()


def find_project_file(environment: CliEnvironment) -> ProjectFile:
    """Read the nearest file; return an empty ProjectFile without one."""
    for directory in (environment.cwd, *environment.cwd.parents):
        path = directory / FILE_NAME
        if path.is_file():
            return read_project_file(path)
    return ProjectFile()


def read_project_file(path: Path) -> ProjectFile:
    import tomllib  # only where there is a file to read

    try:
        found = tomllib.loads(read_text_file(path, str(path), PROJECT_FILE_BYTES_MAX))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    unknown = [key for key in found if key not in _KEYS]
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}.", f"Known: {', '.join(_KEYS)}")
    project, workload = (_text(path, found, key) for key in ("project", "workload"))
    cities = found.get("cities", [])
    if not isinstance(cities, list) or not all(isinstance(city, str) for city in cities):
        raise UsageError(f"{path}: cities must be a list of strings.", 'Write ["DFW", "LHR"].')
    return ProjectFile(path, project, workload, tuple(cities))


def _text(path: Path, found: dict[str, object], key: str) -> str:
    value = found.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{path}: {key} must be a string.", f'Example: {key} = "..."')
    return value


def render_project_file(content: ProjectFile) -> str:
    """Return the content as TOML; JSON strings and lists are valid TOML."""
    lines = [f"{key} = {json.dumps(getattr(content, key))}" for key in ("project", "workload")]
    lines = [line for line in lines if not line.endswith('""')]
    if content.cities:
        lines.append(f"cities = {json.dumps(list(content.cities))}")
    return "".join(f"{line}\n" for line in lines)
