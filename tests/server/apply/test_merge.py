"""Fast paths for fields and items have the results of the general code."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from datum_compute.server.apply.compare import _every_field, applied_fields, sent_fields
from datum_compute.server.apply.field_set import MEMBER, SELF
from datum_compute.server.apply.field_shape import (
    ATOMIC_LISTS_MAP,
    LEAF,
    VALUES,
    FieldMap,
    KeyedList,
    Shape,
    canonical_text,
)
from datum_compute.server.apply.merge import merge_values

TEXTS = st.text(max_size=4) | st.sampled_from(['"', "\\", "\x7f", "\u2028", "é", "a b", ""])
ITEMS = st.dictionaries(st.sampled_from(["name", "value", "set", "open", "other"]), TEXTS)


@given(
    name=TEXTS | st.integers(-5, 5) | st.booleans() | st.none(),
    key=st.sampled_from(["name", 'a"b']),
)
def test_the_name_of_an_item_is_its_key_as_json(name: Any, key: str) -> None:
    shape = KeyedList((key,), {}, LEAF)
    expected = "" if name is None else f"k:{canonical_text({key: name})}"
    assert shape.step({key: name}) == expected


@given(st.lists(ITEMS, max_size=20))
def test_similar_items_do_not_change_the_fields_of_an_item(items: list[Any]) -> None:
    fields: dict[str, Shape] = {
        "name": LEAF,
        "value": LEAF,
        "set": VALUES,
        "open": ATOMIC_LISTS_MAP,
    }
    shape = FieldMap({"list": KeyedList(("name",), {}, FieldMap(fields))})
    kept = [{**item, "name": f"item-{number}"} for number, item in enumerate(items)]
    found = sent_fields({"list": kept}, shape)
    fresh = [_every_field(item, FieldMap(fields), {SELF: MEMBER}) for item in kept]
    owned = {step: node for step, node in found["f:list"].items() if step != SELF}
    assert list(owned.values()) == fresh


@given(st.lists(ITEMS, max_size=5))
def test_a_repeated_apply_owns_the_same_fields(items: list[Any]) -> None:
    spec = {"list": [{**item, "name": f"item-{number}"} for number, item in enumerate(items)]}
    first = FieldMap({"spec": _spec_shape()})
    claims = applied_fields({"spec": spec}, first)
    assert applied_fields({"spec": spec}, first) == claims
    assert applied_fields({"spec": spec}, FieldMap({"spec": _spec_shape()})) == claims


@given(st.lists(ITEMS, max_size=5), st.sampled_from([1, 1.0, True, "1"]))
def test_a_list_is_kept_by_an_equal_apply_unless_a_type_differs(
    items: list[Any], value: Any
) -> None:
    live = [{**item, "value": 1, "name": f"item-{n}"} for n, item in enumerate(items)]
    applied = [{**item, "value": value} for item in live]
    found = merge_values({"list": live}, {"list": applied}, _spec_shape())
    assert [(item["value"], type(item["value"])) for item in found["list"]] == [
        (value, type(value)) for _ in live
    ]
    assert merge_values({"list": found["list"]}, {"list": applied}, _spec_shape()) == found


def _spec_shape() -> FieldMap:
    fields: dict[str, Shape] = {
        "name": LEAF,
        "value": LEAF,
        "set": VALUES,
        "open": ATOMIC_LISTS_MAP,
    }
    return FieldMap({"list": KeyedList(("name",), {}, FieldMap(fields))})
