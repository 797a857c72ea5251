"""A faster check of values that are valid, and a cache of check results by content.

Almost all values that are sent are valid. ``compile_fast_check`` returns a check that only detects
whether a value is valid: it builds no paths and copies only parts that defaults change. At the
first error it stops, and the check of ``validate.py`` runs from the start. The fast check never
accepts a value that the full check rejects; both use the same rules for single values. Rare
keywords (anyOf, nullable, embedded objects) always use the full check.

Creating an Instance of 2 KB whose spec is not cached takes a quarter more time with the full check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import orjson

from datum_compute.api.errors import Invalid, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.schema.derive import EMBEDDED, INT_OR_STRING, PRESERVE
from datum_compute.api.schema.keywords import ANY_INTEGER, INTEGER_RANGES, value_rules
from datum_compute.api.schema.report import (
    DEFAULT_BYTES_MAX,
    STEPS_MAX,
    Check,
    CheckBudget,
    NeedsFullCheck,
    ValidationReport,
)
from datum_compute.api.schema.validate import (
    STEPS_PER_KEYED_ITEM,
    Compiler,
    FieldChecks,
    check_unique,
    default_size,
    list_keys,
    plain_type,
)

# --- Cache by content
# The instances of a template have equal specs. Encoding a value takes a fiftieth of the time of
# checking it. The cache contains only encoded values, so that no caller can change them, and only
# small ones. It is cleared when it is full.


V = TypeVar("V")

VALUES_MAX = 32
VALUE_BYTES_MAX = 8 * 1024


def key_of(value: Any) -> bytes:
    """Return the cache key of a value, or empty bytes for a value that is not cached."""
    try:
        key = orjson.dumps(value)
    except orjson.JSONEncodeError:  # numbers and strings that JSON cannot represent
        return b""
    return key if len(key) <= VALUE_BYTES_MAX else b""


class ContentCache(Generic[V]):
    """Results by the content of a value. Results for an empty key are not stored."""

    def __init__(self) -> None:
        self._results: dict[bytes, V] = {}

    def get_or_compute(self, value: Any, make: Callable[[Any], V]) -> V:
        """Return ``make(value)``, computed once for equal values."""
        key = key_of(value)
        known = self._results.get(key)
        if known is None:
            known = make(value)
            self.put(key, known)
        return known

    def get(self, key: bytes) -> V | None:
        return self._results.get(key)

    def put(self, key: bytes, value: V) -> None:
        if not key:
            return
        if len(self._results) >= VALUES_MAX:
            self._results.clear()
        self._results[key] = value


# --- Fast check


# Returns the value as it is stored, or raises NeedsFullCheck.
Fit = Callable[[Any, ValidationReport], Any]

_FULL_CHECK_KEYWORDS = ("nullable", "allOf", "anyOf", "oneOf", "not", EMBEDDED)
_LENGTH_KEYWORDS = frozenset({"minLength", "maxLength"})
_STRING_KEYWORDS = _LENGTH_KEYWORDS | {"enum", "pattern", "format"}  # all keywords of a string
_NUMBER_KEYWORDS = frozenset({"enum", "minimum", "maximum", "multipleOf", INT_OR_STRING})
_INT_OR_STRING_TYPES = [{"type": "integer"}, {"type": "string"}]
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


_UNCHANGED = b"="  # no JSON value
_FAST_DIVISOR = 8  # the fast check has this fraction of the budget of the full check
_CACHED_BYTES_MAX = 4 * VALUE_BYTES_MAX  # of a value with its defaults


def compile_fast_check(schema: JsonObject) -> Check:
    """Return a check that is equal to ``compile_check(schema)`` and faster for valid values."""
    compiler = Compiler()
    full, fast = compiler.check(schema), _whole_fit(schema, compiler)

    def check(value: Any, path: str, report: ValidationReport) -> Any:
        try:
            return fast(value, _fast_report())
        except (NeedsFullCheck, Invalid, RequestEntityTooLarge):
            return full(value, path, report)

    return check


def _fast_report() -> ValidationReport:
    """Return a report that stops the fast check at the first error, or above a small budget."""
    budget = CheckBudget(STEPS_MAX // _FAST_DIVISOR, DEFAULT_BYTES_MAX // _FAST_DIVISOR)
    return ValidationReport(budget=budget, fail_fast=True)


def _whole_fit(schema: JsonObject, compiler: Compiler) -> Fit:
    """Compile the schema of a whole object. Results for its parts are cached."""
    if schema.get("type") != "object" or any(keyword in schema for keyword in _FULL_CHECK_KEYWORDS):
        return _fit(schema, compiler)
    return _with_rules(_object_fit(schema, compiler, _cached_fit), value_rules(schema))


def _cached_fit(schema: JsonObject, compiler: Compiler) -> Fit:
    """Compile a part of an object, with a cache of its results.

    A result that defaults changed is cached as bytes, so that each object gets its own copy.
    """
    fit, results = _fit(schema, compiler), ContentCache[bytes]()
    if schema.get("type") != "object" or not schema.get("properties"):
        return fit

    def fit_or_reuse(value: Any, report: ValidationReport) -> Any:
        key = key_of(value)
        known = results.get(key)
        if known is not None:
            return value if known == _UNCHANGED else decode(known)
        fitted = fit(value, report)
        kept = _UNCHANGED if fitted is value or not key else encode(fitted)
        if len(kept) <= _CACHED_BYTES_MAX:
            results.put(key, kept)
        return fitted

    return fit_or_reuse


def _fit(schema: JsonObject, compiler: Compiler) -> Fit:
    kind = schema.get("type")
    if _is_int_or_text(schema):
        return _ruled_fit((int, str), value_rules(schema))
    if any(keyword in schema for keyword in _FULL_CHECK_KEYWORDS):
        return _full_check(schema, compiler)
    if kind in _SCALARS:
        return _scalar_fit(schema)
    if kind in ("object", "array"):
        inner = (_object_fit if kind == "object" else _array_fit)(schema, compiler)
        return _with_rules(inner, value_rules(schema))
    return _full_check(schema, compiler)


def _full_check(schema: JsonObject, compiler: Compiler) -> Fit:
    full = compiler.check(schema)
    return lambda value, report: full(value, "", report)


def _with_rules(inner: Fit, rules: tuple[Check, ...]) -> Fit:
    if not rules:
        return inner

    def fit(value: Any, report: ValidationReport) -> Any:
        result = inner(value, report)
        for rule in rules:
            rule(result, "", report)
        return result

    return fit


def _is_int_or_text(schema: JsonObject) -> bool:
    """Return True for the form in which Kubernetes declares an integer or a string."""
    present = [name for name in ("type", "format", *_FULL_CHECK_KEYWORDS) if name in schema]
    is_union = present == ["anyOf"] and schema["anyOf"] == _INT_OR_STRING_TYPES
    return bool(schema.get(INT_OR_STRING)) and is_union


def _scalar_fit(schema: JsonObject) -> Fit:
    keywords = schema.keys() & _STRING_KEYWORDS
    if schema["type"] == "string" and keywords <= _LENGTH_KEYWORDS:
        return _text_fit(schema)
    if schema["type"] == "string" and keywords == {"enum"}:
        return _choice_fit(schema["enum"])
    if schema["type"] == "integer" and not schema.keys() & _NUMBER_KEYWORDS:
        return _number_fit(*INTEGER_RANGES.get(schema.get("format", ""), ANY_INTEGER))
    return _ruled_fit(_SCALARS[schema["type"]], value_rules(schema))


def _choice_fit(allowed: list[Any]) -> Fit:
    texts = frozenset(value for value in allowed if isinstance(value, str))

    def fit(value: Any, _report: ValidationReport) -> Any:
        if type(value) is not str or value not in texts:
            raise NeedsFullCheck
        return value

    return fit


def _number_fit(low: float, high: float) -> Fit:
    """Accept integers in the range of their format."""

    def fit(value: Any, _report: ValidationReport) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise NeedsFullCheck
        return value

    return fit


def _ruled_fit(expected: tuple[type, ...], rules: tuple[Check, ...]) -> Fit:
    def fit(value: Any, report: ValidationReport) -> Any:
        if type(value) not in expected:
            raise NeedsFullCheck
        for rule in rules:
            rule(value, "", report)
        return value

    return fit


def _text_fit(schema: JsonObject) -> Fit:
    """Accept strings by their length. They are the most frequent values."""
    shortest, limit = schema.get("minLength") or 0, schema.get("maxLength")
    longest = sys.maxsize if limit is None else limit

    def fit(value: Any, _report: ValidationReport) -> Any:
        if type(value) is not str or not shortest <= len(value) <= longest:
            raise NeedsFullCheck
        return value

    return fit


def _object_fit(
    schema: JsonObject,
    compiler: Compiler,
    part: Callable[[JsonObject, Compiler], Fit] | None = None,
) -> Fit:
    """Compile an object. ``part`` compiles its fields instead of ``_fit``."""
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields and schema.get(PRESERVE) and not schema.get("required") and others is None:
        return _accept_any_object  # metadata, which other rules check
    make = part or _fit
    fits = FieldChecks(fields, lambda field: make(field, compiler))
    other = _fit(others, compiler) if isinstance(others, dict) else None
    # Fields of which the schema requires only this type. Most fields are such.
    plain = {name: plain_type(field) for name, field in fields.items()}
    plain_other = plain_type(others) if isinstance(others, dict) else None
    keeps_unknown = bool(schema.get(PRESERVE)) or others is True
    defaults = {
        name: (_default_of(name, field, fits, compiler), default_size(name, field["default"]))
        for name, field in fields.items()
        if "default" in field
    }
    required = frozenset(name for name in schema.get("required", ()) if name not in defaults)
    steps = len(defaults)

    def fit(value: Any, report: ValidationReport) -> Any:
        if type(value) is not dict:
            raise NeedsFullCheck
        changes: JsonObject = {}
        for name, item in value.items():
            if type(item) is plain.get(name, plain_other):
                continue
            if item is None and name in fields:
                raise NeedsFullCheck  # null means absent, and a default may take its place
            inner = fits[name] if name in fields else other
            if inner is not None:
                kept = inner(item, report)
                if kept is not item:
                    changes[name] = kept
            elif not keeps_unknown:
                raise NeedsFullCheck
        if not required <= value.keys():
            raise NeedsFullCheck
        if defaults:
            budget = report.budget
            budget.steps_left -= (
                steps  # without a call, because this runs for each object of a write
            )
            for name, (default, size_bytes) in defaults.items():
                if name not in value:
                    budget.default_bytes_left -= size_bytes
                    changes[name] = default(report)
            if budget.steps_left < 0 or budget.default_bytes_left < 0:
                raise NeedsFullCheck
        return {**value, **changes} if changes else value

    return fit


def _accept_any_object(value: Any, _report: ValidationReport) -> Any:
    if type(value) is not dict:
        raise NeedsFullCheck
    return value


def _default_of(
    name: str, field: JsonObject, fits: FieldChecks[Fit], compiler: Compiler
) -> Callable[[ValidationReport], Any]:
    """Return a function that returns the default of a field. Objects and lists are copied."""
    default = field["default"]
    if not isinstance(default, dict | list):
        return lambda report: fits[name](default, report)
    return lambda report: compiler.check(field)(default, "", report)


def _array_fit(schema: JsonObject, compiler: Compiler) -> Fit:
    items = schema.get("items", {})
    inner, plain = _fit(items, compiler), plain_type(items)
    check = _compile_uniqueness(schema)
    items_max = schema.get("maxItems", sys.maxsize)

    def fit(value: Any, report: ValidationReport) -> Any:
        if type(value) is not list or len(value) > items_max:
            raise NeedsFullCheck
        result = [item if type(item) is plain else inner(item, report) for item in value]
        if check is not None:
            check(result, report)
        return result

    return fit


def _compile_uniqueness(schema: JsonObject) -> Callable[[list[Any], ValidationReport], None] | None:
    """Return the check that the items of a map or set list are unique, or None."""
    keys, items = list_keys(schema), schema.get("items", {})
    if keys is None:
        return None
    if keys == () and items.get("type") == "string":
        return _check_unique_texts
    if len(keys) == 1 and _key_is_required_string(items, keys[0]):
        (key,) = keys
        return lambda found, report: _check_unique_keys(key, found, report)
    return lambda found, report: check_unique(found, keys, "", report)


def _check_unique_keys(key: str, items: list[Any], report: ValidationReport) -> None:
    report.budget.spend(len(items) * STEPS_PER_KEYED_ITEM, "")
    _check_unique_texts([item[key] for item in items], report)


def _key_is_required_string(schema: JsonObject, name: str) -> bool:
    field = schema.get("properties", {}).get(name, {})
    has = name in schema.get("required", ()) or "default" in field
    never_null = not (schema.get("nullable") or field.get("nullable"))
    return never_null and has and (schema.get("type"), field.get("type")) == ("object", "string")


def _check_unique_texts(texts: list[str], _report: ValidationReport) -> None:
    if len(set(texts)) < len(texts):
        raise NeedsFullCheck
