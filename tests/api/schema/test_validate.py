"""A check validates, prunes and applies defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.kinds import DEPLOYMENT, KINDS, SERVER, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import IMAGE, PATTERN_DESCRIPTIONS
from datum_compute.api.schema.derive import PRESERVE, structural_schema
from datum_compute.api.schema.validate import ValidationReport, compile_check


def run_check(schema: JsonObject, value: Any) -> tuple[Any, ValidationReport]:
    report = ValidationReport()
    return compile_check(schema)(value, "", report), report


def problems(schema: JsonObject, value: Any) -> list[tuple[str, str]]:
    return [(cause.field, cause.reason) for cause in run_check(schema, value)[1].errors]


def field(schema: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {"x": schema}}


INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
WRONG_TYPE, TOO_LONG = "FieldValueTypeInvalid", "FieldValueTooLong"

# schema of the field x, a valid value, an invalid value
TYPES: list[tuple[JsonObject, Any, Any]] = [
    ({"type": "string"}, "a", 1),
    ({"type": "string"}, "", ["a"]),
    ({"type": "integer"}, 1, "1"),
    ({"type": "integer"}, 1, 1.5),
    ({"type": "integer"}, 0, False),
    ({"type": "number"}, 1.5, "1.5"),
    ({"type": "number"}, 1, True),
    ({"type": "boolean"}, False, 0),
    ({"type": "array", "items": {"type": "string"}}, ["a"], "a"),
    ({"type": "object"}, {}, []),
]
LIMITS: list[tuple[JsonObject, Any, Any]] = [
    ({"type": "integer"}, 2**63 - 1, 2**63),
    ({"type": "integer", "format": "int64"}, -(2**63), 2**64 - 1),
    ({"type": "integer", "format": "int32"}, 2**31 - 1, 2**31),
    ({"type": "integer", "format": "int32"}, -(2**31), -(2**31) - 1),
    ({"type": "integer", "format": "uint32"}, 2**32 - 1, -1),
    ({"type": "integer", "format": "uint64"}, 2**64 - 1, -1),
    ({"type": "integer", "format": "unheard-of"}, 1, 2**63),
    ({"type": "number", "format": "float"}, 3.4e38, 3.5e38),
    ({"type": "number", "format": "float"}, -3.4e38, -3.5e38),
    ({"type": "integer", "minimum": 1}, 1, 0),
    ({"type": "integer", "maximum": 9}, 9, 10),
    ({"type": "string", "minLength": 1}, "a", ""),
    ({"type": "string", "pattern": "^[a-z]+$"}, "ab", "aB"),
    ({"type": "string", "pattern": "^[a-z]+$"}, "ab", "ab\n"),
    ({"type": "string", "pattern": "[a-z]"}, "1b2", "12"),
    ({"type": "array", "minItems": 1}, [1], []),
    ({"type": "array", "maxItems": 1}, [1], [1, 2]),
]


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "reason"),
    [
        *((*row, WRONG_TYPE) for row in TYPES),
        *((*row, INVALID) for row in LIMITS),
        ({"type": "string", "maxLength": 2}, "ab", "abc", TOO_LONG),
    ],
)
def test_a_limit_accepts_the_valid_and_rejects_the_invalid_value(
    schema: JsonObject, right: Any, wrong: Any, reason: str
) -> None:
    assert problems(field(schema), {"x": right}) == []
    assert problems(field(schema), {"x": wrong}) == [("x", reason)]


def test_the_error_of_an_enumeration_lists_the_supported_values() -> None:
    schema = field({"type": "string", "enum": ["TCP", "UDP"]})
    (cause,) = run_check(schema, {"x": "ICMP"})[1].errors
    assert cause.reason == "FieldValueNotSupported"
    assert cause.message == 'Unsupported value: "ICMP": supported values: "TCP", "UDP"'


def test_all_errors_are_reported_with_their_paths() -> None:
    items = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["name"]}
    schema = field({"type": "array", "items": items})
    assert problems(schema, {"x": [{"name": 1, "n": "one"}, {"n": 2}]}) == [
        ("x[0].n", WRONG_TYPE),
        ("x[0].name", REQUIRED),
        ("x[1].name", REQUIRED),
    ]


def test_unknown_fields_are_dropped_and_reported() -> None:
    schema = field({"type": "object", "properties": {"known": {"type": "string"}}})
    value, report = run_check(schema, {"x": {"known": "a", "strange": 1}, "other": {}})
    assert value == {"x": {"known": "a"}}
    assert report.unknown == ["x.strange", "other"]
    assert report.errors == []


def test_objects_that_preserve_unknown_fields_keep_them() -> None:
    schema = {PRESERVE: True, **field({"type": "integer"})}
    assert run_check(schema, {"x": 1, "y": {"z": [2]}})[0] == {"x": 1, "y": {"z": [2]}}
    assert problems(schema, {"x": "one", "y": 2}) == [("x", WRONG_TYPE)]


def test_maps_check_every_value() -> None:
    schema = field({"type": "object", "additionalProperties": {"type": "string"}})
    assert run_check(schema, {"x": {"a": "b"}})[0] == {"x": {"a": "b"}}
    found = problems(schema, {"x": {"a": 1, "b": None}})
    assert found == [("x.a", WRONG_TYPE), ("x.b", WRONG_TYPE)]


def test_defaults_replace_absent_and_null_values_at_any_depth() -> None:
    inner = {"type": "object", "properties": {"y": {"type": "string", "default": "d"}}}
    schema = field({**inner, "default": {}})
    assert run_check(schema, {})[0] == {"x": {"y": "d"}}
    assert run_check(schema, {"x": None})[0] == {"x": {"y": "d"}}
    assert run_check(schema, {"x": {"y": None}})[0] == {"x": {"y": "d"}}
    assert run_check(schema, {"x": {"y": "e"}})[0] == {"x": {"y": "e"}}


def test_null_does_not_satisfy_a_required_field() -> None:
    schema = {**field({"type": "string"}), "required": ["x"]}
    assert problems(schema, {"x": None}) == [("x", REQUIRED)]


def test_defaults_are_not_shared_between_objects() -> None:
    schema = field({"type": "array", "items": {"type": "string"}, "default": ["a"]})
    first = run_check(schema, {})[0]
    first["x"].append("b")
    assert run_check(schema, {})[0] == {"x": ["a"]}


@pytest.mark.parametrize(
    ("extra", "items", "duplicate"),
    [
        ({"x-kubernetes-list-type": "set"}, ["a", "b", "a"], "x[2]"),
        (
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            [{"name": "a", "v": 1}, {"name": "a", "v": 2}],
            "x[1]",
        ),
        (
            {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "v"]},
            [{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "a", "v": 1}],
            "x[2]",
        ),
    ],
)
def test_duplicates_in_lists_with_keys_are_rejected(
    extra: JsonObject, items: list[Any], duplicate: str
) -> None:
    assert problems(field({"type": "array", **extra}), {"x": items}) == [
        (duplicate, "FieldValueDuplicate")
    ]
    assert problems(field({"type": "array"}), {"x": items}) == []


def test_a_long_value_is_truncated_in_the_message() -> None:
    (cause,) = run_check(field({"type": "integer"}), {"x": "y" * 5000})[1].errors
    assert len(cause.message) < 200
    assert "must be of type integer" in cause.message


def test_a_key_that_is_a_number_beyond_64_bits_is_rejected() -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}}}
    lists = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = field({"type": "array", "items": item, **lists})
    assert problems(schema, {"x": [{"name": 2**70}]}) == [("x[0].name", WRONG_TYPE)]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.just({"name": "web"}),
            "spec": JSON_VALUES
            | st.fixed_dictionaries({"template": JSON_VALUES, "placements": JSON_VALUES}),
            "status": JSON_VALUES,
        },
    )
)
def test_a_valid_result_passes_the_check_unchanged(value: JsonObject) -> None:
    check = compile_check(structural_schema(WORKLOAD))
    first = ValidationReport()
    result = check(value, "", first)
    if not first.errors:
        second = ValidationReport()
        assert check(result, "", second) == result
        assert (second.errors, second.unknown) == ([], [])


@pytest.mark.parametrize("city", ["", "   ", "D F W", "-DFW", "DFW-", "DF_W", "D/FW", "D\u00c9W"])
def test_a_city_that_is_not_a_valid_name_and_label_is_rejected(city: str) -> None:
    schema = structural_schema(DEPLOYMENT)["properties"]["spec"]["properties"]["cityCode"]
    report = ValidationReport()
    compile_check(schema)(city, "cityCode", report)
    assert [cause.field for cause in report.errors] == ["cityCode"]


@pytest.mark.parametrize(
    ("image", "fine"),
    [
        ("web", True),
        ("web:1.0", True),
        ("ghcr.io/example/web:1.0", True),
        ("localhost:5000/a/b_c-d@sha256:" + "a" * 64, True),
        ("Registry.Example/web", True),
        ("bad image:::", False),
        ("UPPER/CASE:1", False),
        ("   ", False),
        ("web:", False),
        ("web@sha256:short", False),
        ("", False),
        ("web:1\n", False),
    ],
)
def test_an_image_must_be_a_valid_reference(image: str, fine: bool) -> None:
    report = ValidationReport()
    containers = structural_schema(SERVER)["properties"]["spec"]["properties"]["containers"]
    compile_check(containers["items"]["properties"]["image"])(image, "image", report)
    assert (not report.errors) == fine


@pytest.mark.parametrize(
    ("image", "expected"),
    [("Web:1", "in lower case"), ("web:", "[:tag]"), ("a b", "such as web:1.2")],
)
def test_a_long_pattern_is_described_in_words_in_the_message(image: str, expected: str) -> None:
    (cause,) = run_check(field({"type": "string", "pattern": IMAGE}), {"x": image})[1].errors
    assert expected in cause.message
    assert "[a-z0-9]" not in cause.message


def test_every_long_pattern_has_a_description() -> None:
    def patterns(schema: Any) -> set[str]:
        if isinstance(schema, list):
            return {found for item in schema for found in patterns(item)}
        if not isinstance(schema, dict):
            return set()
        own = schema.get("pattern")
        inner = {found for part in schema.values() for found in patterns(part)}
        return inner | ({own} if isinstance(own, str) else set())

    found = {pattern for kind in KINDS for pattern in patterns(structural_schema(kind))}
    assert [
        pattern for pattern in found if len(pattern) > 60 and pattern not in PATTERN_DESCRIPTIONS
    ] == []
