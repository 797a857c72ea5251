"""The shape of each field, derived from a structural schema: how its values merge.

Objects merge field by field, unless the schema declares them atomic. Lists are atomic, unless the
schema declares a map (items are identified by keys) or a set (items are identified by value).
Where the schema allows arbitrary content, objects merge and lists are atomic. A value whose type
does not match its shape is a leaf. Validation reports it; merging does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.schema.derive import PRESERVE
from datum_compute.api.schema.fast_path import ContentCache
from datum_compute.server.apply.field_set import FieldSet

_NAME_LENGTH_MAX = 128  # of names that are cached


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar, or a value that is owned as a whole."""


@dataclass(slots=True)
class ShapeCache:
    """The field sets that compare.py has computed for objects of one shape.

    A shape never changes, so entries stay valid.
    """

    leaf_items: dict[tuple[str, ...], FieldSet] = field(default_factory=dict)
    whole: ContentCache[FieldSet] = field(default_factory=ContentCache)
    claimed: ContentCache[FieldSet | None] = field(default_factory=ContentCache)


@dataclass(frozen=True, slots=True, eq=False)
class FieldMap:
    """An object: the shape of each named field, and the shape of all other fields.

    A named field whose shape is None has no owner.
    """

    named: Mapping[str, Shape | None]
    other: Shape | None = None  # None: the schema allows no other fields
    cache: ShapeCache = field(default_factory=ShapeCache, repr=False)

    def child(self, name: str) -> Shape | None:
        return self.named.get(name, self.other)


@dataclass(frozen=True, slots=True)
class KeyedList:
    """A list of objects that are identified by keys. ``defaults`` replace missing keys."""

    keys: tuple[str, ...]
    defaults: Mapping[str, Any]
    item: Shape
    lone_key: str = field(init=False)  # the key, if there is exactly one

    def __post_init__(self) -> None:
        object.__setattr__(self, "lone_key", self.keys[0] if len(self.keys) == 1 else "")

    def step(self, item: Any) -> str:
        """Return the path step of an item, or an empty string if a key is missing."""
        if not isinstance(item, dict):
            return ""
        if self.lone_key:
            text = item.get(self.lone_key)
            if type(text) is str and len(text) <= _NAME_LENGTH_MAX:
                return _step_of_name(self.lone_key, text)
        identity = {key: item.get(key, self.defaults.get(key)) for key in self.keys}
        return "" if None in identity.values() else f"k:{canonical_text(identity)}"


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A list of distinct values."""


@lru_cache(maxsize=1024)  # conditions, ports and containers of all objects share a few names
def _step_of_name(key: str, name: str) -> str:
    return f"k:{canonical_text({key: name})}"


Shape = Leaf | FieldMap | KeyedList | ValueSet
LISTS = (KeyedList, ValueSet)  # lists that merge item by item
LEAF = Leaf()
VALUES = ValueSet()
ATOMIC_LISTS_MAP = FieldMap({})
# Arbitrary content is arbitrary at every depth.
object.__setattr__(ATOMIC_LISTS_MAP, "other", ATOMIC_LISTS_MAP)
NOTHING = FieldMap({})

_TEXTS = FieldMap({}, LEAF)
# The metadata fields that have owners. The others identify the object or are set by the server.
METADATA = FieldMap(
    {
        "generateName": LEAF,
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "finalizers": VALUES,
        "ownerReferences": KeyedList(("uid",), {}, LEAF),
    }
)


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """The shapes of a kind: the fields that its main endpoint and each subresource may own."""

    main: FieldMap
    subresources: Mapping[str, FieldMap]

    def of(self, subresource: str) -> FieldMap:
        return self.subresources.get(subresource, NOTHING) if subresource else self.main


def object_shape(
    schema: JsonObject, *, has_status: bool, replicas_path: Sequence[str] = ()
) -> ObjectShape:
    others = _others(schema)
    parts = {name: shape_of(inner) for name, inner in schema.get("properties", {}).items()}
    status = parts.get("status", others or LEAF)
    # These fields have no owner, even if the schema preserves unknown fields.
    excluded = dict.fromkeys(("apiVersion", "kind", *(("status",) if has_status else ())))
    return ObjectShape(
        main=FieldMap({**parts, **excluded, "metadata": METADATA}, others),
        subresources={
            "status": FieldMap({"status": status}) if has_status else NOTHING,
            "finalize": FieldMap({"spec": parts.get("spec", LEAF)}),
            "scale": _scale_shape(replicas_path),
        },
    )


def _scale_shape(replicas_path: Sequence[str]) -> FieldMap:
    """The shape of the replicas field alone. An apply keeps the other metadata of the object."""
    if not replicas_path:
        return NOTHING
    inner: Shape = LEAF
    for name in reversed(replicas_path):
        inner = FieldMap({name: inner})
    assert isinstance(inner, FieldMap)
    return FieldMap({**inner.named, "metadata": NOTHING})


def shape_of(schema: JsonObject) -> Shape:
    match schema.get("type"):
        case "object":
            return _map_shape(schema)
        case "array":
            return _list_shape(schema)
        case None if schema.get(PRESERVE):
            return ATOMIC_LISTS_MAP
        case _:
            return LEAF


def _map_shape(schema: JsonObject) -> Shape:
    if schema.get("x-kubernetes-map-type") == "atomic":
        return LEAF
    named = {name: shape_of(inner) for name, inner in schema.get("properties", {}).items()}
    others = _others(schema)
    return FieldMap(named, others) if named or others is not None else ATOMIC_LISTS_MAP


def _others(schema: JsonObject) -> Shape | None:
    """Return the shape of fields that the schema does not name."""
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return shape_of(others)
    return ATOMIC_LISTS_MAP if others or schema.get(PRESERVE) else None


def _list_shape(schema: JsonObject) -> Shape:
    item = schema.get("items", {})
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = tuple(sorted(schema["x-kubernetes-list-map-keys"]))
            properties = item.get("properties", {})
            defaults = {
                k: properties[k]["default"] for k in keys if "default" in _of(properties, k)
            }
            return KeyedList(keys, defaults, shape_of(item))
        case "set":
            return VALUES
        case _:
            return LEAF


def _of(properties: JsonObject, name: str) -> JsonObject:
    found: JsonObject = properties.get(name, {})
    return found


def items_by_step(shape: KeyedList | ValueSet, items: list[Any]) -> dict[str, Any] | None:
    """Return the items by path step, or None if two items have the same step or one has none."""
    name = _value_step if isinstance(shape, ValueSet) else shape.step
    found = {name(item): item for item in items}
    return None if "" in found or len(found) < len(items) else found


def _value_step(item: Any) -> str:
    return f"v:{item}" if type(item) is int else f"v:{canonical_text(item)}"


def canonical_text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
