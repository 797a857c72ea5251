"""Differences between two objects, as lines for people.

Lists of named items are compared item by item. Values of environment variables are never shown,
because they may be confidential.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datum_compute.api.meta.codec import JsonObject

_LONG_PATHS = (
    "spec.template.spec.runtime.sandbox.",
    "spec.template.spec.",
    "spec.",
)
_ABSENT = object()
# Fields that identify an item of a list.
_IDENTITIES = ("name", "cityCode")


def render_changes(observed: JsonObject, desired: JsonObject) -> list[str]:
    """Return one line for each changed field, in the order of the fields."""
    return [strip_common_prefix(line) for line in _lines(observed, desired, "")]


def _lines(observed: Any, desired: Any, path: str) -> Iterator[str]:
    if observed == desired:
        return
    before, after = (
        _parts_by_name(observed, beside=desired),
        _parts_by_name(desired, beside=observed),
    )
    if before is None or after is None or ".env[" in path:
        yield f"{path}: {_render_change(observed, desired, path)}"
        return
    brackets = isinstance(desired, list) or isinstance(observed, list)
    for name in sorted(before.keys() | after.keys()):
        step = f"[{name}]" if brackets else f".{name}" if path else name
        yield from _lines(before.get(name, _ABSENT), after.get(name, _ABSENT), path + step)


def _parts_by_name(value: Any, *, beside: Any = None) -> dict[str, Any] | None:
    """Return the fields of an object, or the items of a list by name; None for other values.

    Compared with such a list, a missing or empty list has no items.
    """
    if isinstance(value, dict):
        return value
    if value is _ABSENT or value == []:
        return {} if isinstance(beside, list) and _parts_by_name(beside) else None
    if not isinstance(value, list):
        return None
    for key in _IDENTITIES:
        if all(isinstance(item, dict) and key in item for item in value):
            return {str(item[key]): item for item in value}
    return None


def _render_change(observed: Any, desired: Any, path: str) -> str:
    if _is_toggled(observed, desired):
        return "false -> true" if desired is True else "true -> false"
    if observed is _ABSENT:
        return "added" if _is_hidden(desired, path) else f"added {_render_value(desired)}"
    if desired is _ABSENT:
        return "removed"
    if _is_hidden(desired, path):
        return "changed"
    return f"{_render_value(observed)} -> {_render_value(desired)}"


def _is_toggled(observed: Any, desired: Any) -> bool:
    """Return True if a boolean changes its meaning. A missing boolean is false."""
    booleans = all(value is _ABSENT or isinstance(value, bool) for value in (observed, desired))
    return booleans and (observed is True) != (desired is True)


def _is_hidden(value: Any, path: str) -> bool:
    return ".env" in path or isinstance(value, dict) or _parts_by_name(value) is not None


def _render_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "none"
    return str(value)


def strip_common_prefix(line: str) -> str:
    """Return the line without the path that most fields share."""
    prefix = next((p for p in _LONG_PATHS if line.startswith(p)), "")
    return line.removeprefix(prefix)
