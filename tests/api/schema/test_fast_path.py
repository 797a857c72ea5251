"""The fast check of a schema has the same result as the full check, with and without cache."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datum_compute.api.errors import Cause
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import EMBEDDED, INT_OR_STRING, PRESERVE, structural_schema
from datum_compute.api.schema.fast_path import (
    VALUE_BYTES_MAX,
    VALUES_MAX,
    ContentCache,
    Fit,
    _fast_report,
    _fit,
    compile_fast_check,
    key_of,
)
from datum_compute.api.schema.report import Check, ValidationReport
from datum_compute.api.schema.validate import Compiler, compile_check, object_schema
from tests.api.generated_objects import objects_of

NAMES = ("a", "b", "name", "spec", "kind")
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([1.0, "", "a", "b", "Z"])
SCALARS |= st.sampled_from([2**31, -(2**31) - 1, 2**63, 1e39])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=12,
)
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
EITHER = {INT_OR_STRING: True, "anyOf": [NUMBER, TEXT]}
BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SET = {"x-kubernetes-list-type": "set"}
NAMED = {"type": "object", "properties": {"name": TEXT, "a": NUMBER}}

# Schemas of the fields a and b.
SCHEMAS: list[tuple[JsonObject, JsonObject]] = [
    (TEXT, NUMBER),
    ({**TEXT, "minLength": 1, "default": "b"}, {"type": "number", "minimum": 0}),
    ({**TEXT, "nullable": True}, {**TEXT, "nullable": True, "default": "a"}),
    ({**TEXT, "enum": ["a", "b"]}, {"type": "boolean", "default": False}),
    ({**TEXT, "pattern": "^a+$"}, {**TEXT, "default": "too long", "maxLength": 2}),
    ({INT_OR_STRING: True}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ({**EITHER, "minimum": 1, "pattern": "^a+$"}, {**EITHER, "format": "uint64"}),
    ({"type": "object", PRESERVE: True}, {PRESERVE: True, "default": {"a": [1]}}),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object"}),
    ({"type": "object", "additionalProperties": True}, {**TEXT, "not": {}}),
    ({"type": "object", "additionalProperties": {**NAMED, "default": {}}}, {}),
    ({"type": "object", "minProperties": 1, PRESERVE: True}, {"type": "array", "maxItems": 1}),
    ({**NAMED, "required": ["name"], "default": {"name": "a"}}, {**NAMED, EMBEDDED: True}),
    ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, {"required": ["a"]}),
    ({"type": "array", "items": {}, "x-kubernetes-list-type": "set"}, {"items": NUMBER}),
    ({"type": "array", "items": {**NAMED, "required": ["name"]}, **BY_NAME}, NUMBER),
    ({"type": "array", "items": NAMED, **BY_NAME}, {"type": "array", "default": ["a"]}),
    (
        {"type": "array", "items": {**NAMED, "required": ["name"], "nullable": True}, **BY_NAME},
        {"type": "array", "items": {"type": "string", "nullable": True}, **SET},
    ),
    ({**NUMBER, "format": "int32"}, {"type": "number", "format": "float"}),
    ({**NUMBER, "oneOf": [{"minimum": 1}, {"maximum": 2}]}, {**NUMBER, "allOf": [{"minimum": 1}]}),
]


def run_check(check: Check, value: Any) -> tuple[str, list[Cause], list[str]]:
    """Return the result as text, in which 1, 1.0 and true differ."""
    report = ValidationReport()
    return json.dumps(check(value, "here", report)), report.errors, report.unknown


@pytest.mark.parametrize("fields", SCHEMAS, ids=str)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_fast_check_equals_the_full_check_for_any_schema_and_value(
    fields: tuple[JsonObject, JsonObject], data: st.DataObject
) -> None:
    parts = dict(zip(("a", "b"), fields, strict=True))
    for required in ([], ["a"], ["a", "b"]):
        schema = {"type": "object", "properties": parts, "required": required}
        value = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES)) | VALUES)
        before = deepcopy({"value": value})
        assert run_check(compile_fast_check(schema), value) == run_check(
            compile_check(schema), value
        )
        assert {"value": value} == before


@cache
def checks_of(kind: KindInfo[Any]) -> tuple[Check, Fit, Check]:
    schema = object_schema(structural_schema(kind))
    return compile_fast_check(schema), _fit(schema, Compiler()), compile_check(schema)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.kind))
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_fast_check_equals_the_full_check_for_objects_of_every_kind(
    kind: KindInfo[Any], data: st.DataObject
) -> None:
    fast, fit, slow = checks_of(kind)
    value = {**data.draw(objects_of(kind)), "metadata": {"name": "a", "odd": None}}
    assert run_check(fast, value) == run_check(slow, value)
    assert fit(value, _fast_report()) == slow(value, "", ValidationReport())
    for _ in range(5):
        value = deepcopy(value)
        damage(value, data)
        assert run_check(fast, value) == run_check(slow, value)


def damage(value: Any, data: st.DataObject) -> None:
    """Replace, remove, add or repeat a field or an item at a random place."""
    while True:
        inner = [k for k, v in _entries(value) if isinstance(v, dict | list) and v]
        if not inner or data.draw(st.integers(0, 3)) == 0:
            break
        value = value[data.draw(st.sampled_from(inner))]
    places = [k for k, _ in _entries(value)]
    place = data.draw(st.sampled_from(places)) if places else None
    match data.draw(st.sampled_from(["other", "gone", "unknown", "twice"])):
        case "other" if place is not None:
            value[place] = data.draw(VALUES)
        case "gone" if place is not None:
            del value[place]
        case "unknown" if isinstance(value, dict):
            value["unknownField"] = data.draw(SCALARS)
        case "twice" if isinstance(value, list) and value:
            value.append(value[0])


def _entries(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else list(enumerate(value))


def test_defaults_with_parts_are_not_shared_between_objects() -> None:
    inner = {"type": "array", "items": {"type": "object", PRESERVE: True}, "default": [{}]}
    check = compile_fast_check({"type": "object", "properties": {"list": inner}})
    first = check({}, "", ValidationReport())
    first["list"][0]["name"] = "changed"
    assert check({}, "", ValidationReport()) == {"list": [{}]}


SPEC_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "ports": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "port": {"type": "integer"},
                            "protocol": {"type": "string", "default": "TCP"},
                        },
                    },
                },
            },
        }
    },
}


def check_spec(check: Any, spec: Any) -> tuple[Any, list[str]]:
    report = ValidationReport()
    return check({"spec": spec}, "", report), [cause.field for cause in report.errors]


def test_equal_values_get_equal_results_that_share_no_part() -> None:
    check = compile_fast_check(SPEC_SCHEMA)
    first, second, third = (check_spec(check, {"ports": [{"port": 80}]})[0] for _ in range(3))
    assert first == second == third
    assert second["spec"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    second["spec"]["ports"][0]["port"] = 1
    assert third["spec"]["ports"][0]["port"] == 80
    assert check_spec(check, {"ports": [{"port": 80}]})[0] == first


@pytest.mark.parametrize(
    ("good", "bad"), [({"count": 1}, {"count": True}), ({"count": 1}, {"count": 1.5})]
)
def test_a_value_that_equals_a_cached_one_only_in_python_is_check_spec(good: Any, bad: Any) -> None:
    check = compile_fast_check(SPEC_SCHEMA)
    for _ in range(2):
        assert check_spec(check, good)[1] == []
        assert check_spec(check, bad)[1] == ["spec.count"]


def test_an_invalid_value_is_never_cached_as_valid() -> None:
    check = compile_fast_check(SPEC_SCHEMA)
    for _ in range(2):
        assert check_spec(check, {"count": "many"})[1] == ["spec.count"]


def test_large_values_and_values_that_cannot_be_encoded_are_not_cached() -> None:
    assert key_of({"text": "x" * VALUE_BYTES_MAX}) == b""
    assert key_of({"number": 2**70}) == b""
    assert key_of({"text": "\ud800"}) == b""
    cache = ContentCache[int]()
    cache.put(b"", 1)
    assert cache.get(b"") is None


def test_the_number_of_cached_values_is_limited() -> None:
    cache = ContentCache[int]()
    for number in range(10 * VALUES_MAX):
        cache.put(b"%d" % number, number)
    kept = [number for number in range(10 * VALUES_MAX) if cache.get(b"%d" % number)]
    assert 0 < len(kept) <= VALUES_MAX
