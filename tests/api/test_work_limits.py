"""A check ends before its work is done when a schema and a value multiply to too much of it."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.errors import Invalid, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.schema.fast_path import compile_fast_check
from datum_compute.api.schema.report import (
    DEFAULT_BYTES_MAX,
    ERRORS_MAX,
    STEPS_MAX,
    Check,
    Report,
    shown,
)
from datum_compute.api.schema.validate import compile_check, structure_of

TEXT: JsonObject = {"type": "string"}
BOTH_WAYS = pytest.mark.parametrize("make", [compile_check, compile_fast_check])


def list_of(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items, **more}


def fields(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


def checked(check: Check, value: Any) -> Report:
    report = Report()
    check(value, "spec", report)
    return report


@BOTH_WAYS
def test_defaults_end_at_the_bytes_that_an_object_may_have(make: Any) -> None:
    item = fields(**{f"f{n}": {**TEXT, "default": "x" * 1000} for n in range(10)})
    check = make(list_of(item))
    with pytest.raises(RequestEntityTooLarge) as raised:
        checked(check, [{} for _ in range(1000)])
    (cause,) = raised.value.causes
    first = DEFAULT_BYTES_MAX // (10 * 1010)
    assert abs(int(cause.field.removeprefix("spec[").partition("]")[0]) - first) <= 2
    assert "remove defaults" in cause.message


@BOTH_WAYS
def test_defaults_that_are_not_needed_are_counted_as_steps(make: Any) -> None:
    item = fields(**{f"f{n}": {"type": "integer", "default": 0} for n in range(100)})
    with pytest.raises(Invalid) as raised:
        checked(make(list_of(item)), [dict.fromkeys(item["properties"], 1)] * 3100)
    assert raised.value.causes[0].field.startswith("spec[")


@BOTH_WAYS
def test_defaults_inside_of_defaults_are_counted(make: Any) -> None:
    schema: JsonObject = {**TEXT, "default": "x" * 2000}
    for _ in range(3):
        schema = {**fields(**{f"f{n}": schema for n in range(10)}), "default": {}}
    with pytest.raises((Invalid, RequestEntityTooLarge)):
        checked(make(fields(a=schema)), {})


def test_a_branch_spends_the_work_of_the_object() -> None:
    schema = list_of({**TEXT, "anyOf": [{"maxLength": 0}] * 100})
    with pytest.raises(Invalid) as raised:
        checked(compile_check(schema), ["x"] * 10_000)
    assert raised.value.causes[0].field.startswith("spec[")
    assert "simplify the schema" in raised.value.causes[0].message


def test_required_fields_of_every_item_are_counted() -> None:
    names = [f"f{n}" for n in range(300)]
    item = {"type": "object", "required": names, "x-kubernetes-preserve-unknown-fields": True}
    with pytest.raises(Invalid):
        checked(compile_check(list_of(item)), [dict.fromkeys(names, 0)] * 600)


@BOTH_WAYS
def test_a_long_enumeration_costs_no_more_than_a_short_one(make: Any) -> None:
    schema = list_of({**TEXT, "enum": [str(n) for n in range(10_000)]})
    report = checked(make(schema), ["9999"] * 5000)
    assert not report.errors
    assert STEPS_MAX - report.budget.steps_left < 2 * 5000 + 10


def test_an_error_names_some_of_the_supported_values() -> None:
    report = checked(compile_check({**TEXT, "enum": ["x" * 100] * 1000}), "y")
    assert len(report.errors[0].message) < 2000
    assert report.errors[0].message.endswith("...")


def test_only_so_many_errors_are_listed() -> None:
    report = checked(compile_check(list_of({"type": "integer"})), ["x"] * 1000)
    assert (report.failures, len(report.errors)) == (1000, ERRORS_MAX + 1)
    assert "fix these first" in report.errors[-1].message


def test_errors_show_the_beginning_of_a_large_value() -> None:
    class Counted(dict[str, int]):
        seen = 0

        def items(self) -> Any:
            for pair in super().items():
                Counted.seen += 1
                yield pair

    assert len(shown(Counted.fromkeys(map(str, range(10_000)), 1))) == 120
    assert Counted.seen < 200


@pytest.mark.parametrize("items", [[1, 2, 3], [1, 1.0, True], ["a", "b"], [{"a": 1}, {"a": 2}]])
def test_items_of_a_set_differ_as_in_json(items: list[Any]) -> None:
    schema = list_of({}, **{"x-kubernetes-list-type": "set"})
    assert not checked(compile_check(schema), items).errors
    assert len(checked(compile_check(schema), [*items, items[0]]).errors) == 1


def test_the_structure_of_a_schema_prunes_and_defaults_like_the_schema() -> None:
    schema = fields(
        a={**TEXT, "default": "x", "enum": ["x"], "pattern": "^x$"},
        b={**list_of(fields(c={**TEXT, "nullable": True}), maxItems=2), "anyOf": [{"minItems": 1}]},
    )
    value = {"b": [{"c": None, "unknown": 1}, {}], "unknown": 2}
    expected = compile_check(schema)(value, "", Report())
    report = Report()
    assert compile_check(structure_of(schema))(value, "", report) == expected
    assert not report.errors
    assert compile_check(structure_of(schema, defaults=False))({}, "", Report()) == {}
