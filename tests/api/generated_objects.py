"""Valid objects of any kind, drawn from its schema."""

from __future__ import annotations

import re
import string
from base64 import b64encode
from functools import cache
from typing import Any

from hypothesis import strategies as st

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import LIST_KEYS, LIST_TYPE
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import INT_OR_STRING, structural_schema

Drawn = st.SearchStrategy[Any]

_WORDS = st.text(string.ascii_letters + string.digits + "-. /", max_size=8)
# Larger integers on the wire are decoded as floats.
_NUMBERS = st.integers(-(2**63), 2**63 - 1)
_ANYTHING = st.dictionaries(_WORDS, _NUMBERS | _WORDS | st.booleans(), max_size=2)
_FORMATS = {
    "byte": st.binary(max_size=4).map(lambda value: b64encode(value).decode()),
    "date-time": st.just("2026-01-02T03:04:05Z"),
}
_MOST_ITEMS = 3
_MANY = 2**53


@cache
def objects_of(kind: KindInfo[Any]) -> st.SearchStrategy[JsonObject]:
    """Return a strategy for objects without metadata, which has its own rules."""
    schema = structural_schema(kind)
    identity = {"apiVersion": kind.api_version, "kind": kind.kind}
    own = {*identity, "metadata"}
    parts = {name: s for name, s in schema["properties"].items() if name not in own}
    required = [name for name in schema.get("required", ()) if name in parts]
    drawn = _fields({"properties": parts, "required": required})
    return drawn.map(lambda fields: {**identity, **fields})


def _values(schema: JsonObject) -> Drawn:
    if schema.get(INT_OR_STRING):
        return _numbers(schema) | _texts(schema)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return _objects(schema)
        case "array":
            return _lists(schema)
        case "string":
            return _texts(schema)
        case "integer":
            return _numbers(schema)
        case "boolean":
            return st.booleans()
        case other:
            assert other is None, f"no values of type {other} are drawn"
            return _ANYTHING


def _objects(schema: JsonObject) -> Drawn:
    if isinstance(schema.get("additionalProperties"), dict):
        return st.dictionaries(_WORDS, _values(schema["additionalProperties"]), max_size=2)
    return _fields(schema) if "properties" in schema else _ANYTHING


def _fields(schema: JsonObject) -> Drawn:
    drawn = {name: _values(inner) for name, inner in schema["properties"].items()}
    required = schema.get("required", ())
    return st.fixed_dictionaries(
        {name: values for name, values in drawn.items() if name in required},
        optional={name: values for name, values in drawn.items() if name not in required},
    )


def _lists(schema: JsonObject) -> Drawn:
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", _MOST_ITEMS), max(least, _MOST_ITEMS))
    keys = schema.get(LIST_KEYS)

    def identity(item: Any) -> str:
        return repr([item.get(key) for key in keys] if keys else item)

    is_unique = None if schema.get(LIST_TYPE) == "atomic" else identity
    return st.lists(_values(schema["items"]), min_size=least, max_size=most, unique_by=is_unique)


def _texts(schema: JsonObject) -> Drawn:
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", 50)
    if "pattern" in schema:
        drawn = st.from_regex(_limit_repetitions(schema["pattern"]).removesuffix("$") + r"\Z")
        return drawn.filter(lambda text: shortest <= len(text) <= longest)
    return st.text(min_size=shortest, max_size=min(longest, 10))


def _limit_repetitions(pattern: str) -> str:
    """Limit unbounded repetitions: long texts take time and cover no more cases."""

    def bounded(found: re.Match[str]) -> str:
        return {"*": "{0,3}", "+": "{1,3}"}.get(found[0], found[0])

    return re.sub(r"\\.|\[\^?\]?[^]]*\]|[*+]", bounded, pattern).replace(",}", "}")


def _numbers(schema: JsonObject) -> Drawn:
    return st.integers(schema.get("minimum", -_MANY), min(schema.get("maximum", _MANY), _MANY))
