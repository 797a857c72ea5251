"""Values of printer columns, and ages as people read them.

Of several paths, separated by commas, the first that leads somewhere counts.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import encode
from datum_compute.api.meta.json_path import value_at
from datum_compute.api.meta.objects import Column
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.schema.report import copy_beginning
from datum_compute.server.problems import shortened

CELL_LENGTH_MAX = 1024  # characters; a row repeats a value once for each column that shows it
_TIMESTAMP_LENGTH_MAX = 64


def first_at(obj: Any, paths: str) -> Any:
    """The value at the first of several paths that leads to one."""
    found = (value_at(obj, path) for path in paths.split(","))
    return next((value for value in found if value not in (None, "")), None)


def text_at(obj: Any, paths: str) -> str:
    """The value as a selector compares it."""
    match first_at(obj, paths):
        case None:
            return ""
        case bool() as value:
            return "true" if value else "false"
        case value:
            return str(value)


def cell(obj: Any, column: Column, now: float) -> Any:
    """What a column shows of an object."""
    match column.type:
        case "count":
            return sum(len(value_at(obj, path) or ()) for path in column.path.split(","))
        case "date":
            return age(first_at(obj, column.path), now)
        case "reference" | "object":
            found = first_at(obj, column.path) or {}
            kind: str = found.get("kind", "")
            shown_kind = kind.lower() if column.type == "object" else kind
            return f"{shown_kind}/{found.get('name', '')}"
        case _:
            return _render_cell(first_at(obj, column.path))


def _render_cell(value: Any) -> Any:
    """Return a number or a boolean as it is, anything else as text of limited length."""
    if isinstance(value, dict | list):
        value = encode(copy_beginning(value, CELL_LENGTH_MAX)).decode()
    return shortened(value, CELL_LENGTH_MAX) if isinstance(value, str) else value


def age(created: Any, now: float) -> str:
    """How long ago a timestamp was, in at most two units."""
    if not isinstance(created, str):
        return "<unknown>"
    if len(created) > _TIMESTAMP_LENGTH_MAX:
        return "<invalid>"
    try:
        seconds = int(now - parse_timestamp(created))
    except ValueError:
        return "<invalid>"
    return duration(max(seconds, 0))


def duration(seconds: int) -> str:
    """Finer while it is short, coarser when it is long."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
