"""OpenAPI v3: an index, and one document for each group version.

What clients look for: a PATCH operation with the kind and a ``fieldValidation`` parameter (then
they leave validation to the server), and schemas that name their kind (for ``explain``). The
patch types listed are the ones this server takes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute import __version__
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.api.schema.derive import struct_schema
from datum_compute.server.discovery.resources import ResourceRegistry, ServedResource
from datum_compute.server.encoding.request_options import MediaType, choose_media_type
from datum_compute.server.encoding.responses import json_response
from datum_compute.server.verbs.patch import patch_types

# --- Schemas of metadata and of Scale


OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OWNER = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"


def schema_reference(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _metadata_schemas() -> JsonObject:
    """Return the schemas of ObjectMeta and OwnerReference."""
    metadata = struct_schema(ObjectMeta)
    properties = metadata["properties"]
    owners = properties["ownerReferences"]
    owner = owners["items"]
    owners["items"] = schema_reference(_OWNER)
    properties["deletionGracePeriodSeconds"] = {
        "type": "integer",
        "description": "Seconds until a deleted object is removed, set by the server.",
    }
    return {OBJECT_META: metadata, _OWNER: owner}


META_SCHEMAS = _metadata_schemas()

SCALE_SCHEMA_NAME = "io.k8s.api.autoscaling.v1.Scale"
_REPLICAS: JsonObject = {
    "type": "integer",
    "format": "int32",
    "description": "Number of replicas.",
}
SCALE_SCHEMAS: JsonObject = {
    SCALE_SCHEMA_NAME: {
        "type": "object",
        "description": "Desired and observed number of replicas of an object.",
        "properties": {
            "apiVersion": _text("Always autoscaling/v1."),
            "kind": _text("Always Scale."),
            "metadata": schema_reference(OBJECT_META),
            "spec": {
                "type": "object",
                "description": "Desired number of replicas.",
                "properties": {"replicas": _REPLICAS},
            },
            "status": {
                "type": "object",
                "description": "Observed number of replicas.",
                "properties": {
                    "replicas": _REPLICAS,
                    "selector": _text("Label selector of the replicas."),
                },
            },
        },
        "x-kubernetes-group-version-kind": [
            {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        ],
    }
}


# --- openapi


_INDEX = "/openapi/v3"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


@dataclass(frozen=True, slots=True)
class _Document:
    """The document of a group version, and the kinds it was built from."""

    kinds: tuple[ServedResource, ...]
    body: bytes
    digest: str


class OpenApi:
    """The documents of a plane, each built at its first read. Documents of unchanged kinds are
    shared with ``platform``, and with ``last``, the documents before definitions changed."""

    def __init__(
        self,
        catalogue: ResourceRegistry,
        platform: OpenApi | None = None,
        last: OpenApi | None = None,
    ) -> None:
        self._platform = platform
        self._kinds = {
            f"apis/{group}/{version}" if group else f"api/{version}": tuple(
                catalogue.of_version(group, version)
            )
            for group in ("", *catalogue.groups())
            for version in catalogue.versions(group)
        }
        previous: dict[str, _Document] = last._built if last is not None else {}
        self._built: dict[str, _Document] = {
            path: built for path, built in previous.items() if self._kinds.get(path) == built.kinds
        }

    def respond(self, plane: PlaneName, path: str) -> Response | None:
        """Return the response for an OpenAPI path; None for other paths."""
        if not path.startswith(_INDEX):
            return None
        if path.rstrip("/") == _INDEX:
            return json_response({"paths": self._index(path_prefix(plane))})
        name = path.removeprefix(f"{_INDEX}/")
        if name not in self._kinds:
            return None
        found = self.document(name)
        headers = {"etag": f'"{found.digest}"', "vary": "Accept"}
        return json_response(found.body, headers=headers)

    def document(self, path: str) -> _Document:
        kinds = self._kinds[path]
        if self._platform is not None and self._platform._kinds.get(path) == kinds:
            return self._platform.document(path)
        built = self._built.get(path)
        if built is None:
            body = encode(_document(kinds))
            digest = _sha256(body) if self._platform is None else self._digest(path)
            built = self._built[path] = _Document(kinds, body, digest)
        return built

    def _index(self, prefix: str) -> JsonObject:
        return {
            path: {"serverRelativeURL": f"{prefix}{_INDEX}/{path}?hash={self._digest(path)}"}
            for path in self._kinds
        }

    def _digest(self, path: str) -> str:
        """Return a digest that changes with the document, without building it: the index contains
        the digests of all definitions, but clients read few documents."""
        if self._platform is None:
            return self.document(path).digest
        own = self._platform._digest(path) if path in self._platform._kinds else __version__
        revisions = [
            f"{kind.kind.plural}/{kind.revision}" for kind in self._kinds[path] if kind.revision
        ]
        return _sha256("\n".join([own, *revisions]).encode()) if revisions else own


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest().upper()


def _document(kinds: Sequence[ServedResource]) -> JsonObject:
    paths: JsonObject = {}
    for resource in kinds:
        paths |= _paths(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "datum-compute", "version": f"v{__version__}"},
        "paths": paths,
        "components": {
            "schemas": {
                **META_SCHEMAS,
                **(SCALE_SCHEMAS if any(k.kind.scale for k in kinds) else {}),
                **{n: s for k in kinds for n, s in _schemas(k)},
            },
        },
    }


def _schemas(resource: ServedResource) -> list[tuple[str, JsonObject]]:
    kind = resource.kind
    known_as = [_group_version_kind(kind)]
    schema = resource.schema
    properties = {**schema.get("properties", {}), "metadata": schema_reference(OBJECT_META)}
    single = {**schema, "properties": properties, "x-kubernetes-group-version-kind": known_as}
    listed_as = [{**known_as[0], "kind": kind.list_kind}]
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


def _paths(resource: ServedResource) -> JsonObject:
    kind = resource.kind
    everywhere = kind.path(Ref("", ""))
    collection = kind.path(Ref("{namespace}" if kind.namespaced else "", ""))
    several, one = f"{_schema_name(kind)}List", _schema_name(kind)
    post = _operation(kind, "post", one, body=(JSON,))
    paths: JsonObject = {collection: {"post": post}}
    if resource.is_stored:
        paths = {everywhere: {"get": _operation(kind, "list", several)}}
        paths[collection] = {"get": _operation(kind, "list", several), "post": post}
        for suffix in ("", *(f"/{name}" for name in resource.subresources)):
            shown = SCALE_SCHEMA_NAME if suffix == "/scale" else one
            paths[f"{collection}/{{name}}{suffix}"] = _object_operations(kind, shown, suffix)
    if "deletecollection" in resource.verbs:
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
        "patch": _operation(kind, "patch", schema, body=patch_types(kind)),
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


# --- OpenAPI v2: a document without kinds, for clients that require one
# kubectl validates the items of a ``kind: List`` against this document before it sends them. It
# skips kinds that the document does not contain, and the server validates every request. Without
# the document kubectl fails. OpenAPI v3 describes the kinds.


PATH = "/openapi/v2"
_TITLE = "datum-compute; the kinds are described in /openapi/v3"
_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF_ANSWER = _PROTOBUF.replace("@", ".")  # the requested type is not a valid media type


def openapi_v2_response(request: Request, path: str) -> Response | None:
    """Return the response for ``PATH``, or None for any other path."""
    if path != PATH:
        return None
    wanted = choose_media_type(request.headers.get("accept", ""), (MediaType(_PROTOBUF),))
    headers = {"vary": "Accept"}
    if wanted.name == _PROTOBUF:
        return Response(200, _AS_PROTOBUF, _PROTOBUF_ANSWER, headers)
    return json_response(_AS_JSON, headers=headers)


def _field(number: int, content: bytes) -> bytes:
    """A text or a message inside a protobuf message; all of these are short."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


_INFO = _field(1, _TITLE.encode()) + _field(2, __version__.encode())
_AS_PROTOBUF = _field(1, b"2.0") + _field(2, _INFO)
_AS_JSON = encode(
    {"swagger": "2.0", "info": {"title": _TITLE, "version": __version__}, "paths": {}}
)
