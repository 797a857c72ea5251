"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from datum_compute.api.codec import JsonObject


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
