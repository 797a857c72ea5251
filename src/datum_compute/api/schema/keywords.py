"""Checks of single values: enumerations, lengths, patterns, formats, ranges, numbers of entries.

Each ``_rule`` function compiles its keywords of a schema into a check, or returns None if the
schema does not contain them. A check ignores values of other types.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import PATTERN_DESCRIPTIONS
from datum_compute.api.meta.timestamps import normalize_time
from datum_compute.api.schema.derive import INT_OR_STRING
from datum_compute.api.schema.regex import compile_search
from datum_compute.api.schema.report import (
    HIDDEN,
    Check,
    ValidationReport,
    format_values,
)

# --- Checked formats of a schema. Other formats are only documentation
# To add a string format: a function that returns True for valid text, listed in ``FORMATS``. Number
# formats limit the range (``INTEGER_RANGES``, ``NUMBER_RANGES``). An integer without a known format
# must fit into 64 bits.


# Errors never contain values of these formats.
SECRET_FORMATS = ("byte", "password")

_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_HOST_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,24}(Z|[-+][0-9]{2}:[0-9]{2})")
_DURATION = re.compile(r"[-+]?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w) ?)+|0")
_SPACE = re.compile(r"\s")
_SHORT_CHARS_MAX = 320  # no valid value of a short format is longer


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        normalize_time(text)
    except ValueError:
        return False
    return True


def _is_address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme or parts.path.startswith("/")) and _SPACE.search(text) is None


def _is_hostname(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in labels)


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _short(fits: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a check that rejects long texts without reading them."""
    return lambda text: len(text) <= _SHORT_CHARS_MAX and fits(text)


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "byte": is_base64,
    "date-time": _short(is_date_time),
    "datetime": _short(is_date_time),
    "date": _short(_matches(_DATE)),
    "duration": _short(_matches(_DURATION)),
    "uuid": _short(_matches(_UUID)),
    "ipv4": _short(_is_address(4)),
    "ipv6": _short(_is_address(6)),
    "cidr": _short(_is_network),
    "mac": _short(_matches(_MAC)),
    "uri": _is_uri,
    "hostname": _short(_is_hostname),
    "email": _short(_matches(_EMAIL)),
}

Range = tuple[int | float, int | float]

ANY_INTEGER: Range = (-(2**63), 2**63 - 1)
INTEGER_RANGES: Mapping[str, Range] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": ANY_INTEGER,
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_FLOAT_MAX = (2 - 2**-23) * 2.0**127
NUMBER_RANGES: Mapping[str, Range] = dict.fromkeys(("float", "float32"), (-_FLOAT_MAX, _FLOAT_MAX))


# --- Rules


_STEPS_PER_FORMAT, _STEPS_PER_SLOW_FORMAT = 4, 16
_SLOW_FORMATS = ("ipv4", "ipv6", "cidr", "uri")
_CHARACTERS_PER_STEP = 32
_KEYWORDS = frozenset(
    {
        *("enum", "minLength", "maxLength", "pattern", "format", "minimum", "maximum"),
        *("multipleOf", "minItems", "maxItems", "minProperties", "maxProperties"),
    }
)


def has_value_rules(schema: JsonObject) -> bool:
    """Return True if the schema restricts a string or boolean by more than its type."""
    return not _KEYWORDS.isdisjoint(schema)


def value_rules(schema: JsonObject) -> tuple[Check, ...]:
    found = (
        _enum_rule(schema),
        _text_rule(schema),
        _format_rule(schema),
        _range_rule(schema),
        _number_rule(schema),
        _multiple_rule(schema),
        _entries_rule(schema),
    )
    return tuple(rule for rule in found if rule is not None)


def is_secret(schema: JsonObject) -> bool:
    """Return True if values of the schema, or of the map it describes, may be confidential."""
    others = schema.get("additionalProperties")
    inner = others.get("format") if isinstance(others, dict) else None
    return schema.get("format") in SECRET_FORMATS or inner in SECRET_FORMATS


def _enum_rule(schema: JsonObject) -> Check | None:
    allowed = schema.get("enum")
    if allowed is None:
        return None
    scalars, containers = _split_by_hashability(allowed)
    supported = f"supported values: {format_values(allowed)}"

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if isinstance(value, dict | list):
            report.budget.spend(len(containers), path)
            if value in containers:
                return
        elif value in scalars:
            return
        report.fail(Cause.unsupported(path, value, why=supported))

    return check


