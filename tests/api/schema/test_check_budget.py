"""A check stops when a schema and a value together need more steps than its budget."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.errors import Invalid, RequestEntityTooLarge, format_value
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.schema.fast_path import compile_fast_check
from datum_compute.api.schema.report import (
    DEFAULT_BYTES_MAX,
    ERRORS_MAX,
    STEPS_MAX,
    Check,
    ValidationReport,
)
from datum_compute.api.schema.validate import compile_check, structure_of

TEXT: JsonObject = {"type": "string"}
BOTH_CHECKS = pytest.mark.parametrize("make", [compile_check, compile_fast_check])


def list_of(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items, **more}


def fields(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


def check_spec(check: Check, value: Any) -> ValidationReport:
    report = ValidationReport()
    check(value, "spec", report)
    return report


@BOTH_CHECKS
def test_defaults_are_limited_to_the_maximum_size_of_an_object(make: Any) -> None:
    item = fields(**{f"f{n}": {**TEXT, "default": "x" * 1000} for n in range(10)})
    check = make(list_of(item))
    with pytest.raises(RequestEntityTooLarge) as raised:
        check_spec(check, [{} for _ in range(1000)])
    (cause,) = raised.value.causes
    first = DEFAULT_BYTES_MAX // (10 * 1010)
    assert abs(int(cause.field.removeprefix("spec[").partition("]")[0]) - first) <= 2
    assert "remove defaults" in cause.message


@BOTH_CHECKS
def test_unused_defaults_count_as_steps(make: Any) -> None:
    item = fields(**{f"f{n}": {"type": "integer", "default": 0} for n in range(100)})
    with pytest.raises(Invalid) as raised:
        check_spec(make(list_of(item)), [dict.fromkeys(item["properties"], 1)] * 3100)
    assert raised.value.causes[0].field.startswith("spec[")


@BOTH_CHECKS
def test_defaults_inside_of_defaults_count_as_steps(make: Any) -> None:
    schema: JsonObject = {**TEXT, "default": "x" * 2000}
    for _ in range(3):
        schema = {**fields(**{f"f{n}": schema for n in range(10)}), "default": {}}
    with pytest.raises((Invalid, RequestEntityTooLarge)):
        check_spec(make(fields(a=schema)), {})


def test_branches_use_the_budget_of_the_object() -> None:
    schema = list_of({**TEXT, "anyOf": [{"maxLength": 0}] * 100})
    with pytest.raises(Invalid) as raised:
        check_spec(compile_check(schema), ["x"] * 10_000)
    assert raised.value.causes[0].field.startswith("spec[")
    assert "simplify the schema" in raised.value.causes[0].message


def test_required_fields_of_every_item_count_as_steps() -> None:
    names = [f"f{n}" for n in range(300)]
    item = {"type": "object", "required": names, "x-kubernetes-preserve-unknown-fields": True}
    with pytest.raises(Invalid):
        check_spec(compile_check(list_of(item)), [dict.fromkeys(names, 0)] * 600)


@BOTH_CHECKS
def test_the_steps_of_an_enumeration_do_not_depend_on_its_length(make: Any) -> None:
    schema = list_of({**TEXT, "enum": [str(n) for n in range(10_000)]})
    report = check_spec(make(schema), ["9999"] * 5000)
    assert not report.errors
    assert STEPS_MAX - report.budget.steps_left < 2 * 5000 + 10


def test_an_error_lists_a_limited_number_of_supported_values() -> None:
    report = check_spec(compile_check({**TEXT, "enum": ["x" * 100] * 1000}), "y")
    assert len(report.errors[0].message) < 2000
    assert report.errors[0].message.endswith("...")


def test_the_number_of_reported_errors_is_limited() -> None:
    report = check_spec(compile_check(list_of({"type": "integer"})), ["x"] * 1000)
    assert (report.failures, len(report.errors)) == (1000, ERRORS_MAX + 1)
    assert "fix these first" in report.errors[-1].message


def test_only_the_beginning_of_a_large_value_is_rendered() -> None:
    class Counted(dict[str, int]):
        seen = 0

        def items(self) -> Any:
            for pair in super().items():
                Counted.seen += 1
                yield pair

    assert len(format_value(Counted.fromkeys(map(str, range(10_000)), 1))) == 120
    assert Counted.seen < 200


@pytest.mark.parametrize("items", [[1, 2, 3], [1, 1.0, True], ["a", "b"], [{"a": 1}, {"a": 2}]])
def test_items_of_a_set_are_compared_as_json(items: list[Any]) -> None:
    schema = list_of({}, **{"x-kubernetes-list-type": "set"})
    assert not check_spec(compile_check(schema), items).errors
    assert len(check_spec(compile_check(schema), [*items, items[0]]).errors) == 1


def test_the_structure_of_a_schema_prunes_and_applies_defaults_like_the_schema() -> None:
    schema = fields(
        a={**TEXT, "default": "x", "enum": ["x"], "pattern": "^x$"},
        b={**list_of(fields(c={**TEXT, "nullable": True}), maxItems=2), "anyOf": [{"minItems": 1}]},
    )
    value = {"b": [{"c": None, "unknown": 1}, {}], "unknown": 2}
    expected = compile_check(schema)(value, "", ValidationReport())
    report = ValidationReport()
    assert compile_check(structure_of(schema))(value, "", report) == expected
    assert not report.errors
    assert compile_check(structure_of(schema, defaults=False))({}, "", ValidationReport()) == {}
