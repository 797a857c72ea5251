"""The difference between two objects, as lines for people.

Lists of named items are compared item by item. Values of environment variables are never shown:
they are where secrets end up.
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
# What items of a list are told apart by.
_IDENTITIES = ("name", "cityCode")


def render_changes(observed: JsonObject, desired: JsonObject) -> list[str]:
    """One line for every field that changes, in the order of the fields."""
    return [shortened(line) for line in _lines(observed, desired, "")]


def _lines(observed: Any, desired: Any, path: str) -> Iterator[str]:
    if observed == desired:
        return
    before, after = _named(observed, beside=desired), _named(desired, beside=observed)
    if before is None or after is None or ".env[" in path:
        yield f"{path}: {_shown_change(observed, desired, path)}"
        return
    brackets = isinstance(desired, list) or isinstance(observed, list)
    for name in sorted(before.keys() | after.keys()):
        step = f"[{name}]" if brackets else f".{name}" if path else name
        yield from _lines(before.get(name, _ABSENT), after.get(name, _ABSENT), path + step)


def _named(value: Any, *, beside: Any = None) -> dict[str, Any] | None:
    """The parts of an object, or of a list whose items have names; None for anything else.

    Beside such a list, no list and an empty one have no parts.
    """
    if isinstance(value, dict):
        return value
    if value is _ABSENT or value == []:
        return {} if isinstance(beside, list) and _named(beside) else None
    if not isinstance(value, list):
        return None
    for key in _IDENTITIES:
        if all(isinstance(item, dict) and key in item for item in value):
            return {str(item[key]): item for item in value}
    return None


def _shown_change(observed: Any, desired: Any, path: str) -> str:
    if _is_switch(observed, desired):
        return "false -> true" if desired is True else "true -> false"
    if observed is _ABSENT:
        return "added" if _is_hidden(desired, path) else f"added {_shown(desired)}"
    if desired is _ABSENT:
        return "removed"
    if _is_hidden(desired, path):
        return "changed"
    return f"{_shown(observed)} -> {_shown(desired)}"


def _is_switch(observed: Any, desired: Any) -> bool:
    """A boolean that changes its meaning: one that is not there is false."""
    booleans = all(value is _ABSENT or isinstance(value, bool) for value in (observed, desired))
    return booleans and (observed is True) != (desired is True)


def _is_hidden(value: Any, path: str) -> bool:
    return ".env" in path or isinstance(value, dict) or _named(value) is not None


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "none"
    return str(value)


def shortened(line: str) -> str:
    """Without the way to where most fields are."""
    prefix = next((p for p in _LONG_PATHS if line.startswith(p)), "")
    return line.removeprefix(prefix)
