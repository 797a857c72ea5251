"""The quick way through a structural schema, for values that fit it.

Nearly every object that is written fits its schema. ``compile_fast_check(schema)`` looks for no
more than that: it makes no paths, keeps no report and copies only what defaults change. At the
first thing that is
not as it should be it gives up, and the check of ``structural.py`` says what is wrong; that one
defines what is right, and this one may never accept what it would not. The rules for single values
are the very same ones. What is rare (anyOf, nullable, embedded objects, ...) goes the long way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

import orjson

from datum_compute.api.errors import Invalid, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.schema.derive import EMBEDDED, INT_OR_STRING, PRESERVE
from datum_compute.api.schema.keywords import ANY_INTEGER, INTEGER_RANGES, value_rules
from datum_compute.api.schema.report import DEFAULT_BYTES_MAX, STEPS_MAX, Check, CheckBudget, Report
from datum_compute.api.schema.validate import (
    STEPS_PER_KEYED_ITEM,
    Compiler,
    FieldChecks,
    check_unique,
    default_size,
    list_keys,
    plain_type,
)

# --- What pure functions made of JSON values that come again: the spec of all replicas of a
# template Looking at the bytes of a value costs a fiftieth of walking through it. The value itself
# is never
# kept, only its bytes, so nobody can change what is remembered; equal bytes are equal values. Few
# and small values are kept, and all are forgotten when there are too many.


V = TypeVar("V")

VALUES_MAX = 32
VALUE_BYTES_MAX = 8 * 1024


def key_of(value: Any) -> bytes:
    """The bytes under which something is remembered; empty for what is not worth it."""
    try:
        key = orjson.dumps(value)
    except orjson.JSONEncodeError:  # numbers and texts that JSON has no bytes for
        return b""
    return key if len(key) <= VALUE_BYTES_MAX else b""


class ContentCache(Generic[V]):
    """Values by key. A key is empty when there is none to be kept."""

    def __init__(self) -> None:
        self._known: dict[bytes, V] = {}

    def recalled(self, value: Any, make: Callable[[Any], V]) -> V:
        """What ``make`` makes of a value, made once for equal values."""
        key = key_of(value)
        known = self._known.get(key)
        if known is None:
            known = make(value)
            self.put(key, known)
        return known

    def get(self, key: bytes) -> V | None:
        return self._known.get(key)

    def put(self, key: bytes, value: V) -> None:
        if not key:
            return
        if len(self._known) >= VALUES_MAX:
            self._known.clear()
        self._known[key] = value


# --- quickcheck


# Returns the value as it should be stored, or raises _Misfit. The report raises at the
# first error; the fit spends its budget.
Fit = Callable[[Any, Report], Any]

_LONG_WAY = ("nullable", "allOf", "anyOf", "oneOf", "not", EMBEDDED)
_OF_LENGTH = frozenset({"minLength", "maxLength"})
_OF_VALUES = _OF_LENGTH | {"enum", "pattern", "format"}  # all that can be asked of a text
_OF_NUMBERS = frozenset({"enum", "minimum", "maximum", "multipleOf", INT_OR_STRING})
_EITHER = [{"type": "integer"}, {"type": "string"}]  # what anyOf says of an integer or a text
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


_AS_IT_IS = b"="  # no JSON
_QUICK_DIVISOR = 8  # the quick check may do this fraction of the work of the careful one
_CACHED_BYTES_MAX = 4 * VALUE_BYTES_MAX  # of a value with its defaults


class NeedsFullCheck(Exception):
    """The value must be looked at with care."""


class _Refusal(list[Any]):
    """Where a rule would put what it found: the first find ends the quick way."""

    def append(self, _found: Any) -> NoReturn:
        raise NeedsFullCheck

    def __iadd__(self, found: Any) -> _Refusal:  # type: ignore[misc]
        if found:
            raise NeedsFullCheck
        return self


_NO_ERRORS, _NO_UNKNOWN = _Refusal(), _Refusal()


def compile_fast_check(schema: JsonObject) -> Check:
    """The same check as ``compiled(schema)``, sooner done with a value that fits."""
    compiler = Compiler()
    careful, fit = compiler.check(schema), _whole_fit(schema, compiler)

    def check(value: Any, path: str, report: Report) -> Any:
        try:
            return fit(value, refusing_report())
        except (NeedsFullCheck, Invalid, RequestEntityTooLarge):
            return careful(value, path, report)

    return check


def refusing_report() -> Report:
    """Return a report that stops the quick check at the first error or above a small budget. Then
    the careful check, which can name the field, runs from the start."""
    budget = CheckBudget(STEPS_MAX // _QUICK_DIVISOR, DEFAULT_BYTES_MAX // _QUICK_DIVISOR)
    return Report(_NO_ERRORS, _NO_UNKNOWN, budget)


def _whole_fit(schema: JsonObject, compiler: Compiler) -> Fit:
    """As ``_fit``, for a whole object: its large parts are remembered."""
    if schema.get("type") != "object" or any(keyword in schema for keyword in _LONG_WAY):
        return _fit(schema, compiler)
    return _with_rules(_object_fit(schema, compiler, _remembering), value_rules(schema))


def _remembering(schema: JsonObject, compiler: Compiler) -> Fit:
    """The fit of a part of an object, worked out once for equal values. What defaults changed is
    kept as bytes: every object gets a value of its own."""
    fit, remembered = _fit(schema, compiler), ContentCache[bytes]()
    if schema.get("type") != "object" or not schema.get("properties"):
        return fit

    def remembering(value: Any, report: Report) -> Any:
        key = key_of(value)
        known = remembered.get(key)
        if known is not None:
            return value if known == _AS_IT_IS else decode(known)
        fitted = fit(value, report)
        kept = _AS_IT_IS if fitted is value or not key else encode(fitted)
        if len(kept) <= _CACHED_BYTES_MAX:
            remembered.put(key, kept)
        return fitted

    return remembering


def _fit(schema: JsonObject, compiler: Compiler) -> Fit:
    kind = schema.get("type")
    if _is_int_or_text(schema):
        return _ruled_fit((int, str), value_rules(schema))
    if any(keyword in schema for keyword in _LONG_WAY):
        return _long_way(schema, compiler)
    if kind in _SCALARS:
        return _scalar_fit(schema)
    if kind in ("object", "array"):
        inner = (_object_fit if kind == "object" else _array_fit)(schema, compiler)
        return _with_rules(inner, value_rules(schema))
    return _long_way(schema, compiler)


def _long_way(schema: JsonObject, compiler: Compiler) -> Fit:
    careful = compiler.check(schema)
    return lambda value, report: careful(value, "", report)


def _with_rules(inner: Fit, rules: tuple[Check, ...]) -> Fit:
    if not rules:
        return inner

    def fit(value: Any, report: Report) -> Any:
        result = inner(value, report)
        for rule in rules:
            rule(result, "", report)
        return result

    return fit


def _is_int_or_text(schema: JsonObject) -> bool:
    """Whether it is one of either, said the way that Kubernetes has for it, and nothing else that
    could mean more than that."""
    said = [keyword for keyword in ("type", "format", *_LONG_WAY) if keyword in schema]
    return bool(schema.get(INT_OR_STRING)) and said == ["anyOf"] and schema["anyOf"] == _EITHER


def _scalar_fit(schema: JsonObject) -> Fit:
    asked = schema.keys() & _OF_VALUES
    if schema["type"] == "string" and asked <= _OF_LENGTH:
        return _text_fit(schema)
    if schema["type"] == "string" and asked == {"enum"}:
        return _choice_fit(schema["enum"])
    if schema["type"] == "integer" and not schema.keys() & _OF_NUMBERS:
        return _number_fit(*INTEGER_RANGES.get(schema.get("format", ""), ANY_INTEGER))
    return _ruled_fit(_SCALARS[schema["type"]], value_rules(schema))


def _choice_fit(allowed: list[Any]) -> Fit:
    texts = frozenset(value for value in allowed if isinstance(value, str))

    def fit(value: Any, _report: Report) -> Any:
        if type(value) is not str or value not in texts:
            raise NeedsFullCheck
        return value

    return fit


def _number_fit(low: float, high: float) -> Fit:
    """Whole numbers that need only be as large as their format allows."""

    def fit(value: Any, _report: Report) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise NeedsFullCheck
        return value

    return fit


def _ruled_fit(expected: tuple[type, ...], rules: tuple[Check, ...]) -> Fit:
    def fit(value: Any, report: Report) -> Any:
        if type(value) not in expected:
            raise NeedsFullCheck
        for rule in rules:
            rule(value, "", report)
        return value

    return fit


def _text_fit(schema: JsonObject) -> Fit:
    """Texts of which nothing but the length is asked, the most frequent values of all."""
    shortest, said = schema.get("minLength") or 0, schema.get("maxLength")
    longest = sys.maxsize if said is None else said

    def fit(value: Any, _report: Report) -> Any:
        if type(value) is not str or not shortest <= len(value) <= longest:
            raise NeedsFullCheck
        return value

    return fit


def _object_fit(
    schema: JsonObject,
    compiler: Compiler,
    part: Callable[[JsonObject, Compiler], Fit] | None = None,
) -> Fit:
    """``part`` makes the fit of each field, if not ``_fit`` does."""
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    if not fields and schema.get(PRESERVE) and not schema.get("required") and others is None:
        return _anything_inside  # metadata, which has rules of its own
    make = part or _fit
    fits = FieldChecks(fields, lambda field: make(field, compiler))
    other = _fit(others, compiler) if isinstance(others, dict) else None
    # The type that is all a field must have: most fields need no more than a look at that.
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

    def fit(value: Any, report: Report) -> Any:
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
            budget.steps_left -= steps  # without a call: every object of a write comes through here
            for name, (default, size_bytes) in defaults.items():
                if name not in value:
                    budget.default_bytes_left -= size_bytes
                    changes[name] = default(report)
            if budget.steps_left < 0 or budget.default_bytes_left < 0:
                raise NeedsFullCheck
        return {**value, **changes} if changes else value

    return fit


def _anything_inside(value: Any, _report: Report) -> Any:
    if type(value) is not dict:
        raise NeedsFullCheck
    return value


def _default_of(
    name: str, field: JsonObject, fits: FieldChecks[Fit], compiler: Compiler
) -> Callable[[Report], Any]:
    """Makes the default of a field; one with parts is made anew for every object."""
    default = field["default"]
    if not isinstance(default, dict | list):
        return lambda report: fits[name](default, report)
    return lambda report: compiler.check(field)(default, "", report)


def _array_fit(schema: JsonObject, compiler: Compiler) -> Fit:
    items = schema.get("items", {})
    inner, plain = _fit(items, compiler), plain_type(items)
    check = _uniqueness(schema)
    items_max = schema.get("maxItems", sys.maxsize)

    def fit(value: Any, report: Report) -> Any:
        if type(value) is not list or len(value) > items_max:
            raise NeedsFullCheck
        result = [item if type(item) is plain else inner(item, report) for item in value]
        if check is not None:
            check(result, report)
        return result

    return fit


def _uniqueness(schema: JsonObject) -> Callable[[list[Any], Report], None] | None:
    """The items of a map or a set differ. Texts are compared as they are, all else as JSON."""
    keys, items = list_keys(schema), schema.get("items", {})
    if keys is None:
        return None
    if keys == () and items.get("type") == "string":
        return _differ
    if len(keys) == 1 and _always_has_text(items, keys[0]):
        (key,) = keys
        return lambda found, report: _have_different(key, found, report)
    return lambda found, report: check_unique(found, keys, "", report)


def _have_different(key: str, items: list[Any], report: Report) -> None:
    report.budget.spend(len(items) * STEPS_PER_KEYED_ITEM, "")
    _differ([item[key] for item in items], report)


def _always_has_text(schema: JsonObject, name: str) -> bool:
    field = schema.get("properties", {}).get(name, {})
    has = name in schema.get("required", ()) or "default" in field
    never_null = not (schema.get("nullable") or field.get("nullable"))
    return never_null and has and (schema.get("type"), field.get("type")) == ("object", "string")


def _differ(texts: list[str], _report: Report) -> None:
    if len(set(texts)) < len(texts):
        raise NeedsFullCheck
