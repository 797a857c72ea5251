"""Operations on sets of fields have the results of operations on sets of paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.server.apply import field_set as fieldsets
from datum_compute.server.apply.field_set import (
    MEMBER,
    FieldSet,
    Path,
    difference,
    from_paths,
    intersection,
    paths,
    union,
    union_all,
)

_steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"1"'])
_members = st.sets(st.lists(_steps, min_size=1, max_size=4).map(tuple), max_size=12)


def build_set(members: set[Path]) -> FieldSet:
    return from_paths(iter(sorted(members)))


@settings(deadline=None)
@given(_members)
def test_a_set_contains_the_paths_it_was_built_from(members: set[Path]) -> None:
    assert set(paths(build_set(members))) == members


@settings(deadline=None)
@given(_members, _members)
def test_union_difference_and_intersection_are_those_of_sets(
    left: set[Path], right: set[Path]
) -> None:
    assert set(paths(union(build_set(left), build_set(right)))) == left | right
    assert set(paths(difference(build_set(left), build_set(right)))) == left - right
    assert set(paths(intersection(build_set(left), build_set(right)))) == left & right


@settings(deadline=None)
@given(_members, _members)
def test_equal_sets_are_equal_trees(left: set[Path], right: set[Path]) -> None:
    assert union(build_set(left), build_set(right)) == union(build_set(right), build_set(left))
    assert difference(union(build_set(left), build_set(right)), build_set(right)) == build_set(
        left - right
    )


@settings(deadline=None)
@given(_members, _members)
def test_no_operation_changes_its_arguments(left: set[Path], right: set[Path]) -> None:
    one, other = build_set(left), build_set(right)
    for operation in (union, difference, intersection):
        operation(one, other)
    assert (one, other) == (build_set(left), build_set(right))


@settings(deadline=None)
@given(_members, _members)
def test_a_difference_without_effect_is_the_same_tree(left: set[Path], right: set[Path]) -> None:
    one = build_set(left)
    if not left & right:
        assert difference(one, build_set(right)) is one


@settings(deadline=None)
@given(st.lists(_members, max_size=7))
def test_the_union_of_all_has_every_path(sets: list[set[Path]]) -> None:
    assert union_all(map(build_set, sets)) == build_set(set().union(*sets))


class _LookupsOnly(dict[str, Any]):
    """A large set that can be searched by key. Iteration is an error."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("iterates over the larger set")

    items = __iter__  # type: ignore[assignment]


def test_a_difference_iterates_over_the_smaller_set() -> None:
    large = _LookupsOnly({f"f:{number}": MEMBER for number in range(1000)})
    assert difference({"f:data": {"f:1": MEMBER, "f:x": MEMBER}}, {"f:data": large}) == {
        "f:data": {"f:x": MEMBER}
    }


def test_the_union_of_many_small_sets_copies_each_path_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[int] = []
    join = fieldsets._union

    def count(left: FieldSet, right: FieldSet) -> FieldSet:
        copied.append(len(left) + len(right))
        return join(left, right)

    monkeypatch.setattr(fieldsets, "_union", count)
    found = union_all({f"f:{number}": MEMBER} for number in range(1024))
    assert len(found) == 1024
    assert sum(copied) == 1024 * 10
