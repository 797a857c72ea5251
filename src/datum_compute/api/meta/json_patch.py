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
