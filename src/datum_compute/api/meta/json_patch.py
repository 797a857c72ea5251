"""JSON merge patches (RFC 7386): applied to an object, or made from two."""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import JsonObject


def merged(target: Any, patch: JsonObject) -> JsonObject:
    """``target`` with the patch applied; null removes, objects merge, all else replaces."""
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = value
    return result


def merge_patch(observed: JsonObject, desired: JsonObject) -> JsonObject:
    """The patch that turns ``observed`` into ``desired``; empty if they are equal.

    Lists are replaced whole, so a patch that holds one goes with the version that was read.
    """
    patch: JsonObject = {name: None for name in observed if name not in desired}
    for name, value in desired.items():
        old = observed.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = merge_patch(old, value)
            if inner:
                patch[name] = inner
        elif old != value:
            patch[name] = value
    return patch


# --- The JSON patch (RFC 6902) from one document to another, for answers of a mutating webhook


def json_patch(before: Any, after: Any, path: str = "") -> list[JsonObject]:
    """Objects are compared field by field, lists item by item while their length stays."""
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [op for i, (old, new) in pairs for op in json_patch(old, new, f"{path}/{i}")]
    if type(before) is type(after) and before == after:
        return []
    return [{"op": "replace", "path": path, "value": after}]


def _of_objects(before: JsonObject, after: JsonObject, path: str) -> list[JsonObject]:
    gone = (name for name in before if name not in after)
    operations: list[JsonObject] = [
        {"op": "remove", "path": f"{path}/{_escaped(name)}"} for name in gone
    ]
    for name, value in after.items():
        here = f"{path}/{_escaped(name)}"
        if name in before:
            operations += json_patch(before[name], value, here)
        else:
            operations.append({"op": "add", "path": here, "value": value})
    return operations


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
