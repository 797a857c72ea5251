"""The fieldValidation parameter: how the server treats unknown and duplicate fields.

Unknown fields are dropped. Strict rejects the request; Warn (the default) adds a Warning header.
Duplicates need a second parse of the body, so they are checked only if the request sets Strict or
Warn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.options import choice
from datum_compute.server.problems import shortened

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
FIELDS_MAX = 100  # unknown or duplicate fields that a message names
_WARNINGS_BYTES_MAX = 4096
_WARNING_CHARS_MAX = 1024


class FieldValidation(msgspec.Struct, frozen=True):
    mode: str
    duplicates: tuple[str, ...]

    def enforce(
        self, kind: KindInfo[Any], unknown: Sequence[str], warnings: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the Warning header, if there are warnings. Raises BadRequest in Strict mode."""
        if not unknown and not warnings and not self.duplicates:
            return {}
        if self.mode == IGNORE:
            return {"warning": warning_header(warnings)} if warnings else {}
        found = [f'unknown field "{shortened(field)}"' for field in unknown[:FIELDS_MAX]]
        found += [f'duplicate field "{shortened(field)}"' for field in self.duplicates]
        if len(unknown) > FIELDS_MAX:
            found.append(f"{len(unknown) - FIELDS_MAX} more unknown fields")
        if found and self.mode == STRICT:
            raise BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {', '.join(found)}"
            )
        found += warnings
        return {"warning": warning_header(found)} if found else {}


def field_validation(query: Mapping[str, str], body: bytes) -> FieldValidation:
    mode = choice(query, "fieldValidation", (STRICT, WARN, IGNORE))
    duplicates = tuple(duplicate_fields(body)) if mode in (STRICT, WARN) else ()
    return FieldValidation(mode or WARN, duplicates)


class _ObjectWithDuplicates(dict[str, Any]):
    """A JSON object with duplicate keys."""

    duplicate_names: tuple[str, ...] = ()


# A field inside an object: the path of the object, and the name of the field.
_Path = tuple["_Path", str] | None


def duplicate_fields(body: bytes) -> Iterator[str]:
    """Yield the paths of duplicate keys, at most ``FIELDS_MAX``. Other formats than JSON have
    none: the YAML parser rejects duplicate keys."""
    found: list[_ObjectWithDuplicates] = []

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs) or len(found) >= FIELDS_MAX:
            return plain
        doubled = _ObjectWithDuplicates(plain)
        doubled.duplicate_names = _duplicate_names(pairs)
        found.append(doubled)
        return doubled

    try:
        value = json.loads(body, object_pairs_hook=read_object)
    except (ValueError, RecursionError):
        return
    if found:
        yield from islice(_duplicate_paths(value), FIELDS_MAX)


def _duplicate_names(pairs: list[tuple[str, Any]]) -> tuple[str, ...]:
    seen: set[str] = set()
    doubled: dict[str, None] = {}
    for name, _ in pairs:
        if name in seen:
            doubled[name] = None
        seen.add(name)
    return tuple(doubled)


def _duplicate_paths(value: Any) -> Iterator[str]:
    """Yield the paths of duplicate keys. Only reported paths are joined: otherwise a long key would
    be copied for each field below it."""
    stack: list[tuple[Any, _Path]] = [(value, None)]
    while stack:
        inside, path = stack.pop()
        if isinstance(inside, _ObjectWithDuplicates):
            yield from (_format_path((path, name)) for name in inside.duplicate_names)
        if isinstance(inside, dict):
            steps: list[tuple[str, Any]] = list(inside.items())
        else:
            steps = [(f"[{index}]", item) for index, item in enumerate(inside)]
        nested = [(item, (path, step)) for step, item in steps if isinstance(item, dict | list)]
        stack += reversed(nested)


def _format_path(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(shortened(step))
    return "".join(s if s.startswith("[") else f".{s}" for s in reversed(steps)).removeprefix(".")


def warning_header(texts: Sequence[str]) -> str:
    """Return one Warning header for all texts. Characters other than printable ASCII are replaced,
    because field names come from the client."""
    result = ""
    for text in texts:
        clean = "".join(c if " " <= c <= "~" else "?" for c in shortened(text, _WARNING_CHARS_MAX))
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        more = f'{", " if result else ""}299 - "{escaped}"'
        if len(result) + len(more) > _WARNINGS_BYTES_MAX:
            break
        result += more
    return result
