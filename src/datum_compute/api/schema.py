"""The structural schema of a kind, derived from its model.

What a CRD, OpenAPI and the server's checks need, in the dialect Kubernetes calls structural:
no references, no nulls in unions, and only those defaults that say something.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import msgspec

from datum_compute.api.codec import JsonObject, plain
from datum_compute.api.meta import KindInfo

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"


@cache
def structural_schema(kind: KindInfo[Any]) -> JsonObject:
    """Schema of a whole object; metadata is checked by its own rules and left open here."""
    document = msgspec.json.schema(kind.model)
    definitions = document["$defs"]
    root = _inlined(document, definitions)
    root["properties"]["metadata"] = {"type": "object"}
    for part in ("spec", "status"):
        if part in root["properties"]:
            root["properties"][part].pop("default", None)
            if kind.partial:
                _open(root["properties"][part])
    return {"description": kind_description(kind), **root}


def kind_description(kind: KindInfo[Any]) -> str:
    """What the kind is, in the words that open its module."""
    module = sys.modules[kind.model.__module__]
    return " ".join((module.__doc__ or kind.kind).split())


def _inlined(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """The schema with references replaced by what they refer to."""
    schema = plain(schema)
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{k: v for k, v in schema.items() if k not in ("$ref", "$defs")}}
    if "anyOf" in schema:
        (some,) = [s for s in schema.pop("anyOf") if s.get("type") != "null"]
        schema = {**some, **schema}
        schema = _inlined(schema, definitions) if "$ref" in schema else schema
    schema.pop("title", None)
    if "properties" in schema:
        schema["properties"] = {
            name: _inlined(s, definitions) for name, s in schema["properties"].items()
        }
        if not schema.get("required"):
            schema.pop("required", None)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            schema[inner] = _inlined(schema[inner], definitions)
    if "enum" in schema:
        schema.setdefault("type", "string")
    if _is_free_form(schema):
        schema = {PRESERVE: True, **{k: v for k, v in schema.items() if not _is_map(k)}}
    if not _says_something(schema):
        schema.pop("default", None)
    return schema


def _open(schema: JsonObject) -> None:
    """Keep unknown fields at every depth: we model a neighbour's kind only in part."""
    if "properties" in schema:
        schema[PRESERVE] = True
    for inner in schema.get("properties", {}).values():
        _open(inner)
    if "items" in schema:
        _open(schema["items"])


def _is_free_form(schema: JsonObject) -> bool:
    """An object of which nothing is said; a real API server would empty it."""
    says = schema.get("additionalProperties") or schema.get("properties")
    return schema.get("type") == "object" and not says


def _is_map(keyword: str) -> bool:
    return keyword == "additionalProperties"


def _says_something(schema: JsonObject) -> bool:
    """Whether a default is worth storing: a value, or an object whose own fields default."""
    default = schema.get("default")
    if default == {}:
        return any(_says_something(s) for s in schema.get("properties", {}).values())
    return bool(default)
