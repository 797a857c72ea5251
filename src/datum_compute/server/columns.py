"""Values of printer columns: the few forms of path that columns use, and ages as people read them.

A path is ``.a.b``, with ``[0]`` for an item and ``[?(@.type=="X")]`` for the item of that type.
A dot inside a name is written ``\\.``, as in ``.metadata.labels.example\\.com/name``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from datum_compute.api.timestamps import parse_timestamp

_STEP = re.compile(
    r"""\.(?P<field>(?:[A-Za-z0-9_/-]|\\\.)+)
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
    field, index, key, wanted = found.group("field", "index", "key", "value")
    if field is not None:
        name = field.replace("\\.", ".")
        return lambda value: value.get(name) if isinstance(value, dict) else None
    if index is not None:
        at = int(index)
        return lambda value: value[at] if isinstance(value, list) and len(value) > at else None
    return lambda value: _item_with(value, key, wanted)


def _item_with(items: Any, key: str, wanted: str) -> Any:
    if not isinstance(items, list):
        return None
    return next((i for i in items if isinstance(i, dict) and i.get(key) == wanted), None)
