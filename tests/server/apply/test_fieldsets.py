"""Sets of fields obey the laws of sets."""

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


def made(members: set[Path]) -> FieldSet:
    return from_paths(iter(sorted(members)))


@settings(deadline=None)
@given(_members)
def test_a_set_holds_the_paths_it_was_made_of(members: set[Path]) -> None:
    assert set(paths(made(members))) == members


@settings(deadline=None)
@given(_members, _members)
def test_union_difference_and_intersection_are_those_of_sets(
    left: set[Path], right: set[Path]
) -> None:
    assert set(paths(union(made(left), made(right)))) == left | right
    assert set(paths(difference(made(left), made(right)))) == left - right
    assert set(paths(intersection(made(left), made(right)))) == left & right


@settings(deadline=None)
@given(_members, _members)
def test_equal_sets_are_equal_trees(left: set[Path], right: set[Path]) -> None:
    assert union(made(left), made(right)) == union(made(right), made(left))
    assert difference(union(made(left), made(right)), made(right)) == made(left - right)


@settings(deadline=None)
@given(_members, _members)
def test_no_operation_changes_its_arguments(left: set[Path], right: set[Path]) -> None:
    one, other = made(left), made(right)
    for operation in (union, difference, intersection):
        operation(one, other)
    assert (one, other) == (made(left), made(right))


@settings(deadline=None)
@given(_members, _members)
def test_a_difference_that_takes_nothing_is_the_same_tree(
    left: set[Path], right: set[Path]
) -> None:
    one = made(left)
    if not left & right:
        assert difference(one, made(right)) is one


@settings(deadline=None)
@given(st.lists(_members, max_size=7))
def test_the_union_of_all_has_every_path(sets: list[set[Path]]) -> None:
    assert union_all(map(made, sets)) == made(set().union(*sets))


class _LookupsOnly(dict[str, Any]):
    """A large set that may be searched by key. Iteration is an error."""

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
