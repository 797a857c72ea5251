"""Derives the structural schema and the CustomResourceDefinition of a kind from its class.

A structural schema of Kubernetes has no references and no nulls in unions. It contains only useful
defaults, a merge type for each list, and one kind of union: an integer or a string.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import msgspec

from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.fields import INT64_MAX, LIST_TYPE
from datum_compute.api.meta.objects import KindInfo, Scale, TableColumn

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"

_PARTS = {
    "spec": "Desired state of the object.",
    "status": "Observed state of the object. Controllers write it.",
}


@cache
def structural_schema(kind: KindInfo[Any]) -> JsonObject:
    """Return the schema of a whole object. Metadata stays open, because other rules check it."""
    document = msgspec.json.schema(kind.model)
    definitions = document["$defs"]
    root = _inline(document, definitions)
    root["properties"]["metadata"] = {"type": "object"}
    for part, description in _PARTS.items():
        if part in root["properties"]:
            schema = root["properties"][part]
            schema.setdefault("description", description)
            if not _is_seeded(kind, part):
                schema.pop("default", None)  # a part that was not sent is not stored
            if kind.partial:
                _keep_unknown_fields(schema)
    return {"description": kind_description(kind), **root}


def struct_schema(model: type[msgspec.Struct]) -> JsonObject:
    """Return the schema of a part of an object, such as its metadata."""
    document = msgspec.json.schema(model)
    return _inline(document, document["$defs"])


def _is_seeded(kind: KindInfo[Any], part: str) -> bool:
    """Return True if a new object has values in this part that are not defaults of its fields."""
    (field,) = [f for f in msgspec.structs.fields(kind.model) if f.name == part]
    seed = field.default
    return isinstance(seed, msgspec.Struct) and seed != type(seed)()


def kind_description(kind: KindInfo[Any]) -> str:
    """Return the first paragraph of the docstring of the kind's model."""
    return _one_line((inspect.getdoc(kind.model) or kind.kind).partition("\n\n")[0])


def _inline(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """Return the schema with references replaced by their targets."""
    schema = to_json(schema)
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{k: v for k, v in schema.items() if k not in ("$ref", "$defs")}}
    if "anyOf" in schema:
        schema = _join_choices([s for s in schema["anyOf"] if s.get("type") != "null"], schema)
        schema = _inline(schema, definitions) if "$ref" in schema else schema
    schema.pop("title", None)
    if "description" in schema:
        schema["description"] = _one_line(schema["description"])
    if "properties" in schema:
        schema["properties"] = {
            name: _inline(s, definitions) for name, s in schema["properties"].items()
        }
        if not schema.get("required"):
            schema.pop("required", None)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            schema[inner] = _inline(schema[inner], definitions)
    if "enum" in schema:
        schema.setdefault("type", "string")
    if schema.get("maximum") == INT64_MAX:
        _drop_int64_maximum(schema)
    if schema.get("type") == "array":
        schema.setdefault(LIST_TYPE, "atomic")
    if _is_free_form(schema):
        schema = {PRESERVE: True, **{k: v for k, v in schema.items() if not _is_map(k)}}
    if not _is_useful_default(schema):
        schema.pop("default", None)
    return schema


def _join_choices(choices: list[JsonObject], schema: JsonObject) -> JsonObject:
    """Return the only choice, or an integer or string with the limits of both."""
    schema = {word: value for word, value in schema.items() if word != "anyOf"}
    if len(choices) == 1:
        return {**choices[0], **schema}
    types = [choice.get("type") for choice in choices]
    assert types == ["integer", "string"], f"not a union of Kubernetes: {choices}"
    limits = {word: v for choice in choices for word, v in choice.items() if word != "type"}
    return {INT_OR_STRING: True, "anyOf": [{"type": t} for t in types], **limits, **schema}


def _drop_int64_maximum(schema: JsonObject) -> None:
    """Remove a limit that Kubernetes would read as a float and round up."""
    del schema["maximum"]
    if schema.get("type") == "integer":
        schema["format"] = "int64"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _keep_unknown_fields(schema: JsonObject) -> None:
    """Keep unknown fields at any depth, because the class contains only a part of the fields."""
    if "properties" in schema:
        schema[PRESERVE] = True
    for inner in schema.get("properties", {}).values():
        _keep_unknown_fields(inner)
    if "items" in schema:
        _keep_unknown_fields(schema["items"])


def _is_free_form(schema: JsonObject) -> bool:
    """Return True for an object without fields. A real API server would empty it."""
    fields = schema.get("additionalProperties") or schema.get("properties")
    return schema.get("type") == "object" and not fields


def _is_map(keyword: str) -> bool:
    return keyword == "additionalProperties"


def _is_useful_default(schema: JsonObject) -> bool:
    """Return True if a default is worth storing: a value, or an object whose fields
    have defaults.
    """
    default = schema.get("default")
    if default == {}:
        return any(_is_useful_default(s) for s in schema.get("properties", {}).values())
    return bool(default)


# --- The CustomResourceDefinition of a kind
# ``hack/manifests.py`` writes the files. Built-in kinds have none, and Karmada installs those of
# its own kinds.


_WIDE_PRIORITY = 1


def crd_manifest(kind: KindInfo[Any]) -> JsonObject:
    """Return the CustomResourceDefinition of a kind that is not built in."""
    if kind.built_in:
        raise ValueError(f"{kind.kind} is a built-in kind and has no CustomResourceDefinition")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": _names(kind),
            "versions": [_version(kind)],
        },
    }


def _names(kind: KindInfo[Any]) -> JsonObject:
    names: JsonObject = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _version(kind: KindInfo[Any]) -> JsonObject:
    version: JsonObject = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural_schema(kind)},
    }
    if subresources := _subresources(kind):
        version["subresources"] = subresources
    if kind.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": field.path} for field in kind.selectable]
    return version


def _subresources(kind: KindInfo[Any]) -> JsonObject:
    found: JsonObject = {"status": {}} if kind.has_status else {}
    return {**found, "scale": _scale(kind.scale)} if kind.scale else found


def _scale(scale: Scale) -> JsonObject:
    paths = {
        "specReplicasPath": scale.spec_replicas_path,
        "statusReplicasPath": scale.status_replicas_path,
        "labelSelectorPath": scale.label_selector_path,
    }
    return {name: path for name, path in paths.items() if path}


def _column(column: TableColumn) -> JsonObject:
    shown: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = _WIDE_PRIORITY
    return shown
