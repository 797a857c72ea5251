"""Plain JSON documents: read from a request within limits, compared, stamped with a version."""

from __future__ import annotations

from typing import Any

import orjson

from datum_compute.api.codec import DecodeError, JsonObject, decode, encode
from datum_compute.api.errors import BadRequest
from datum_compute.api.exchange import JSON, Request
from datum_compute.server.negotiation import content_type, unsupported

DEPTH_MAX = 64
BODY_TYPES = (JSON,)


def decoded_body(request: Request) -> JsonObject:
    """The JSON object of a request; 415 for other formats, 400 for anything else."""
    found = content_type(request.headers)
    if found not in BODY_TYPES:
        raise unsupported(found, BODY_TYPES)
    return as_object(decoded_json(request.body))


def decoded_json(body: bytes) -> Any:
    if not body:
        raise BadRequest("the request has no body; send a JSON document")
    try:
        value = decode(body)
    except DecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    # No document is deeper than it has opening brackets, and counting those is quick.
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        check_depth(value)
    return value


def as_object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {json_type(value)}")
    return value


def check_depth(value: Any, depth_max: int = DEPTH_MAX) -> None:
    """Every walk over a document may recurse after this one, which does not."""
    level = _inside([value])
    for _ in range(depth_max):
        if not level:
            return
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise BadRequest(f"the document is nested more than {DEPTH_MAX} levels deep")


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1, 3 is not 3.0, the order of keys does not matter."""
    return bool(left == right) and _canonical(left) == _canonical(right)


def stamped(obj: JsonObject, version: int) -> bytes:
    """The bytes of an object at a version."""
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    return encode({**obj, "metadata": metadata})


def json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _inside(value: JsonObject | list[Any]) -> list[Any]:
    """The containers directly in a container."""
    items = value.values() if isinstance(value, dict) else value
    return [item for item in items if isinstance(item, dict | list)]


def _canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
