"""JSON patch (RFC 6902).

A malformed patch is a BadRequest. A patch that does not match the object (a missing path, a failed
test) is Invalid, which controllers that use ``test`` as a precondition expect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from datum_compute.api.errors import BadRequest, Invalid, shorten
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.encoding.body import DEPTH_MAX, check_depth, count_values, json_type

OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 * 1024 * 1024
TRANSFERRED_VALUES_MAX = 60_000  # values and containers that are copied or moved
SHIFTED_ITEMS_MAX = 50_000_000  # list items moved by insertions and removals
POINTER_PARTS_MAX = 2 * DEPTH_MAX  # metadata.managedFields is deeper than other fields
POINTER_PARTS_TOTAL_MAX = 100_000  # of all pointers of a patch
_RENDERED_LENGTH_MAX = 120  # of a pointer in an error message

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

Pointer = list[str]


def apply_json_patch(target: JsonObject, operations: Any) -> Any:
    """Apply the operations and return a new document. The target is not changed."""
    if not isinstance(operations, list):
        raise BadRequest(f"a JSON patch must be an array, not {json_type(operations)}")
    if len(operations) > OPERATIONS_MAX:
        raise BadRequest(f"a JSON patch may have at most {OPERATIONS_MAX} operations")
    session = _Session(target)
    for operation in operations:
        _carry_out(session, operation)
    return session.document


def _carry_out(session: _Session, operation: Any) -> None:
    if not isinstance(operation, dict):
        raise BadRequest(f"an operation must be an object, not {json_type(operation)}")
    name = operation.get("op")
    run = _OPERATIONS.get(name) if isinstance(name, str) else None
    if run is None:
        listed = ", ".join(_OPERATIONS)
        raise BadRequest(f"unknown operation {shorten(repr(name))}; known are: {listed}")
    run(session, operation, session.parse_pointer(operation, "path"))


class _Session:
    """The document while a patch is applied.

    It shares unchanged values with the target and the patch. An object or list is copied before its
    first change.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied_bytes = 0
        self._transferred_values = 0
        self._pointer_parts = 0
        self._shifted_items = 0
        self._ours: dict[int, JsonObject | list[Any]] = {}  # our copies by id()

    def parse_pointer(self, operation: JsonObject, field: str) -> Pointer:
        """Return the parts of a pointer. Count them before the split, which takes memory for each,
        and because every part is a step from the root of the document."""
        text = operation.get(field)
        if not isinstance(text, str) or (text and not text.startswith("/")):
            raise BadRequest(f"{field!r} of operation {operation['op']!r} must be a JSON pointer")
        count = text.count("/")
        if count > POINTER_PARTS_MAX:
            raise BadRequest(
                f"{field!r} of operation {operation['op']!r} has {count} parts, it may have "
                f"{POINTER_PARTS_MAX}; no document is nested deeper"
            )
        self._pointer_parts += count
        if self._pointer_parts > POINTER_PARTS_TOTAL_MAX:
            raise BadRequest(
                f"the pointers of a JSON patch may have at most {POINTER_PARTS_TOTAL_MAX} parts "
                "together; replace a larger part of the object instead"
            )
        parts = text.split("/")[1:]
        if "~" not in text:
            return parts
        return [part.replace("~1", "/").replace("~0", "~") for part in parts]

    def add(self, operation: JsonObject, path: Pointer) -> None:
        self._add(path, _value(operation))

    def remove(self, _operation: JsonObject, path: Pointer) -> None:
        self._discard(path)

    def replace(self, operation: JsonObject, path: Pointer) -> None:
        value = _value(operation)
        check_depth(value, DEPTH_MAX - len(path))
        if not path:
            self.document = value
            return
        parent, last = self._parent(path)
        if isinstance(parent, dict):
            _require(last in parent, path)
            parent[last] = value
        else:
            parent[_index(last, len(parent) - 1, path)] = value

    def move(self, operation: JsonObject, path: Pointer) -> None:
        source = self.parse_pointer(operation, "from")
        if path[: len(source)] == source and path != source:
            raise Invalid(f"cannot move {_render_pointer(source)} into itself")
        value = self._discard(source)
        self._count_values(value)
        self._add(path, value)

    def copy(self, operation: JsonObject, path: Pointer) -> None:
        self._add(path, self._copy_at(self.parse_pointer(operation, "from")))

    def test(self, operation: JsonObject, path: Pointer) -> None:
        if not _equal(self._read(path), _value(operation)):
            raise Invalid(f"testing value {_render_pointer(path)} failed")

    def _copy_at(self, source: Pointer) -> Any:
        """Return a copy. Its bytes count, so that a short patch cannot create a huge object."""
        value = self._read(source)
        self._count_values(value)
        body = encode(value)
        self._copied_bytes += len(body)
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise BadRequest(
                f"a JSON patch may copy at most {COPIED_BYTES_MAX} bytes; send several patches"
            )
        return decode(body)

    def _count_values(self, value: Any) -> None:
        """Copies and moves share one limit on values, because both visit each of them."""
        self._transferred_values += count_values(value)
        if self._transferred_values > TRANSFERRED_VALUES_MAX:
            raise BadRequest(
                f"a JSON patch may copy or move at most {TRANSFERRED_VALUES_MAX} values; send "
                "several patches"
            )

    def _add(self, path: Pointer, value: Any) -> None:
        # Repeated copies and moves could exceed the depth limit of request bodies.
        check_depth(value, DEPTH_MAX - len(path))
        if not path:
            self.document = value
            return
        parent, last = self._parent(path)
        if isinstance(parent, dict):
            parent[last] = value
        elif last == "-":
            parent.append(value)
        else:
            index = _index(last, len(parent), path)
            self._shift(len(parent) - index)
            parent.insert(index, value)

    def _discard(self, path: Pointer) -> Any:
        """Remove a value and return it."""
        _require(bool(path), path)
        parent, last = self._parent(path)
        if isinstance(parent, dict):
            _require(last in parent, path)
            return parent.pop(last)
        index = _index(last, len(parent) - 1, path)
        self._shift(len(parent) - index)
        return parent.pop(index)

    def _shift(self, items: int) -> None:
        """Count the list items that move because an item before them is inserted or removed."""
        self._shifted_items += items
        if self._shifted_items > SHIFTED_ITEMS_MAX:
            raise BadRequest(
                f"a JSON patch may shift at most {SHIFTED_ITEMS_MAX} items of lists; replace the "
                "list instead"
            )

    def _read(self, path: Pointer) -> Any:
        found = self.document
        for step in path:
            found = found[_key(found, step, path)]
        return found

    def _parent(self, path: Pointer) -> tuple[JsonObject | list[Any], str]:
        """Return our copy of the container of a path's last part, and that part."""
        parent = self.document = self._own(self.document)
        for step in path[:-1]:
            key = _key(parent, step, path)
            inner = self._own(parent[key])
            parent[key] = inner
            parent = inner
        if not isinstance(parent, dict | list):
            raise _missing(path)
        return parent, path[-1]

    def _own(self, value: Any) -> Any:
        if id(value) in self._ours or not isinstance(value, dict | list):
            return value
        ours = value.copy()
        self._ours[id(ours)] = ours
        return ours


