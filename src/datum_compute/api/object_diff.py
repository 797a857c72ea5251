"""The difference between two objects, as values and as lines for people.

Lists of named items are compared item by item. Decisions use ``FieldChange``; the lines are for
people and may change. They never contain values of environment variables, which often hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from datum_compute.api.meta.codec import JsonObject

_LONG_PATHS = (
    "spec.template.spec.runtime.sandbox.",
    "spec.template.spec.",
    "spec.",
)
_ABSENT = object()
# The field that identifies an item of a list.
_IDENTITIES = ("name", "cityCode")


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FieldChange(NamedTuple):
    """One field that differs. ``before`` is None for an added field, ``after`` for a removed one.

    ``path`` leaves out the prefix that most fields share, such as ``spec.template.spec.``. Values
    are not masked; only ``render_change`` is.
    """

    path: str
    kind: ChangeKind
    before: Any
    after: Any


def diff_objects(observed: JsonObject, desired: JsonObject) -> list[FieldChange]:
    """Return one change for every field that differs, in the order of the fields."""
    return list(_changes(observed, desired, ""))


def render_changes(observed: JsonObject, desired: JsonObject) -> list[str]:
    """Return one line for every field that differs, in the order of the fields."""
    return [render_change(change) for change in diff_objects(observed, desired)]


def render_change(change: FieldChange) -> str:
    """Return the change as a line for people. Values of environment variables are masked."""
    return f"{change.path}: {_change_text(change)}"


def _changes(observed: Any, desired: Any, path: str) -> Iterator[FieldChange]:
    if observed == desired:
        return
    before, after = (
        _parts_by_name(observed, beside=desired),
        _parts_by_name(desired, beside=observed),
    )
    if before is None or after is None or ".env[" in path:
        yield _change(observed, desired, path)
        return
    brackets = isinstance(desired, list) or isinstance(observed, list)
    for name in sorted(before.keys() | after.keys()):
        step = f"[{name}]" if brackets else f".{name}" if path else name
        yield from _changes(before.get(name, _ABSENT), after.get(name, _ABSENT), path + step)


def _change(observed: Any, desired: Any, path: str) -> FieldChange:
    if _is_toggled(observed, desired):
        # An absent boolean is false.
        return FieldChange(
            strip_common_prefix(path), ChangeKind.CHANGED, observed is True, desired is True
        )
    kind = ChangeKind.CHANGED
    if observed is _ABSENT:
        kind = ChangeKind.ADDED
    elif desired is _ABSENT:
        kind = ChangeKind.REMOVED
    before, after = (None if value is _ABSENT else value for value in (observed, desired))
    return FieldChange(strip_common_prefix(path), kind, before, after)


def _parts_by_name(value: Any, *, beside: Any = None) -> dict[str, Any] | None:
    """Return the fields of an object, or the items of a list by name; None for anything else.

    An absent or empty list counts as a list without items if ``beside`` is a list of named items.
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


def _change_text(change: FieldChange) -> str:
    hidden = _is_hidden(change.after, change.path)
    match change.kind:
        case ChangeKind.ADDED:
            return "added" if hidden else f"added {_render_value(change.after)}"
        case ChangeKind.REMOVED:
            return "removed"
        case ChangeKind.CHANGED:
            if hidden:
                return "changed"
            return f"{_render_value(change.before)} -> {_render_value(change.after)}"


def _is_toggled(observed: Any, desired: Any) -> bool:
    """Return True if a boolean changes, where an absent one is false."""
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


def strip_common_prefix(path: str) -> str:
    """Return the path without the prefix that most fields share."""
    prefix = next((p for p in _LONG_PATHS if path.startswith(p)), "")
    return path.removeprefix(prefix)
