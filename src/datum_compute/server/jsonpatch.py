"""JSON patch (RFC 6902).

A patch that cannot be read is a BadRequest; one that does not fit the object (a missing path, a
failed test) is Invalid, which is what controllers that use ``test`` as a precondition expect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from datum_compute.api.codec import JsonObject, copied, decode, encode
from datum_compute.api.errors import BadRequest, Invalid
from datum_compute.server.document import DEPTH_MAX, check_depth, json_type
from datum_compute.server.problems import shortened

OPERATIONS_MAX = 10_000
COPIED_BYTES_MAX = 3 * 1024 * 1024

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

Pointer = list[str]


def patched(target: JsonObject, operations: Any) -> Any:
    """A new document; the target stays as it is."""
    if not isinstance(operations, list):
        raise BadRequest(f"a JSON patch must be an array, not {json_type(operations)}")
    if len(operations) > OPERATIONS_MAX:
        raise BadRequest(f"a JSON patch may have at most {OPERATIONS_MAX} operations")
    session = _Session(copied(target))
    for operation in operations:
        session.apply(operation)
    return session.document


class _Session:
    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied_bytes = 0
        self._operations: dict[str, Callable[[JsonObject, Pointer], None]] = {
            "add": lambda operation, path: self._add(path, _fresh(_value(operation))),
            "remove": lambda operation, path: self._discard(path),
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise BadRequest(f"an operation must be an object, not {json_type(operation)}")
        name = operation.get("op")
        run = self._operations.get(name) if isinstance(name, str) else None
        if run is None:
            listed = ", ".join(self._operations)
            raise BadRequest(f"unknown operation {shortened(repr(name))}; known are: {listed}")
        run(operation, _pointer(operation, "path"))

    def _replace(self, operation: JsonObject, path: Pointer) -> None:
        value = _fresh(_value(operation))
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

    def _move(self, operation: JsonObject, path: Pointer) -> None:
        source = _pointer(operation, "from")
        if path[: len(source)] == source and path != source:
            raise Invalid(f"cannot move {_shown(source)} into itself")
        value = self._copied(source)
        self._discard(source)
        self._add(path, value)

    def _copy(self, operation: JsonObject, path: Pointer) -> None:
        self._add(path, self._copied(_pointer(operation, "from")))

    def _copied(self, source: Pointer) -> Any:
        """Copies and moves share one budget: a short patch must not make a huge document or
        much work."""
        body = encode(self._read(source))
        self._copied_bytes += len(body)
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise BadRequest(f"a JSON patch may copy or move at most {COPIED_BYTES_MAX} bytes")
        return decode(body)

    def _test(self, operation: JsonObject, path: Pointer) -> None:
        if not _equal(self._read(path), _value(operation)):
            raise Invalid(f"testing value {_shown(path)} failed")

    def _add(self, path: Pointer, value: Any) -> None:
        # Repeated copies and moves could nest deeper than any document that comes in.
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
            parent.insert(_index(last, len(parent), path), value)

    def _discard(self, path: Pointer) -> None:
        _require(bool(path), path)
        parent, last = self._parent(path)
        if isinstance(parent, dict):
            _require(last in parent, path)
            del parent[last]
        else:
            del parent[_index(last, len(parent) - 1, path)]

    def _read(self, path: Pointer) -> Any:
        found = self.document
        for step in path:
            if isinstance(found, dict):
                _require(step in found, path)
                found = found[step]
            elif isinstance(found, list):
                found = found[_index(step, len(found) - 1, path)]
            else:
                raise _missing(path)
        return found

    def _parent(self, path: Pointer) -> tuple[JsonObject | list[Any], str]:
        parent = self._read(path[:-1])
        if not isinstance(parent, dict | list):
            raise _missing(path)
        return parent, path[-1]


def _value(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise BadRequest(f"operation {operation['op']!r} needs a value")
    return operation["value"]


def _fresh(value: Any) -> Any:
    """A later operation may change what this one put in; the patch itself must stay whole."""
    return decode(encode(value)) if isinstance(value, dict | list) else value


def _pointer(operation: JsonObject, field: str) -> Pointer:
    text = operation.get(field)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise BadRequest(f"{field!r} of operation {operation['op']!r} must be a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(text: str, highest: int, path: Pointer) -> int:
    if not _INDEX.fullmatch(text) or int(text) > highest:
        raise _missing(path)
    return int(text)


def _require(found: bool, path: Pointer) -> None:
    if not found:
        raise _missing(path)


def _missing(path: Pointer) -> Invalid:
    return Invalid(f"the JSON patch does not fit the object: there is no {_shown(path)}")


def _shown(path: Pointer) -> str:
    parts = (part.replace("~", "~0").replace("/", "~1") for part in path)
    return shortened("".join(f"/{part}" for part in parts) or '""')


def _equal(left: Any, right: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
