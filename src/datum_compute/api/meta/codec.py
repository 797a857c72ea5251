"""The one place where objects become bytes and bytes become objects.

Stored and foreign objects are plain dicts (orjson); our own kinds are frozen msgspec structs.
Snake case lives in Python, camel case on the wire: the struct base below translates.
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
    """Base of every typed piece of an API object.

    Defaults are left out when encoding, so that a new field with a default changes no bytes
    and therefore no template hash. Frozen trees have no cycles, so the collector of garbage need
    not look at them.
    """


_SCALARS = frozenset((str, int, float, bool, type(None)))
_NEVER = object()  # equals no value: of fields that are always said


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


def from_json(value: Mapping[str, Any], model: type[T]) -> T:
    """Typed object of a plain JSON object."""
    try:
        return msgspec.convert(value, type=model)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error)) from error


def to_json(value: Any) -> Any:
    """Plain JSON value of a typed object, camel case, defaults left out."""
    return msgspec.to_builtins(value)


def canonical(value: Any) -> Any:
    """Plain JSON without the fields that equal their default, at any depth.

    msgspec leaves out a default only if it is the same Python object; this compares values, so
    that a default written out and a default left unsaid are one and the same. Structs that want
    all their fields said (omit_defaults=False: counts, conditions) keep them.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    # Scalars are most of what there is: they are not worth a call each.
    if kind is dict:
        return {n: i if type(i) in _SCALARS else canonical(i) for n, i in value.items()}
    if kind is list:
        if value and isinstance(value[0], msgspec.Struct) and _says_all(type(value[0])):
            return msgspec.to_builtins(value)  # conditions, nearly always
        return [item if type(item) in _SCALARS else canonical(item) for item in value]
    if isinstance(value, msgspec.Struct):
        found = {}
        for name, said_as, default in encoded_fields(type(value)):
            item = getattr(value, name)
            if item != default:
                found[said_as] = item if type(item) in _SCALARS else canonical(item)
        return found
    return value


def canonical_diff_inputs(one: msgspec.Struct, other: msgspec.Struct) -> list[JsonObject]:
    """The canonical JSON of two structs of a type, without the fields in which they are equal: what
    a patch from the one to the other is made of. Of a list in the first, which a patch replaces as
    a whole, is only said that it is another one: null."""
    parts: list[JsonObject] = [{}, {}]
    for name, said_as, default in encoded_fields(type(one)):
        items = getattr(one, name), getattr(other, name)
        if items[0] == items[1]:
            continue
        if items[0] != default:
            parts[0][said_as] = None if type(items[0]) is list else canonical(items[0])
        if items[1] != default:
            parts[1][said_as] = canonical(items[1])
    return parts


@cache
def _says_all(model: type[msgspec.Struct]) -> bool:
    """Whether a struct always says all of its fields, and they are scalars: then nothing in it is
    left out."""
    fields = msgspec.structs.fields(model)
    scalar = (str, int, float, bool)
    is_plain = all(_bare(field.type) in scalar for field in fields)
    return is_plain and not model.__struct_config__.omit_defaults


def _bare(annotation: Any) -> Any:
    """A type without what is said about it; the type of the values of a Literal."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        kinds = {type(value) for value in get_args(annotation)}
        return kinds.pop() if len(kinds) == 1 else None
    return annotation


@cache
def encoded_fields(model: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Of each field: its name, how it is called in JSON, and the value that need not be said."""
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
