"""Fields that keep their first value, for every kind: read off the rules that its schema carries.

A real API server evaluates those rules itself; this is the same for the embedded one. As there, a
field is compared with its defaults filled in, so that a new default changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import IMMUTABLE_RULE, VALIDATIONS
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import Check, Report, compiled


@dataclass(frozen=True, slots=True)
class ImmutableField:
    path: tuple[str, ...]
    message: str
    check: Check

    def value_in(self, obj: JsonObject) -> Any:
        """The value with its defaults, or None where there is none."""
        value: Any = obj
        for name in self.path:
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else self.check(value, "", Report())


def immutable_fields_stay(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    if old is None:
        return
    report = Report()
    for field in _immutable_fields(kind):
        before, now = field.value_in(old), field.value_in(new)
        if before is not None and now is not None and before != now:
            said = f' (it is "{before}")' if isinstance(before, str) else ""
            report.invalid(".".join(field.path), now, field.message + said)
    yield from report.errors


@cache
def _immutable_fields(kind: KindInfo[Any]) -> tuple[ImmutableField, ...]:
    return tuple(_found(structural_schema(kind), ()))


def _found(schema: JsonObject, path: tuple[str, ...]) -> Iterator[ImmutableField]:
    for rule in schema.get(VALIDATIONS, ()):
        if rule["rule"] == IMMUTABLE_RULE:
            yield ImmutableField(path, rule["message"], compiled(schema))
    for name, inner in schema.get("properties", {}).items():
        yield from _found(inner, (*path, name))
