"""JSON patch without a server."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.errors import ApiError, BadRequest, Invalid
from datum_compute.server.encoding.body import DEPTH_MAX
from datum_compute.server.verbs.json_patch import (
    COPIED_BYTES_MAX,
    POINTER_PARTS_MAX,
    POINTER_PARTS_TOTAL_MAX,
    TRANSFERRED_VALUES_MAX,
    apply_json_patch,
)


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


def origin(path: str) -> dict[str, str]:
    return {"from": path}


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        ({"a": 1}, op("add", "/b", value=2), {"a": 1, "b": 2}),
        ({"a": 1}, op("add", "/a", value=None), {"a": None}),
        ({"a": [1, 3]}, op("add", "/a/1", value=2), {"a": [1, 2, 3]}),
        ({"a": [1]}, op("add", "/a/-", value=2), {"a": [1, 2]}),
        ({"a": [1]}, op("add", "/a/1", value=2), {"a": [1, 2]}),
        ({"a/b": 1, "c~d": 2}, op("remove", "/a~1b"), {"c~d": 2}),
        ({"a/b": 1, "c~d": 2}, op("remove", "/c~0d"), {"a/b": 1}),
        ({"~1": 1}, op("remove", "/~01"), {}),
        ({"": 1}, op("replace", "/", value=2), {"": 2}),
        ({"a": [1, 2]}, op("remove", "/a/0"), {"a": [2]}),
        ({"a": [1, 2]}, op("replace", "/a/1", value=9), {"a": [1, 9]}),
        ({"a": {"b": 1}}, op("move", "/c", **origin("/a/b")), {"a": {}, "c": 1}),
        ({"a": [1, 2, 3]}, op("move", "/a/2", **origin("/a/0")), {"a": [2, 3, 1]}),
        ({"a": 1}, op("move", "/a", **origin("/a")), {"a": 1}),
        ({"a": {"b": 1}}, op("copy", "/c", **origin("/a")), {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": {"b": [1]}}, op("test", "/a", value={"b": [1.0]}), {"a": {"b": [1]}}),
        ({"a": 1}, op("replace", "", value={"b": 2}), {"b": 2}),
    ],
)
def test_an_operation_changes_the_document(before: Any, operation: Any, after: Any) -> None:
    original = repr(before)
    assert apply_json_patch(before, [operation]) == after
    assert repr(before) == original


@pytest.mark.parametrize(
    ("before", "operation"),
    [
        ({"a": 1}, op("remove", "/b")),
        ({"a": 1}, op("remove", "")),
        ({"a": 1}, op("replace", "/b", value=1)),
        ({"a": 1}, op("add", "/b/c", value=1)),
        ({"a": 1}, op("add", "/a/c", value=1)),
        ({"a": [1]}, op("add", "/a/2", value=1)),
        ({"a": [1]}, op("add", "/a/01", value=1)),
        ({"a": [1]}, op("add", "/a/-1", value=1)),
        ({"a": [1]}, op("add", "/a/\u0661", value=1)),
        ({"a": [1]}, op("remove", "/a/-")),
        ({"a": [1]}, op("replace", "/a/1", value=1)),
        ({"a": []}, op("replace", "/a/0", value=1)),
        ({"a": 1}, op("copy", "/b", **origin("/c"))),
        ({"a": {"b": 1}}, op("move", "/a/b/c", **origin("/a"))),
        ({"a": 1}, op("test", "/a", value=True)),
        ({"a": True}, op("test", "/a", value=1)),
        ({"a": 0}, op("test", "/a", value=None)),
        ({"a": [1, 2]}, op("test", "/a", value=[1])),
        ({"a": {"b": 1}}, op("test", "/a", value={"c": 1})),
    ],
)
def test_an_operation_that_does_not_match_the_document_is_invalid(
    before: Any, operation: Any
) -> None:
    with pytest.raises(Invalid):
        apply_json_patch(before, [operation])


@pytest.mark.parametrize(
    "patch",
    [
        {},
        "x",
        [1],
        [None],
        [{}],
        [{"op": "add"}],
        [{"op": ["add"], "path": "/a"}],
        [op("add", "/a")],
        [op("add", "a", value=1)],
        [{"op": "add", "path": 1, "value": 1}],
        [op("move", "/a")],
        [op("copy", "/a", **origin("a"))],
        [op("append", "/a", value=1)],
        [op("test", "/a", value=1)] * 10_001,
    ],
)
def test_a_malformed_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest):
        apply_json_patch({"a": 1}, patch)


def test_later_operations_do_not_change_the_patch_itself() -> None:
    patch = [op("add", "/a", value=[]), op("add", "/a/-", value=1)]
    assert apply_json_patch({}, patch) == apply_json_patch({}, patch) == {"a": [1]}


def test_an_operation_does_not_change_its_arguments() -> None:
    before, value = {"a": {"b": [{"c": 1}]}, "d": {}}, {"x": {"y": 1}}
    patch = [
        op("add", "/a/b/0/e", value=value),
        op("replace", "/a/b/0/e/x/y", value=2),
        op("copy", "/f", **origin("/a")),
        op("remove", "/a/b/0/c"),
        op("add", "/f/b/-", value=3),
        op("move", "/g", **origin("/f")),
        op("add", "/g/b/-", value=4),
    ]
    after = apply_json_patch(before, patch)
    changed = {"x": {"y": 2}}
    assert after["a"] == {"b": [{"e": changed}]}
    assert after["g"] == {"b": [{"c": 1, "e": changed}, 3, 4]}
    assert before == {"a": {"b": [{"c": 1}]}, "d": {}}
    assert value == {"x": {"y": 1}}
    assert after["d"] is before["d"]  # unchanged parts are not checked again


def test_the_size_of_copies_is_limited() -> None:
    doubling = [op("copy", f"/x{n}", **origin("")) for n in range(64)]
    with pytest.raises(BadRequest, match=f"at most {COPIED_BYTES_MAX} bytes"):
        apply_json_patch({"a": "x" * 1000}, doubling)


def test_the_depth_of_moves_is_limited() -> None:
    deeper = [
        operation
        for _ in range(100)
        for operation in (op("add", "/b", value={}), op("move", "/b/a", **origin("/a")),
                          op("move", "/a", **origin("/b")))
    ]  # fmt: skip
    with pytest.raises(ApiError, match="levels deep"):
        apply_json_patch({"a": {}}, deeper)


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"x": 1}
    for _ in range(depth):
        document = {"a": document}
    return document


class CountedText(str):
    """Counts how often it is split."""

    splits = 0

    def split(self, *arguments: Any, **named: Any) -> list[str]:
        CountedText.splits += 1
        return super().split(*arguments, **named)


@pytest.mark.parametrize("part", ["/", "/a", "/~1"])
@pytest.mark.parametrize("field", ["path", "from"])
def test_a_pointer_with_too_many_parts_is_rejected_before_it_is_split(
    field: str, part: str
) -> None:
    long = CountedText(part * (POINTER_PARTS_MAX + 1))
    operation = {"op": "move", "from": "/a", "path": "/b", field: long}
    CountedText.splits = 0
    with pytest.raises(BadRequest, match=f"'{field}' of operation 'move' has 129 parts"):
        apply_json_patch({"a": 1}, [operation])
    assert CountedText.splits == 0


def test_a_pointer_reaches_the_deepest_value_of_a_document() -> None:
    depth = DEPTH_MAX - 1
    after = apply_json_patch(nested(depth), [op("replace", "/a" * depth + "/x", value=2)])
    for _ in range(depth):
        after = after["a"]
    assert after == {"x": 2}


@pytest.mark.parametrize("part", ["/a" * 100, "/" + "~1" * 100_000, "/" + "/".join(["b" * 99] * 9)])
def test_an_error_shows_the_beginning_of_a_pointer(part: str) -> None:
    with pytest.raises(Invalid) as raised:
        apply_json_patch({"a": 1}, [op("remove", part)])
    message = str(raised.value)
    assert part[:100] in message
    assert len(message) < 250
    assert message.endswith("...")


@pytest.mark.parametrize(
    "operation",
    [
        op("replace", "/a" * 50 + "/x", value=1),
        op("test", "/a" * 50 + "/x", value=1),
        op("move", "/a" * 50 + "/x", **origin("/a" * 50 + "/x")),
        op("copy", "/a" * 50 + "/x", **origin("/a" * 50 + "/x")),
    ],
)
def test_the_parts_of_all_pointers_are_limited(operation: Any) -> None:
    pointers = 2 if "from" in operation else 1
    fitting = POINTER_PARTS_TOTAL_MAX // (51 * pointers)
    assert apply_json_patch(nested(50), [operation] * fitting) == nested(50)
    with pytest.raises(BadRequest, match="replace a larger part of the object"):
        apply_json_patch(nested(50), [operation] * (fitting + 1))


@pytest.mark.parametrize("name", ["copy", "move"])
def test_copied_and_moved_values_are_limited(name: str) -> None:
    before = {"a": {f"k{number}": 1 for number in range(TRANSFERRED_VALUES_MAX // 4)}}
    there, back = op(name, "/b", **origin("/a")), op(name, "/a", **origin("/b"))
    original = repr(before)
    assert apply_json_patch(before, [there, back])["a"] == before["a"]
    assert repr(before) == original
    with pytest.raises(BadRequest, match=f"at most {TRANSFERRED_VALUES_MAX} values"):
        apply_json_patch(before, [there, back] * 2)
