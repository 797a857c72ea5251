"""Encodes and decodes API objects. No other module does.

Objects of unknown kinds are plain dicts (orjson). Kinds of the platform are frozen msgspec structs,
whose base class translates snake case in Python to camel case on the wire.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec
import orjson

T = TypeVar("T")

JsonObject = dict[str, Any]


class ApiStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Base of every typed part of an API object.

    Encoding leaves out defaults, so that a new field with a default changes no bytes and no
    template hash. Frozen trees have no cycles, so the garbage collector does not track them.
    """


_SCALARS = frozenset((str, int, float, bool, type(None)))
_NEVER = object()  # default of fields that are always encoded; equal to no value


class DecodeError(ValueError):
    """The bytes are not valid JSON, or not of the expected type."""


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value)
    return orjson.dumps(value)


def decode(body: bytes) -> Any:
    """Return the plain JSON value of a body."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DecodeError(str(error)) from error


def decode_as(body: bytes, model: type[T]) -> T:
    """Return the typed object of a body. Fields that the model does not define are dropped."""
    try:
        found: T = _decoder(cast(Any, model)).decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from error
    return found


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model)


def from_json(value: Mapping[str, Any], model: type[T]) -> T:
    """Return the typed object of a plain JSON object."""
    try:
        return msgspec.convert(value, type=model)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from error


def to_json(value: Any) -> Any:
    """Return a typed object as plain JSON in camel case, without defaults."""
    return msgspec.to_builtins(value)


def canonical(value: Any) -> Any:
    """Return plain JSON without the fields that equal their default, at any depth.

    msgspec leaves out a default only if it is the same Python object. This function compares
    values, so that an explicit default and a missing field are the same. Structs with
    omit_defaults=False (counts and conditions) keep all fields.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    # Most values are scalars, so they are handled without a call.
    if kind is dict:
        return {n: i if type(i) in _SCALARS else canonical(i) for n, i in value.items()}
    if kind is list:
        if value and isinstance(value[0], msgspec.Struct) and _encodes_all_fields(type(value[0])):
            return msgspec.to_builtins(value)  # almost always conditions
        return [item if type(item) in _SCALARS else canonical(item) for item in value]
    if isinstance(value, msgspec.Struct):
        found = {}
        for name, json_name, default in encoded_fields(type(value)):
            item = getattr(value, name)
            if item != default:
                found[json_name] = item if type(item) in _SCALARS else canonical(item)
        return found
    return value


def canonical_diff_inputs(one: msgspec.Struct, other: msgspec.Struct) -> list[JsonObject]:
    """Return the canonical JSON of two structs without the fields in which they are equal.

    A patch is built from the two results. Lists are replaced whole, so the first result contains
    null in place of a changed list.
    """
    parts: list[JsonObject] = [{}, {}]
    for name, json_name, default in encoded_fields(type(one)):
        items = getattr(one, name), getattr(other, name)
        if items[0] == items[1]:
            continue
        if items[0] != default:
            parts[0][json_name] = None if type(items[0]) is list else canonical(items[0])
        if items[1] != default:
            parts[1][json_name] = canonical(items[1])
    return parts


@cache
def _encodes_all_fields(model: type[msgspec.Struct]) -> bool:
    """Return True if a struct has only scalar fields and encodes all of them."""
    fields = msgspec.structs.fields(model)
    scalar = (str, int, float, bool)
    is_plain = all(_bare(field.type) in scalar for field in fields)
    return is_plain and not model.__struct_config__.omit_defaults


def _bare(annotation: Any) -> Any:
    """Return a type without its annotations, or the type of the values of a Literal."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        kinds = {type(value) for value in get_args(annotation)}
        return kinds.pop() if len(kinds) == 1 else None
    return annotation


@cache
def encoded_fields(model: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return the name, the JSON name and the default of each field."""
    omits = model.__struct_config__.omit_defaults
    return tuple(
        (field.name, field.encode_name, _default(field) if omits else _NEVER)
        for field in msgspec.structs.fields(model)
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return _NEVER


def canonical_hash(value: Any) -> str:
    """Return the SHA-256 hash of sorted canonical JSON. It is stable between releases."""
    body = orjson.dumps(canonical(value), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()


def sorted_bytes(value: Any) -> bytes:
    """Return bytes that are equal for equal JSON values, whatever the order of their keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def deep_copy(value: JsonObject) -> JsonObject:
    """Return a deep copy of a plain JSON object. An orjson round trip is the fastest way."""
    result: JsonObject = orjson.loads(orjson.dumps(value))
    return result
