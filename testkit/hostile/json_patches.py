"""Small JSON patches that are expensive to carry out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api.http import JSON_PATCH, Request
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import DEFINITIONS, WIDGETS, objects, widget, with_schema
from testkit.hostile.request import HostileRequest, project_request

_OPEN: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _widget(spec: Any) -> Sequence[Request]:
    """Requests that create an object whose spec may have any fields."""
    return [
        project_request("POST", DEFINITIONS, with_schema(objects(spec=_OPEN))),
        project_request("POST", WIDGETS, widget(spec=spec)),
    ]


def _patch(
    name: str, operations: list[JsonObject], status: int, mentions: str, spec: Any
) -> HostileRequest:
    return HostileRequest(
        name,
        setup=lambda: _widget(spec),
        requests=lambda: [
            project_request("PATCH", f"{WIDGETS}/w", operations, content_type=JSON_PATCH)
        ],
        status=status,
        mentions=mentions,
    )


def _nested(depth: int, name: str = "a") -> JsonObject:
    spec: JsonObject = {"x": 1}
    for _ in range(depth):
        spec = {name: spec}
    return spec


_DEEP = "/spec" + "/a" * 56
_ESCAPED = "/spec" + "/~1" * 56
_LONG_POINTERS = (
    ("empty parts", "/" * 3_000_000),
    ("short parts", "/a" * 1_500_000),
    ("escaped parts", "/~1" * 1_000_000),
)

REQUESTS = (
    *(
        _patch(
            f"JSON patch with a pointer of 3 MB of {what}",
            [{"op": "remove", "path": pointer}],
            400,
            "it may have 128",
            {},
        )
        for what, pointer in _LONG_POINTERS
    ),
    _patch(
        "JSON patch that moves along a pointer of 1.4 MB",
        [{"op": "move", "from": "/a" * 700_000, "path": "/a" * 700_001}],
        400,
        "it may have 128",
        {},
    ),
    _patch(
        "JSON patch with a pointer of one part of 3 MB",
        [{"op": "remove", "path": "/" + "~1" * 1_500_000}],
        422,
        "there is no",
        {},
    ),
    _patch(
        "JSON patch with 10,000 moves of a deep value",
        [{"op": "move", "from": f"{_DEEP}/x", "path": f"{_DEEP}/x"}] * 10_000,
        400,
        "replace a larger part of the object",
        _nested(56),
    ),
    _patch(
        "JSON patch with 10,000 replacements of a deep value",
        [{"op": "replace", "path": f"{_DEEP}/x", "value": 2}] * 10_000,
        400,
        "replace a larger part of the object",
        _nested(56),
    ),
    _patch(
        "JSON patch with 10,000 deep pointers with escapes",
        [{"op": "test", "path": f"{_ESCAPED}/x", "value": 1}] * 10_000,
        400,
        "replace a larger part of the object",
        _nested(56, "/"),
    ),
    _patch(
        "JSON patch with 10,000 operations on a value that is not deep",
        [{"op": "move", "from": "/spec/a/b/x", "path": "/spec/a/b/x"}] * 10_000,
        200,
        "",
        {"a": {"b": {"x": 1}}},
    ),
    _patch(
        "JSON patch with 40 copies of 7,000 fields",
        [{"op": "copy", "from": "/spec/m", "path": f"/spec/m{n}"} for n in range(40)],
        400,
        "at most 60000 values",
        {"m": {f"k{n}": 1 for n in range(7_000)}},
    ),
)