def _split_by_hashability(values: list[Any]) -> tuple[frozenset[Any], list[Any]]:
    """Return the scalars as a set, for look-up in constant time, and the containers as a list."""
    containers = [value for value in values if isinstance(value, dict | list)]
    return frozenset(value for value in values if not isinstance(value, dict | list)), containers


def _text_rule(schema: JsonObject) -> Check | None:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
    fits = compile_search(schema["pattern"]).find if "pattern" in schema else None
    pattern = schema.get("pattern", "")
    requirement = (
        f"must be {PATTERN_DESCRIPTIONS[pattern]}"
        if pattern in PATTERN_DESCRIPTIONS
        else f"should match '{pattern}'"
    )
    if not shortest and longest is None and fits is None:
        return None

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if not isinstance(value, str):
            return
        if len(value) < shortest:
            report.fail_invalid(path, value, f"should be at least {shortest} chars long")
        if longest is not None and len(value) > longest:
            why = f"may not be longer than {longest} chars"
            report.fail_invalid(path, value, why, "FieldValueTooLong")
        elif fits is not None and not fits(value, report.budget, path):
            report.fail_invalid(path, value, requirement)

    return check


def _format_rule(schema: JsonObject) -> Check | None:
    name = schema.get("format", "")
    fits = FORMATS.get(name)
    if fits is None:
        return None
    secret = name in SECRET_FORMATS
    steps = _STEPS_PER_SLOW_FORMAT if name in _SLOW_FORMATS else _STEPS_PER_FORMAT

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if not isinstance(value, str):
            return
        report.budget.spend(steps + len(value) // _CHARACTERS_PER_STEP, path)
        if not fits(value):
            word = "base64" if name == "byte" else name
            report.fail_invalid(path, HIDDEN if secret else value, f"must be valid {word}")

    return check


def _range_rule(schema: JsonObject) -> Check | None:
    """Check the range of a number of this type and format."""
    kind, name = schema.get("type"), schema.get("format", "")
    if schema.get(INT_OR_STRING):
        kind = "integer"
    found = NUMBER_RANGES.get(name) if kind == "number" else None
    if kind == "integer":
        found = INTEGER_RANGES.get(name, ANY_INTEGER)
    if found is None:
        return None
    (low, high), called = found, name if name in INTEGER_RANGES or kind == "number" else "int64"

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if isinstance(value, int | float) and not low <= value <= high:
            why = f"must be of type {kind} with format {called}, from {low} to {high}"
            report.fail_invalid(path, value, why)

    return check


def _number_rule(schema: JsonObject) -> Check | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is None and high is None:
        return None

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if not isinstance(value, int | float):
            return
        if low is not None and (value < low or (above and value == low)):
            report.fail_invalid(
                path, value, f"should be greater than {'' if above else 'or equal to '}{low}"
            )
        if high is not None and (value > high or (below and value == high)):
            report.fail_invalid(
                path, value, f"should be less than {'' if below else 'or equal to '}{high}"
            )

    return check


def _multiple_rule(schema: JsonObject) -> Check | None:
    step = schema.get("multipleOf")
    if not step:
        return None

    def check(value: Any, path: str, report: ValidationReport) -> None:
        if isinstance(value, int | float) and (value / step) % 1:
            report.fail_invalid(path, value, f"should be a multiple of {step}")

    return check


def _entries_rule(schema: JsonObject) -> Check | None:
    least_items, most_items = schema.get("minItems", 0), schema.get("maxItems")
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    if not (least_items or least) and most_items is None and most is None:
        return None

    def check(value: Any, path: str, report: ValidationReport) -> None:
        match value:
            case list():
                check_count(len(value), least_items, most_items, "items", path, report)
            case dict():
                check_count(len(value), least, most, "properties", path, report)

    return check


def check_count(
    found: int, least: int, most: int | None, what: str, path: str, report: ValidationReport
) -> None:
    if found < least:
        report.fail_invalid(path, found, f"should have at least {least} {what}")
    if most is not None and found > most:
        report.fail_invalid(path, found, f"should have at most {most} {what}")
