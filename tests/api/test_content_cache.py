"""What is remembered of values that come again, and that it cannot be told from working it out."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.schema.fast_path import (
    VALUE_BYTES_MAX,
    VALUES_MAX,
    ContentCache,
    compile_fast_check,
    key_of,
)
from datum_compute.api.schema.validate import Report

SCHEMA = {
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


def checked(check: Any, spec: Any) -> tuple[Any, list[str]]:
    report = Report()
    return check({"spec": spec}, "", report), [cause.field for cause in report.errors]


def test_equal_values_get_equal_results_that_share_nothing() -> None:
    check = compile_fast_check(SCHEMA)
    first, second, third = (checked(check, {"ports": [{"port": 80}]})[0] for _ in range(3))
    assert first == second == third
    assert second["spec"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    second["spec"]["ports"][0]["port"] = 1
    assert third["spec"]["ports"][0]["port"] == 80
    assert checked(check, {"ports": [{"port": 80}]})[0] == first


@pytest.mark.parametrize(
    ("good", "bad"), [({"count": 1}, {"count": True}), ({"count": 1}, {"count": 1.5})]
)
def test_a_value_that_only_looks_like_a_known_one_is_looked_at(good: Any, bad: Any) -> None:
    check = compile_fast_check(SCHEMA)
    for _ in range(2):
        assert checked(check, good)[1] == []
        assert checked(check, bad)[1] == ["spec.count"]


def test_what_is_wrong_is_never_remembered_as_right() -> None:
    check = compile_fast_check(SCHEMA)
    for _ in range(2):
        assert checked(check, {"count": "many"})[1] == ["spec.count"]


def test_large_and_unspeakable_values_are_not_kept() -> None:
    assert key_of({"text": "x" * VALUE_BYTES_MAX}) == b""
    assert key_of({"number": 2**70}) == b""
    assert key_of({"text": "\ud800"}) == b""
    remembered = ContentCache[int]()
    remembered.put(b"", 1)
    assert remembered.get(b"") is None


def test_only_so_many_are_kept() -> None:
    remembered = ContentCache[int]()
    for number in range(10 * VALUES_MAX):
        remembered.put(b"%d" % number, number)
    kept = [number for number in range(10 * VALUES_MAX) if remembered.get(b"%d" % number)]
    assert 0 < len(kept) <= VALUES_MAX
