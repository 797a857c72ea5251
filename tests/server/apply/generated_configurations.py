"""A small schema with all merge strategies of lists and maps, and strategies for its objects."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.field_shape import FieldMap, object_shape

_TEXT: JsonObject = {"type": "string"}
_PAIR: JsonObject = {"type": "object", "properties": {"x": _TEXT, "y": _TEXT}}
_ITEM: JsonObject = {
    "type": "object",
    "properties": {"name": _TEXT, "value": _TEXT, "sub": _PAIR},
}
_SPEC: JsonObject = {
    "a": _TEXT,
    "b": _TEXT,
    "nested": _PAIR,
    "texts": {"type": "object", "additionalProperties": _TEXT},
    "pairs": {"type": "object", "additionalProperties": _PAIR},
    "values": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
    "atoms": {"type": "array", "items": _TEXT},
    "items": {
        "type": "array",
        "items": _ITEM,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": _SPEC}},
}
SHAPE: FieldMap = object_shape(SCHEMA, has_status=True).main

_word = st.sampled_from(["1", "2"])
_pair = st.dictionaries(st.sampled_from(["x", "y"]), _word, min_size=1)


def _items() -> st.SearchStrategy[list[Any]]:
    rest = st.fixed_dictionaries({}, optional={"value": _word, "sub": _pair})
    by_name = st.dictionaries(st.sampled_from(["k", "l", "m"]), rest, min_size=1)
    return by_name.map(lambda found: [{"name": name, **item} for name, item in found.items()])


def _spec() -> st.SearchStrategy[JsonObject]:
    names = st.sampled_from(["p", "q"])
    return st.fixed_dictionaries(
        {},
        optional={
            "a": _word,
            "b": _word,
            "nested": _pair,
            "texts": st.dictionaries(names, _word, min_size=1),
            "pairs": st.dictionaries(names, _pair, min_size=1),
            "values": st.lists(st.sampled_from(["u", "v", "w"]), min_size=1, unique=True),
            "atoms": st.lists(_word, min_size=1, max_size=2),
            "items": _items(),
        },
    )


def configs() -> st.SearchStrategy[JsonObject]:
    """Configurations with at least one field."""
    return _spec().filter(bool).map(lambda spec: {"metadata": {"name": "n"}, "spec": spec})
