"""Sets of field paths, in the format of ``fieldsV1``.

A set is a tree of dicts. A key is a step: ``f:name`` is a field, ``k:{...}`` a list item with these
keys, ``v:...`` a set item with this value, and ``i:n`` the item at this index. A node without
children is a member. A node with children is a member if it has the key ``.``. The root is never a
member, so ``{}`` is the empty set. No function changes its arguments, so trees may share nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
MEMBER: FieldSet = {}  # shared by all trees
EMPTY: FieldSet = {}


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def node_of(children: FieldSet, *, member: bool) -> FieldSet | None:
    """Return the node with these children, or None if it has no children and is not a member."""
    if not children:
        return MEMBER if member else None
    return {SELF: MEMBER, **children} if member else children


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of both sets."""
    if not left or not right:
        return left or right
    return _union(left, right)


def union_all(sets: Iterable[FieldSet]) -> FieldSet:
    """Return the paths of all sets.

    Pairs are united first, so that a large set is not copied once for each small one.
    """
    rest = list(sets)
    while len(rest) > 1:
        last = rest[-1:] if len(rest) % 2 else []
        rest = [union(*pair) for pair in zip(rest[::2], rest[1::2], strict=False)] + last
    return rest[0] if rest else EMPTY


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of ``left`` that are not in ``right``; ``left`` itself if these are all."""
    if not left or not right:
        return left
    return _difference(left, right) or EMPTY


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths that are in both sets."""
    if not left or not right:
        return EMPTY
    return _intersection(left, right) or EMPTY


def paths(fields: FieldSet) -> Iterator[Path]:
    """Yield every member, in the order of the tree."""
    for step, node in fields.items():
        if step == SELF:
            continue
        if is_member(node):
            yield (step,)
        for inner in paths(node):
            yield (step, *inner)


def from_paths(members: Iterator[Path]) -> FieldSet:
    found = EMPTY
    for path in members:
        node = MEMBER
        for step in reversed(path):
            node = {step: node}
        found = union(found, node)
    return found


def _union(left: FieldSet, right: FieldSet) -> FieldSet:
    if left == right:
        return left
    if not left or not right:
        return {SELF: MEMBER, **left, **right}
    result = dict(left)
    for step, node in right.items():
        result[step] = _union(left[step], node) if step in left else node
    return result


def _difference(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """Return the difference. Only common steps matter, so the loop runs over the smaller side."""
    if left == right:
        return None
    if not left:
        return None if is_member(right) else left
    result: FieldSet | None = None
    right = right or {SELF: MEMBER}
    smaller, larger = (left, right) if len(left) < len(right) else (right, left)
    for step in smaller:
        if step not in larger:
            continue
        rest = None if step == SELF else _difference(left[step], right[step])
        if rest is left[step]:
            continue
        if result is None:
            result = dict(left)
        if rest is None:
            del result[step]
        else:
            result[step] = rest
    if result is None:
        return left
    return _without_lone_self(result)


def _without_lone_self(node: FieldSet) -> FieldSet | None:
    """Return the node, or a plain member if it only has the key ``.``, or None if it is empty."""
    if not node:
        return None
    return MEMBER if len(node) == 1 and SELF in node else node


def _intersection(left: FieldSet, right: FieldSet) -> FieldSet | None:
    children: FieldSet = {}
    for step, node in left.items():
        if step != SELF and step in right:
            inner = _intersection(node, right[step])
            if inner is not None:
                children[step] = inner
    return node_of(children, member=is_member(left) and is_member(right))