_OPERATIONS: dict[str, Callable[[_Session, JsonObject, Pointer], None]] = {
    "add": _Session.add,
    "remove": _Session.remove,
    "replace": _Session.replace,
    "move": _Session.move,
    "copy": _Session.copy,
    "test": _Session.test,
}


def _key(holder: Any, step: str, path: Pointer) -> Any:
    """Return the key or index of the next part of a path in an object or list."""
    if isinstance(holder, dict) and step in holder:
        return step
    if isinstance(holder, list):
        return _index(step, len(holder) - 1, path)
    raise _missing(path)


def _value(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise BadRequest(f"operation {operation['op']!r} needs a value")
    return operation["value"]


def _index(text: str, highest: int, path: Pointer) -> int:
    if not _INDEX.fullmatch(text) or int(text) > highest:
        raise _missing(path)
    return int(text)


def _require(found: bool, path: Pointer) -> None:
    if not found:
        raise _missing(path)


def _missing(path: Pointer) -> Invalid:
    return Invalid(f"the JSON patch does not fit the object: there is no {_render_pointer(path)}")


def _render_pointer(path: Pointer) -> str:
    """Return a pointer as text, shortened for an error message."""
    text = ""
    for part in path:
        text += "/" + part[:_RENDERED_LENGTH_MAX].replace("~", "~0").replace("/", "~1")
        if len(text) > _RENDERED_LENGTH_MAX:
            break
    return shorten(text or '""', _RENDERED_LENGTH_MAX)


def _equal(left: Any, right: Any) -> bool:
    """Return True if both are equal JSON values: 1 equals 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
