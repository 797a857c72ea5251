"""Request bodies and JSON documents: decode within limits, compare, and encode at a version.

Bodies are JSON, YAML or, for built-in kinds, protobuf. To add a format: write a function from bytes
to a JSON value, and list it in ``_FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from datum_compute.api.errors import BadRequest, RequestEntityTooLarge, shorten
from datum_compute.api.http import JSON, PROTOBUF, YAML, Request
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, encode
from datum_compute.api.meta.yaml import (
    PARSER_SLOWDOWN,
    YamlError,
    YamlLimits,
    YamlTooLarge,
    parse_yaml,
)
from datum_compute.server.encoding.protobuf_kinds import decode_protobuf
from datum_compute.server.encoding.request_options import content_type, unsupported_media_type

# --- YAML request bodies, parsed into JSON values
# Anything that JSON cannot express is rejected: aliases, tags, duplicate keys, several documents.
# Parsing YAML takes a hundred times as long as parsing JSON and blocks the event loop. The limit on
# values keeps it well below 100 ms.


YAML_BYTES_MAX = 1024 * 1024 // PARSER_SLOWDOWN
YAML_VALUES_MAX = 20_000 // PARSER_SLOWDOWN
_LIMITS = YamlLimits(chars_max=YAML_BYTES_MAX, values_max=YAML_VALUES_MAX)


def decode_yaml(body: bytes) -> Any:
    """Return the JSON value. Raises 413 for a body above the limits, 400 for an invalid one."""
    if len(body) > YAML_BYTES_MAX:
        raise RequestEntityTooLarge(
            f"Request entity too large: limit is {YAML_BYTES_MAX} for YAML; send JSON instead"
        )
    try:
        documents = parse_yaml(body.decode(), _LIMITS)
        value = documents[0].value if documents else None
        encode(value)
    except YamlTooLarge as error:
        raise RequestEntityTooLarge(
            f"Request entity too large: {_format_yaml_error(error)}; send JSON instead"
        ) from error
    except YamlError as error:
        raise BadRequest(f"the body is not valid YAML: {_format_yaml_error(error)}") from error
    except (UnicodeError, TypeError, ValueError) as error:
        raise BadRequest(f"the body is not valid YAML: {shorten(str(error))}") from error
    return value


def _format_yaml_error(error: YamlError) -> str:
    return f"line {error.line}: {error.message}" if error.line else error.message


# --- Decoding and comparing documents


DEPTH_MAX = 64
VALUES_MAX = 60_000  # values and containers in one document; the server walks it several times
_BYTES_PER_VALUE_MIN = 2  # a digit and a comma
_OWNERS_DEEPER = 8
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'",{['))


def decode_body(request: Request) -> JsonObject:
    """Decode the object of a request. Raise UnsupportedMediaType or BadRequest."""
    found = content_type(request.headers)
    read = _FORMATS.get(found)
    if read is None:
        raise unsupported_media_type(found, tuple(_FORMATS))
    return as_object(read(request.body))


def decode_json_or_yaml(body: bytes) -> Any:
    """Decode YAML. Try JSON first, because parsing JSON is much faster."""
    if body.lstrip()[:1] == b"{":
        try:
            return decode_json(body)
        except BadRequest:
            pass  # may be YAML in flow style
    return decode_yaml(body)


def decode_json(body: bytes) -> Any:
    if not body:
        raise BadRequest("the request has no body; send a JSON document")
    if len(body) > _BYTES_PER_VALUE_MIN * VALUES_MAX:
        check_value_count(body)
    try:
        value = decode(body)
    except DecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    # The number of opening brackets is an upper bound of the depth.
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        _check_object_depth(value)
    return value


def check_value_count(body: bytes) -> None:
    """Reject JSON with too many values before it is decoded.

    Separators outside of strings are only counted if there are too many in total, because that
    takes longer.
    """
    if _count_separators(body) <= VALUES_MAX:
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A field has at most two strings, its name and its value.
    if body.count(b'"') > 4 * VALUES_MAX or _count_separators(_outside_strings(body)) > VALUES_MAX:
        raise RequestEntityTooLarge(
            f"the document has too many values and containers, it may have {VALUES_MAX}; split "
            "it into several objects"
        )


def _outside_strings(body: bytes) -> bytes:
    """Return the separators of a text without escapes that are outside of strings."""
    return b"".join(body.translate(None, _NOT_STRUCTURE).split(b'"')[::2])


def _count_separators(body: bytes) -> int:
    return body.count(b",") + _count_opening_brackets(body)


def _count_opening_brackets(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[")


def as_object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {json_type(value)}")
    return value


def check_depth(value: Any, depth_max: int = DEPTH_MAX) -> None:
    """Reject a document that is too deep. Later walks may recurse; this one does not."""
    if not isinstance(value, dict | list):
        return
    level = _inside([value])
    for _ in range(depth_max):
        if not level:
            return
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise BadRequest(f"the document is nested more than {DEPTH_MAX} levels deep")


def count_values(value: Any) -> int:
    """Return the number of values and containers in a document."""
    if not isinstance(value, dict | list):
        return 1
    count, level = 1, [value]
    while level:
        count += sum(map(len, level))
        level = [inner for outer in level for inner in _inside(outer)]
    return count


def _check_object_depth(value: Any) -> None:
    """Check the depth. The managedFields of an object are a little deeper than the object."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return check_depth(value)
    check_depth(metadata["managedFields"], DEPTH_MAX + _OWNERS_DEEPER)
    rest = {name: part for name, part in metadata.items() if name != "managedFields"}
    return check_depth({**value, "metadata": rest})


def json_equal(left: Any, right: Any) -> bool:
    """Return True if both are the same JSON: true is not 1, 3 is not 3.0, keys have no order."""
    if left is right:
        return True
    if left != right:
        return False
    return type(left) is str or _canonical(left) == _canonical(right)


def same_fields(left: JsonObject, right: JsonObject) -> bool:
    """Return the same as ``json_equal``, faster for objects that share values."""
    if left.keys() != right.keys():
        return False
    for name, value in left.items():  # a loop, because a generator costs more than most of these
        if value is not right[name] and not json_equal(value, right[name]):
            return False
    return True


def encode_at_version(obj: JsonObject, version: int) -> bytes:
    """Encode an object with this resourceVersion."""
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


_FORMATS: dict[str, Callable[[bytes], Any]] = {
    JSON: decode_json,
    YAML: decode_json_or_yaml,
    PROTOBUF: decode_protobuf,
}


def _inside(value: JsonObject | list[Any]) -> list[Any]:
    """Return the containers that are direct children of a container."""
    items = value.values() if isinstance(value, dict) else value
    return [item for item in items if isinstance(item, dict | list)]


def _canonical(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
