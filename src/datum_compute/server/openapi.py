"""OpenAPI v3: an index, and one document for each group version.

What clients look for: a PATCH operation with the kind and a ``fieldValidation`` parameter (then
they leave validation to the server), and schemas that name their kind (for ``explain``). The
patch types listed are the ones this server takes.
"""

from __future__ import annotations

import hashlib
from typing import Any

from datum_compute import __version__
from datum_compute.api.codec import JsonObject, encode
from datum_compute.api.exchange import JSON, JSON_PATCH, MERGE_PATCH, Response
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import PlaneName, path_prefix
from datum_compute.api.schema import structural_schema
from datum_compute.server.answer import json_answer
from datum_compute.server.catalogue import Catalogue, Served
from datum_compute.server.openapimeta import META_SCHEMAS, OBJECT_META, schema_reference

_INDEX = "/openapi/v3"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class OpenApi:
    """Documents are made once; only the index differs between planes."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._documents: dict[str, bytes] = {}
        for group in ("", *catalogue.groups()):
            for version in catalogue.versions(group):
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                self._documents[path] = encode(_document(catalogue.of_version(group, version)))
        self._hashes = {
            path: hashlib.sha256(body).hexdigest().upper() for path, body in self._documents.items()
        }

    def answer(self, plane: PlaneName, path: str) -> Response | None:
        """The answer to an OpenAPI path, or None if it is none."""
        if path.rstrip("/") == _INDEX:
            return json_answer({"paths": self._index(path_prefix(plane))})
        wanted = path.removeprefix(f"{_INDEX}/")
        body = self._documents.get(wanted)
        if body is None or wanted == path:
            return None
        headers = {"etag": f'"{self._hashes[wanted]}"', "vary": "Accept"}
        return json_answer(body, headers=headers)

    def _index(self, prefix: str) -> JsonObject:
        return {
            path: {"serverRelativeURL": f"{prefix}{_INDEX}/{path}?hash={self._hashes[path]}"}
            for path in self._documents
        }


def _document(kinds: list[Served]) -> JsonObject:
    paths: JsonObject = {}
    for served in kinds:
        paths |= _paths(served)
    return {
        "openapi": "3.0.0",
        "info": {"title": "datum-compute", "version": f"v{__version__}"},
        "paths": paths,
        "components": {
            "schemas": {**META_SCHEMAS, **{n: s for k in kinds for n, s in _schemas(k.kind)}},
        },
    }


def _schemas(kind: KindInfo[Any]) -> list[tuple[str, JsonObject]]:
    known_as = [_group_version_kind(kind)]
    schema = structural_schema(kind)
    properties = {**schema["properties"], "metadata": schema_reference(OBJECT_META)}
    single = {**schema, "properties": properties, "x-kubernetes-group-version-kind": known_as}
    listed_as = [{**known_as[0], "kind": f"{kind.kind}List"}]
    several = {
        "type": "object",
        "description": f"A list of {kind.kind} objects",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": schema_reference(_schema_name(kind))},
        },
        "x-kubernetes-group-version-kind": listed_as,
    }
    return [(_schema_name(kind), single), (f"{_schema_name(kind)}List", several)]


def _schema_name(kind: KindInfo[Any]) -> str:
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{group}.{kind.version}.{kind.kind}"


def _paths(served: Served) -> JsonObject:
    kind = served.kind
    base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    everywhere = f"{base}/{kind.plural}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else everywhere
    several, one = f"{_schema_name(kind)}List", _schema_name(kind)
    post = _operation(kind, "post", one, body=(JSON,))
    paths: JsonObject = {collection: {"post": post}}
    if served.stored:
        paths = {everywhere: {"get": _operation(kind, "list", several)}}
        paths[collection] = {"get": _operation(kind, "list", several), "post": post}
        for suffix in ("", *(f"/{name}" for name in served.subresources)):
            paths[f"{collection}/{{name}}{suffix}"] = _object_operations(kind, one, suffix)
    if "deletecollection" in served.verbs:
        paths[collection]["delete"] = _operation(kind, "deletecollection", several)
    for path, operations in paths.items():
        operations["parameters"] = [
            _parameter(name, "path") for name in ("namespace", "name") if f"{{{name}}}" in path
        ]
    return paths


def _object_operations(kind: KindInfo[Any], schema: str, suffix: str) -> JsonObject:
    if suffix == "/token":
        return {"post": _operation(kind, "post", schema, body=(JSON,))}
    put = _operation(kind, "put", schema, body=(JSON,))
    if suffix == "/finalize":
        return {"put": put}
    operations = {
        "get": _operation(kind, "get", schema),
        "put": put,
        "patch": _operation(kind, "patch", schema, body=(MERGE_PATCH, JSON_PATCH)),
    }
    if not suffix:
        operations["delete"] = _operation(kind, "delete", schema)
    return operations


def _operation(
    kind: KindInfo[Any], action: str, schema: str, body: tuple[str, ...] = ()
) -> JsonObject:
    content = {JSON: {"schema": schema_reference(schema)}}
    operation: JsonObject = {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    if body:
        operation["parameters"] = [_parameter(name, "query") for name in _WRITE_PARAMETERS]
        operation["requestBody"] = {"content": {media: {"schema": {}} for media in body}}
    return operation


def _parameter(name: str, place: str) -> JsonObject:
    parameter = {"name": name, "in": place, "schema": {"type": "string", "uniqueItems": True}}
    return {**parameter, "required": True} if place == "path" else parameter


def _group_version_kind(kind: KindInfo[Any]) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}
