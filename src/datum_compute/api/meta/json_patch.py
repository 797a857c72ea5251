"""JSON merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import JsonObject


def apply_merge_patch(target: Any, patch: JsonObject) -> JsonObject:
    """Return ``target`` with the patch applied. Null removes a field, objects merge, other values
    replace.
    """
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = apply_merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result


def build_merge_patch(observed: JsonObject, desired: JsonObject) -> JsonObject:
    """Return the patch that turns ``observed`` into ``desired``, or an empty one if they are equal.

    Lists are replaced whole, so send a patch that contains one together with the version that was
    read.
    """
    patch: JsonObject = {name: None for name in observed if name not in desired}
    for name, value in desired.items():
        old = observed.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = build_merge_patch(old, value)
            if inner:
                patch[name] = inner
        elif old != value:
            patch[name] = value
    return patch


# --- JSON patch, for responses of the mutating webhook


def json_patch(before: Any, after: Any, path: str = "") -> list[JsonObject]:
    """Return the operations between two documents. Lists of equal length are compared
    item by item.
    """
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
        {"op": "remove", "path": f"{path}/{_escape_name(name)}"} for name in gone
    ]
    for name, value in after.items():
        here = f"{path}/{_escape_name(name)}"
        if name in before:
            operations += json_patch(before[name], value, here)
        else:
            operations.append({"op": "add", "path": here, "value": value})
    return operations


def _escape_name(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
