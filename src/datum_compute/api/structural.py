"""Validate, prune and default an object in one walk over its structural schema.

``compiled(schema)`` turns a schema into nested closures once; calling the result returns the
pruned and defaulted value and fills a Report. A value with an error is returned as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.schema import INT_OR_STRING, PRESERVE

Check = Callable[[Any, str, "Report"], Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(slots=True)
class Report:
    """What a walk found: errors by field, and the unknown fields it dropped."""

    errors: list[Cause] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def invalid(self, path: str, value: Any, why: str) -> None:
        self.errors.append(
            Cause(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")
        )


def compiled(schema: JsonObject) -> Check:
    """The check of one schema node."""
    if schema.get(INT_OR_STRING):
        return _int_or_string_check(schema)
    kind = schema.get("type")
    inner = {"object": _object_check, "array": _array_check}.get(str(kind), _scalar_check)(schema)
    if kind is None:
        return inner
    expected = _TYPES[kind]

    def check(value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            report.invalid(path, value, f"must be of type {kind}")
            return value
        return inner(value, path, report)

    return check


def _object_check(schema: JsonObject) -> Check:
    properties = {name: compiled(s) for name, s in schema.get("properties", {}).items()}
    defaults = {n: s["default"] for n, s in schema.get("properties", {}).items() if "default" in s}
    required = tuple(schema.get("required", ()))
    others = schema.get("additionalProperties")
    other = compiled(others) if isinstance(others, dict) else None
    keep = bool(schema.get(PRESERVE)) or not (properties or other)

    def check(value: JsonObject, path: str, report: Report) -> JsonObject:
        result: JsonObject = {}
        for name, item in value.items():
            rule = properties.get(name, other)
            if item is None and name in properties:
                continue  # null means absent, so that a default can take its place
            if rule is not None:
                result[name] = rule(item, _joined(path, name), report)
            elif keep:
                result[name] = item
            else:
                report.unknown.append(_joined(path, name))
        for name, default in defaults.items():
            if name not in result:
                result[name] = properties[name](default, _joined(path, name), report)
        for name in required:
            if name not in result:
                report.errors.append(
                    Cause(_joined(path, name), "FieldValueRequired", "Required value")
                )
        return result

    return check


def _array_check(schema: JsonObject) -> Check:
    item_check = compiled(schema.get("items", {}))
    at_least, at_most = schema.get("minItems", 0), schema.get("maxItems")
    keys = _list_keys(schema)

    def check(value: list[Any], path: str, report: Report) -> list[Any]:
        if len(value) < at_least:
            report.invalid(path, value, f"should have at least {at_least} items")
        if at_most is not None and len(value) > at_most:
            report.invalid(path, len(value), f"should have at most {at_most} items")
        result = [item_check(v, f"{path}[{i}]", report) for i, v in enumerate(value)]
        if keys is not None:
            _check_unique(result, keys, path, report)
        return result

    return check


def _list_keys(schema: JsonObject) -> tuple[str, ...] | None:
    """Key fields of a map list, the empty tuple for a set, None for an atomic list."""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return tuple(schema["x-kubernetes-list-map-keys"])
        case "set":
            return ()
        case _:
            return None


def _check_unique(items: list[Any], keys: tuple[str, ...], path: str, report: Report) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        identity = {k: item.get(k) for k in keys} if keys and isinstance(item, dict) else item
        text = repr(identity)
        if text in seen:
            report.errors.append(
                Cause(
                    f"{path}[{index}]",
                    "FieldValueDuplicate",
                    f"Duplicate value: {_shown(identity)}",
                )
            )
        seen.add(text)


def _int_or_string_check(schema: JsonObject) -> Check:
    """Limits of numbers hold for a number, limits of texts for a text."""
    text, number = _text(schema), _number(schema)

    def check(value: Any, path: str, report: Report) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | str):
            report.invalid(path, value, "must be a whole number or a string")
            return value
        rule = text if isinstance(value, str) else number
        if rule is not None:
            rule(value, path, report)
        return value

    return check


def _scalar_check(schema: JsonObject) -> Check:
    rules = [rule for rule in (_enum(schema), _text(schema), _number(schema)) if rule is not None]

    def check(value: Any, path: str, report: Report) -> Any:
        for rule in rules:
            rule(value, path, report)
        return value

    return check


def _enum(schema: JsonObject) -> Check | None:
    allowed = schema.get("enum")
    if allowed is None:
        return None
    listed = ", ".join(_shown(a) for a in allowed)

    def check(value: Any, path: str, report: Report) -> None:
        if value not in allowed:
            message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
            report.errors.append(Cause(path, "FieldValueNotSupported", message))

    return check


def _text(schema: JsonObject) -> Check | None:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
    pattern = _whole_text(schema["pattern"]) if "pattern" in schema else None
    if not shortest and longest is None and pattern is None:
        return None

    def check(value: str, path: str, report: Report) -> None:
        if len(value) < shortest:
            report.invalid(path, value, f"should be at least {shortest} chars long")
        if longest is not None and len(value) > longest:
            # Not matched as well: a pattern may take long over a text that it was not made for.
            report.invalid(path, value, f"may not be longer than {longest} chars")
        elif pattern is not None and not pattern.search(value):
            report.invalid(path, value, f"should match '{schema['pattern']}'")

    return check


def _whole_text(pattern: str) -> re.Pattern[str]:
    """In a schema ``$`` ends the text; Python's would also allow a line break after it."""
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)


def _number(schema: JsonObject) -> Check | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return None

    def check(value: float, path: str, report: Report) -> None:
        if low is not None and value < low:
            report.invalid(path, value, f"should be greater than or equal to {low}")
        if high is not None and value > high:
            report.invalid(path, value, f"should be less than or equal to {high}")

    return check


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    """The value as people should see it in an error: short, quoted where it is text."""
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
