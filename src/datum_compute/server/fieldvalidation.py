"""The fieldValidation parameter: what happens to fields the schema does not know.

They are always dropped; Strict refuses the request instead, Warn (the default) says so in a
header. Duplicate keys need a second, slower reading of the body, so only callers that name
Strict or Warn are told of those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta import KindInfo
from datum_compute.server.options import choice
from datum_compute.server.problems import shortened

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
_WARNINGS_BYTES_MAX = 4096
_FIELDS_MAX = 100  # that are named


class FieldValidation(msgspec.Struct, frozen=True):
    mode: str
    duplicates: tuple[str, ...]

    def enforce(
        self, kind: KindInfo[Any], unknown: Sequence[str], warnings: Sequence[str] = ()
    ) -> dict[str, str]:
        """The headers that warn of what was dropped, and of what rules warn of; raises when the
        caller wants strictness."""
        if not unknown and not warnings and not self.duplicates:
            return {}
        if self.mode == IGNORE:
            return {"warning": warning_header(warnings)} if warnings else {}
        found = [f'unknown field "{shortened(field)}"' for field in unknown[:_FIELDS_MAX]]
        found += [f'duplicate field "{shortened(field)}"' for field in self.duplicates]
        if len(unknown) > _FIELDS_MAX:
            found.append(f"{len(unknown) - _FIELDS_MAX} more unknown fields")
        if found and self.mode == STRICT:
            raise BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {', '.join(found)}"
            )
        found += warnings
        return {"warning": warning_header(found)} if found else {}


def field_validation(query: Mapping[str, str], body: bytes) -> FieldValidation:
    asked = choice(query, "fieldValidation", (STRICT, WARN, IGNORE))
    duplicates = (
        tuple(islice(duplicate_fields(body), _FIELDS_MAX)) if asked in (STRICT, WARN) else ()
    )
    return FieldValidation(asked or WARN, duplicates)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with every pair it was written with."""


def duplicate_fields(body: bytes) -> Iterator[str]:
    """Paths of keys that stand twice in their object. Other formats than JSON have none: YAML
    with such a key is refused when it is read. Paths are made only if there is such a key."""
    try:
        if _has_duplicates(body):
            yield from _duplicates(json.loads(body, object_pairs_hook=_Pairs), "")
    except ValueError:
        return


def _has_duplicates(body: bytes) -> bool:
    found = False

    def note_duplicates(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or (len(pairs) > 1 and len({name for name, _ in pairs}) < len(pairs))

    json.loads(body, object_pairs_hook=note_duplicates)
    return found


def _duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            inner_path = f"{path}.{name}" if path else name
            if name in seen:
                yield inner_path
            seen.add(name)
            yield from _duplicates(inner, inner_path)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _duplicates(inner, f"{path}[{index}]")


def warning_header(texts: Sequence[str]) -> str:
    """One Warning header for all texts; names of fields come from the caller, so only printable
    ASCII goes in."""
    result = ""
    for text in texts:
        clean = "".join(c if " " <= c <= "~" else "?" for c in text)
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        more = f'{", " if result else ""}299 - "{escaped}"'
        if len(result) + len(more) > _WARNINGS_BYTES_MAX:
            break
        result += more
    return result
