"""The one place where objects become bytes and bytes become objects.

Stored and foreign objects are plain dicts (orjson); our own kinds are frozen msgspec structs.
Snake case lives in Python, camel case on the wire: the struct base below translates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
import orjson

T = TypeVar("T")

JsonObject = dict[str, Any]


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every typed piece of an API object.

    Defaults are left out when encoding, so that a new field with a default changes no bytes
    and therefore no template hash.
    """


class DecodeError(ValueError):
    """The bytes are not the JSON, or not the type, that was asked for."""


def encode(value: Any) -> bytes:
    """JSON for the wire and the store."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value)
    return orjson.dumps(value)


def decode(body: bytes) -> Any:
    """Plain JSON value of a body."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DecodeError(str(error)) from error


def decode_as(body: bytes, model: type[T]) -> T:
    """Typed object of a body; fields the model does not know are dropped."""
    try:
        found: T = _decoder(cast(Any, model)).decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from error
    return found


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model)


def typed(value: Mapping[str, Any], model: type[T]) -> T:
    """Typed object of a plain JSON object."""
    try:
        return msgspec.convert(value, type=model)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from error


def plain(value: Any) -> Any:
    """Plain JSON value of a typed object, camel case, defaults left out."""
    return msgspec.to_builtins(value)


def canonical(value: Any) -> Any:
    """Plain JSON without the fields that equal their default, at any depth.

    msgspec leaves out a default only if it is the same Python object; this compares values, so
    that a default written out and a default left unsaid are one and the same. Structs that want
    all their fields said (omit_defaults=False: counts, conditions) keep them.
    """
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: canonical(getattr(value, field.name))
            for field in _fields(type(value))
            if not (value.__struct_config__.omit_defaults and _is_default(field, value))
        }
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return value


def canonical_where_unlike(one: msgspec.Struct, other: msgspec.Struct) -> list[JsonObject]:
    """The canonical JSON of two structs of a type, without the fields in which they are equal."""
    parts: list[JsonObject] = [{}, {}]
    omits = one.__struct_config__.omit_defaults
    for field in _fields(type(one)):
        if getattr(one, field.name) == getattr(other, field.name):
            continue
        for struct, part in zip((one, other), parts, strict=True):
            if not (omits and _is_default(field, struct)):
                part[field.encode_name] = canonical(getattr(struct, field.name))
    return parts


@cache
def _fields(model: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(model)


def _is_default(field: msgspec.structs.FieldInfo, owner: msgspec.Struct) -> bool:
    value = getattr(owner, field.name)
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return False


def canonical_hash(value: Any) -> str:
    """sha256 over sorted canonical JSON: equal content has equal hash, in every release."""
    body = orjson.dumps(canonical(value), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()


def sorted_bytes(value: Any) -> bytes:
    """Equal for values that are equal as JSON, whatever the order of their keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def copied(value: JsonObject) -> JsonObject:
    """Deep copy of a plain JSON object (an orjson round trip is the quickest)."""
    result: JsonObject = orjson.loads(orjson.dumps(value))
    return result
