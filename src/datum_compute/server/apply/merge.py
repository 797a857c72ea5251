"""Merge an applied configuration into an object, and remove fields from one, by shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.field_set import SELF, FieldSet, is_member
from datum_compute.server.apply.field_shape import (
    LEAF,
    LISTS,
    FieldMap,
    KeyedList,
    Shape,
    ValueSet,
    items_by_step,
)
from datum_compute.server.encoding.body import json_equal


def merge_values(live: Any, applied: Any, shape: Shape | None) -> Any:
    """Merge ``applied`` into ``live``. Fields that ``applied`` does not contain stay."""
    if isinstance(shape, FieldMap) and isinstance(live, dict) and isinstance(applied, dict):
        return _merge_maps(live, applied, shape)
    if isinstance(shape, LISTS):
        return live if json_equal(live, applied) else _merge_lists(live, applied, shape)
    return applied


def remove_fields(value: Any, fields: FieldSet, shape: Shape | None) -> Any:
    """Return ``value`` without the members of ``fields`` and their content.

    Containers that become empty are removed too. Return None if nothing is left.
    """
    if isinstance(shape, FieldMap) and isinstance(value, dict):
        return _remove_from_map(value, fields, shape)
    if isinstance(shape, LISTS) and isinstance(value, list):
        return _remove_from_list(value, fields, shape)
    return value


def merge_order(live: Sequence[str], applied: Sequence[str]) -> list[str]:
    """Merge two orders: applied items keep their order, and other live items their position."""
    places, known = {step: place for place, step in enumerate(applied)}, set(live)
    shared = iter([step for step in applied if step in known])
    next_shared = next(shared, None)
    taken = 0  # applied items in the result
    result: list[str] = []
    for step in live:
        if step not in places:
            result.append(step)
        elif step == next_shared:
            end = places[step] + 1
            result += applied[taken:end]
            taken, next_shared = end, next(shared, None)
    result += applied[taken:]
    return result


def _merge_maps(live: JsonObject, applied: JsonObject, shape: FieldMap) -> JsonObject:
    result, named = dict(live), shape.named
    for name, value in applied.items():
        if value is None and name in named:
            continue  # null is the same as an absent field
        child = named.get(name, shape.other)
        is_replaced = child is LEAF or name not in live
        result[name] = value if is_replaced else merge_values(live[name], value, child)
    return result


def _merge_lists(live: Any, applied: Any, shape: KeyedList | ValueSet) -> Any:
    before = items_by_step(shape, live) if isinstance(live, list) else None
    after = items_by_step(shape, applied) if isinstance(applied, list) else None
    if before is None or after is None:
        return applied
    inner = shape.item if isinstance(shape, KeyedList) else None
    return [
        merge_values(before[step], after[step], inner)
        if step in before and step in after
        else (after if step in after else before)[step]
        for step in merge_order(list(before), list(after))
    ]


def _remove_from_map(value: JsonObject, fields: FieldSet, shape: FieldMap) -> JsonObject | None:
    result = dict(value)
    for step, node in fields.items():
        name = step[2:]
        if step == SELF or name not in result:
            continue
        rest = None if is_member(node) else remove_fields(result[name], node, shape.child(name))
        if rest is None:
            del result[name]
        else:
            result[name] = rest
    return result or None


def _remove_from_list(
    value: list[Any], fields: FieldSet, shape: KeyedList | ValueSet
) -> list[Any] | None:
    items = items_by_step(shape, value)
    if items is None:
        return value
    inner = shape.item if isinstance(shape, KeyedList) else None
    result = []
    for step, item in items.items():
        node = fields.get(step)
        rest = (
            item if node is None else None if is_member(node) else remove_fields(item, node, inner)
        )
        if rest is not None:
            result.append(rest)
    return result or None
