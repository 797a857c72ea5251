"""The fields of an object, and the fields in which two objects differ."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.field_set import (
    EMPTY,
    MEMBER,
    SELF,
    FieldSet,
    difference,
    is_member,
    node_of,
)
from datum_compute.server.apply.field_shape import (
    LEAF,
    LISTS,
    FieldMap,
    KeyedList,
    Shape,
    items_by_step,
)

_Difference = tuple[FieldSet | None, FieldSet | None]
_SAME: _Difference = (None, None)
_ABSENT = object()
_CACHED_FIELDS = ("spec",)  # objects of one template have the same spec
_LEAF_ITEMS_MAX = 64  # entries of one cache


class Comparison(msgspec.Struct, frozen=True):
    """The difference between an old and a new object."""

    changed: FieldSet  # added, or with another value
    removed: FieldSet


def compare_objects(old: JsonObject, new: JsonObject, shape: FieldMap) -> Comparison:
    """Compare two objects. Their metadata is compared field by field, even if one has none."""
    changed, removed = _compare_maps(_with_metadata(old), _with_metadata(new), shape)
    return Comparison(changed or EMPTY, removed or EMPTY)


def _with_metadata(obj: JsonObject) -> JsonObject:
    return obj if "metadata" in obj else {**obj, "metadata": {}}


def applied_fields(config: JsonObject, shape: FieldMap) -> FieldSet:
    """Return the fields that a configuration owns: its leaves, list items and empty objects."""
    return {
        f"f:{name}": node
        for name, value in config.items()
        if (child := shape.child(name)) is not None
        and (node := _claimed_part(name, value, child)) is not None
        and not (name == "metadata" and not node)
    }


def sent_fields(sent: JsonObject, shape: FieldMap) -> FieldSet:
    """Return all fields of a new object."""
    found: FieldSet = {}
    for name, part in sent.items():
        child = shape.named.get(name, shape.other)
        if part is None or child is None:
            continue
        if child is LEAF:
            found[f"f:{name}"] = MEMBER
        elif name in _CACHED_FIELDS and isinstance(child, FieldMap) and isinstance(part, dict):
            found[f"f:{name}"] = child.cache.whole.get_or_compute(
                part, partial(_whole_item, shape=child)
            )
        elif name == "metadata":
            if metadata := fields_of(part, child):
                found["f:metadata"] = metadata
        else:
            _every_field({name: part}, shape, found)
    return found


def _claimed_part(name: str, part: Any, shape: Shape) -> FieldSet | None:
    if name in _CACHED_FIELDS and isinstance(shape, FieldMap):
        return shape.cache.claimed.get_or_compute(part, partial(_claimed_fields, shape=shape))
    return _claimed_fields(part, shape)


def restrict_to(fields: FieldSet, value: Any, shape: Shape) -> FieldSet:
    """Return the members of ``fields`` that ``value`` contains."""
    return _select_present(fields, value, shape, root=True) or EMPTY


def with_named_parents(fields: FieldSet, shape: Shape | None) -> FieldSet:
    """Return the set with all named fields on the paths of its members.

    List items and map entries on these paths are not added: they belong to the manager that added
    them, not to one that changed a field in them.
    """
    result: FieldSet = {}
    for step, node in fields.items():
        inner = with_named_parents(node, _below(shape, step)) if node else node
        named = isinstance(shape, FieldMap) and step[2:] in shape.named
        if named and not is_member(inner):
            inner = {SELF: MEMBER, **inner}
        result[step] = inner
    return result


def _below(shape: Shape | None, step: str) -> Shape | None:
    if isinstance(shape, FieldMap):
        return shape.child(step[2:])
    return shape.item if isinstance(shape, KeyedList) else None


def _claimed_fields(value: Any, shape: Shape) -> FieldSet | None:
    if isinstance(shape, FieldMap) and isinstance(value, dict):
        if not value:
            return MEMBER
        children = {}
        for name, item in value.items():
            child = shape.child(name)
            if child is None or (item is None and name in shape.named):
                continue
            node = _claimed_fields(item, child)
            if name not in shape.named:
                node = {SELF: MEMBER, **node} if node else MEMBER
            if node is not None:
                children[f"f:{name}"] = node
        return node_of(children, member=False)
    items = _items(shape, value)
    if items is None:
        return MEMBER
    inner = shape.item if isinstance(shape, KeyedList) else None
    return node_of({step: _claimed_item(item, inner) for step, item in items.items()}, member=False)


def _claimed_item(item: Any, shape: Shape | None) -> FieldSet:
    node = _claimed_fields(item, shape) if shape is not None else None
    return {SELF: MEMBER, **node} if node else MEMBER


def _items(shape: Shape, value: Any) -> dict[str, Any] | None:
    """Return the items of a list that merges item by item, or None for any other value."""
    if isinstance(value, list) and isinstance(shape, LISTS):
        return items_by_step(shape, value)
    return None


def fields_of(value: Any, shape: Shape) -> FieldSet:
    """Return all fields of a value: its leaves, list items and map entries."""
    if isinstance(shape, FieldMap):
        return _every_field(value, shape, {}) if isinstance(value, dict) else MEMBER
    if shape is LEAF or not isinstance(value, list):
        return MEMBER
    if isinstance(shape, KeyedList):
        return _every_item(value, shape)
    return dict.fromkeys(_items(shape, value) or (), MEMBER)


def _every_item(items: list[Any], shape: KeyedList) -> FieldSet:
    """Return the fields by path step, or a leaf if the keys do not identify the items."""
    inner, found = shape.item, {}
    known = inner.cache.leaf_items if isinstance(inner, FieldMap) else {}
    for item in items:
        step = shape.step(item)
        if not step or step in found:
            return MEMBER
        found[step] = known.get(tuple(item)) or _whole_item(item, inner)
    return found


def _every_field(value: JsonObject, shape: FieldMap, found: FieldSet) -> FieldSet:
    """Add the fields of a map to ``found``. Every write calls this, so leaves are inlined."""
    named, other = shape.named, shape.other
    if other is LEAF and not named:  # labels, annotations
        found.update({f"f:{name}": MEMBER for name in value})
        return found
    for name, item in value.items():
        child = named.get(name, other)
        if child is LEAF:
            found[f"f:{name}"] = MEMBER
        elif child is not None:
            found[f"f:{name}"] = _whole_item(item, child)
    return found


def _whole_item(item: Any, shape: Shape) -> FieldSet:
    """Return the fields of an item of a list, which is a member itself."""
    if isinstance(shape, FieldMap) and isinstance(item, dict):
        return _whole_map(item, shape) if item else MEMBER
    inside = fields_of(item, shape)
    return {SELF: MEMBER, **inside} if inside else MEMBER


def _whole_map(item: JsonObject, shape: FieldMap) -> FieldSet:
    """Return the fields of a list item.

    If all fields are leaves, the result depends only on their names, so it is cached.
    """
    names = tuple(item)
    cached = shape.cache.leaf_items
    known = cached.get(names)
    if known is not None:
        return known
    found = _every_field(item, shape, {SELF: MEMBER})
    if len(cached) < _LEAF_ITEMS_MAX and all(shape.named.get(n) is LEAF for n in names):
        cached[names] = found
    return found


def _compare_values(old: Any, new: Any, shape: Shape) -> _Difference:
    if old == new:
        return _SAME
    if isinstance(shape, FieldMap) and isinstance(old, dict) and isinstance(new, dict):
        return _compare_maps(old, new, shape)
    if isinstance(shape, LISTS) and isinstance(old, list) and isinstance(new, list):
        before, after = items_by_step(shape, old), items_by_step(shape, new)
        if before is not None and after is not None:
            return _compare_items(before, after, shape)
    return _compare_unlike_values(old, new, shape)


def _compare_maps(old: JsonObject, new: JsonObject, shape: FieldMap) -> _Difference:
    changed, removed = {}, {}
    named, other = shape.named, shape.other
    for name, value in new.items():
        before, child = old.get(name, _ABSENT), named.get(name, other)
        if value is before or child is None:
            continue
        if child is LEAF:  # the most frequent case
            if value != before:
                changed[f"f:{name}"] = MEMBER
            continue
        if before is _ABSENT:
            changed[f"f:{name}"] = _whole_item(value, child)
            continue
        inner_changed, inner_removed = _compare_values(before, value, child)
        if inner_changed is not None:
            changed[f"f:{name}"] = inner_changed
        if inner_removed is not None:
            removed[f"f:{name}"] = inner_removed
    for name, value in old.items():
        if name not in new and (child := shape.child(name)) is not None:
            removed[f"f:{name}"] = _whole_item(value, child)
    return changed or None, removed or None


def _compare_items(before: JsonObject, after: JsonObject, shape: Shape) -> _Difference:
    inner = shape.item if isinstance(shape, KeyedList) else LEAF
    changed, removed = {}, {}
    for step, item in after.items():
        if step not in before:
            changed[step] = _whole_item(item, inner)
        else:
            inner_changed, inner_removed = _compare_values(before[step], item, inner)
            if inner_changed is not None:
                changed[step] = inner_changed
            if inner_removed is not None:
                removed[step] = inner_removed
    for step, item in before.items():
        if step not in after:
            removed[step] = _whole_item(item, inner)
    return changed or None, removed or None


def _compare_unlike_values(old: Any, new: Any, shape: Shape) -> _Difference:
    """Return the difference between two leaves, or between values of different types."""
    changed, gone = {"f:": _whole_item(new, shape)}, {"f:": _whole_item(old, shape)}
    return changed["f:"], difference(gone, changed).get("f:")


def _select_present(fields: FieldSet, value: Any, shape: Shape, *, root: bool) -> FieldSet | None:
    children: FieldSet = {}
    if isinstance(shape, FieldMap) and isinstance(value, dict):
        for step, node in fields.items():
            child = shape.child(step[2:])
            if step != SELF and child is not None and step[2:] in value:
                inner = _select_present(node, value[step[2:]], child, root=False)
                if inner is not None:
                    children[step] = inner
    elif fields and (items := _items(shape, value)) is not None:
        below = shape.item if isinstance(shape, KeyedList) else shape
        for step, node in fields.items():
            if step != SELF and step in items:
                inner = _select_present(node, items[step], below, root=False)
                if inner is not None:
                    children[step] = inner
    return node_of(children, member=not root and is_member(fields))
