"""CustomResourceDefinitions for tests."""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import InProcessServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
SPEC: JsonObject = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "size": {"type": "integer", "minimum": 1},
    },
}


def objects(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def version(name: str = "v1", schema: JsonObject | None = None, **more: Any) -> JsonObject:
    root = schema or objects(spec=SPEC, status=objects(ready={"type": "boolean"}))
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        **more,
    }


def definition(
    *versions: JsonObject, kind: str = "Widget", group: str = "example.com", **spec: Any
) -> JsonObject:
    names = {"plural": f"{kind.lower()}s", "kind": kind, **spec.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def with_schema(schema: JsonObject, **more: Any) -> JsonObject:
    return definition(version(schema=schema, **more))


def widget(name: str = "w", spec: Any = None, **more: Any) -> JsonObject:
    identity = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
    return {**identity, "spec": {} if spec is None else spec, **more}


async def define(server: InProcessServer, obj: JsonObject, prefix: str = "") -> JsonObject:
    return await server.json("POST", prefix + DEFINITIONS, obj)


async def replace_definition(server: InProcessServer, obj: JsonObject) -> JsonObject:
    path = f"{DEFINITIONS}/{obj['metadata']['name']}"
    present = await server.json("GET", path)
    return await server.json("PUT", path, {**present, "spec": obj["spec"]})


def conditions(obj: JsonObject) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in obj["status"]["conditions"]}
