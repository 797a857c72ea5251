r"""The part of JSONPath that printer columns, scale and selectable fields use.

``.a.b``, ``\.`` for a dot in a name, ``['a/b']`` for other keys, ``[0]`` for an item, ``[*]`` for
the first item, and ``[?(@.type=="X")]`` for the item of that type. All other paths are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from datum_compute.api.meta.codec import JsonObject

PATH_LENGTH_MAX = 1024
STEPS_MAX = 32
_COMPILED_PATHS_MAX = 256
_STEP_FORM = r"""
        \.(?P<field>(?:\\\.|[A-Za-z0-9_/$-])++)
      | \[["'](?P<quoted>[^"',]++)["']\]
      | \[(?P<index>[0-9]{1,6}|\*)\]
      | \[\?\(\s*+@\.(?P<key>[A-Za-z0-9_]++)\s*+==\s*+["'](?P<value>[^"',]*+)["']\s*+\)\]"""
_STEP = re.compile(_STEP_FORM, re.VERBOSE)
_STEPS = re.compile(f"(?:{_STEP_FORM}){{0,{STEPS_MAX}}}+", re.VERBOSE)
_SHOWN_LENGTH_MAX = 120  # of a path in an error message
_SEARCHED_ITEMS_MAX = 1000  # of a list that a filter searches
_FIELDS_ONLY = re.compile(r"(\.[A-Za-z0-9_-]+)+")

Step = Callable[[Any], Any]


def check_path(path: str) -> None:
    """Check the form of a path without compiling it. Raises ValueError if it is too long or
    invalid.
    """
    if len(path) > PATH_LENGTH_MAX:
        raise ValueError(f"may not be longer than {PATH_LENGTH_MAX} characters; use a shorter path")
    supported = _STEPS.match(path)
    end = supported.end() if supported else 0
    if end == len(path):
        return
    if _STEP.match(path, end):
        raise ValueError(f"may not have more than {STEPS_MAX} steps; use a shorter path")
    raise _unsupported(path, end)


@lru_cache(maxsize=_COMPILED_PATHS_MAX)
def compile_path(path: str) -> tuple[Step, ...]:
    """Compile a path. Raises ValueError if it is invalid."""
    steps, position = [], 0
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise _unsupported(path, position)
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def _unsupported(path: str, position: int) -> ValueError:
    shown, rest = path[:_SHOWN_LENGTH_MAX], path[position : position + _SHOWN_LENGTH_MAX]
    return ValueError(f"path {shown!r} is not supported at {rest!r}")


def value_at(obj: Any, path: str) -> Any:
    """Return the value at a path, or None."""
    for step in compile_path(path):
        obj = step(obj)
    return obj


def field_names(path: str) -> list[str] | None:
    """Return the field names of a path that consists only of fields, or None."""
    return path.split(".")[1:] if _FIELDS_ONLY.fullmatch(path) else None


def with_value_at(obj: JsonObject, names: list[str], value: Any) -> JsonObject:
    """Return the object with another value at a path of fields. Missing objects are created."""
    name, *rest = names
    inner = obj.get(name)
    below = with_value_at(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return {**obj, name: below}


def _step(found: re.Match[str]) -> Step:
    field, quoted, index, key, wanted = found.group("field", "quoted", "index", "key", "value")
    name = field.replace("\\.", ".") if field is not None else quoted
    if name is not None:
        return lambda value: value.get(name) if isinstance(value, dict) else None
    if index is not None:
        at = 0 if index == "*" else int(index)
        return lambda value: value[at] if isinstance(value, list) and len(value) > at else None
    return lambda value: _item_with(value, key, wanted)


def _item_with(items: Any, key: str, wanted: str) -> Any:
    if not isinstance(items, list):
        return None
    first = islice(items, _SEARCHED_ITEMS_MAX)
    return next((i for i in first if isinstance(i, dict) and i.get(key) == wanted), None)
