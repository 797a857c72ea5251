"""Values of printer columns: the few forms of path that columns use, and ages as people read them.

A path is ``.a.b``, with ``[0]`` for an item, ``['a/b']`` for an odd key and ``[?(@.type=="X")]``
for the item of that type. Of several paths, separated by commas, the first that leads somewhere
counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from datum_compute.api.meta import Column
from datum_compute.api.timestamps import parse_timestamp

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z0-9_-]+)
      | \[["'](?P<quoted>[^"']+)["']\]
      | \[(?P<index>[0-9]+)\]
      | \[\?\(@\.(?P<key>[A-Za-z0-9_]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]""",
    re.VERBOSE,
)

Step = Callable[[Any], Any]


@cache
def compiled_path(path: str) -> tuple[Step, ...]:
    steps, position = [], 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise ValueError(f"column path {path!r} is not understood at {path[position:]!r}")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def value_at(obj: Any, path: str) -> Any:
    """The value a path leads to, or None."""
    for step in compiled_path(path):
        obj = step(obj)
    return obj


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
            return first_at(obj, column.path)


def age(created: Any, now: float) -> str:
    """How long ago a timestamp was, in at most two units."""
    if not isinstance(created, str):
        return "<unknown>"
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


def _step(found: re.Match[str]) -> Step:
    field, quoted, index, key, wanted = found.group("field", "quoted", "index", "key", "value")
    field = field if field is not None else quoted
    if field is not None:
        return lambda value: value.get(field) if isinstance(value, dict) else None
    if index is not None:
        at = int(index)
        return lambda value: value[at] if isinstance(value, list) and len(value) > at else None
    return lambda value: _item_with(value, key, wanted)


def _item_with(items: Any, key: str, wanted: str) -> Any:
    if not isinstance(items, list):
        return None
    return next((i for i in items if isinstance(i, dict) and i.get(key) == wanted), None)
