"""Manifests for kubectl, as JSON text, which is valid YAML and easy to change in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from testkit.api_server import running_server

WIDGETS = "widgets.example.com"


def workload(
    name: str = "web", *, image: str = "web:1", labels: Mapping[str, str] | None = None
) -> str:
    metadata = {"labels": dict(labels)} if labels else {}
    return json.dumps(running_server.workload(name, image=image, **metadata))


def config_map(name: str, labels: Mapping[str, str] | None = None, **data: str) -> str:
    metadata = {"name": name, "labels": dict(labels or {})}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def listed(*manifests: str) -> str:
    items = [json.loads(manifest) for manifest in manifests]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def image(obj: dict[str, Any]) -> str:
    containers = obj["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    return str(containers[0]["image"])


def owned(name: str, owner: Mapping[str, Any], *, finalizers: tuple[str, ...] = ()) -> str:
    """Return a ConfigMap that is owned by ``owner`` and blocks its deletion."""
    obj = json.loads(config_map(name))
    metadata = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    obj["metadata"] |= {"ownerReferences": [reference], "finalizers": list(finalizers)}
    return json.dumps(obj)


def widget_definition() -> str:
    """Return a CustomResourceDefinition with a scale, columns and descriptions."""
    size = {"type": "integer", "minimum": 1, "description": "How large it is."}
    spec = {
        "type": "object",
        "description": "What is wanted of the widget.",
        "required": ["size"],
        "properties": {"size": size, "replicas": {"type": "integer", "default": 2}},
    }
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    described = "Widget: something that turns."
    properties = {"spec": spec, "status": status}
    schema = {"type": "object", "description": described, "properties": properties}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wdg"]}
    spec_of_definition = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {**names, "categories": ["toys"]},
        "versions": [version],
    }
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": WIDGETS},
            "spec": spec_of_definition,
        }
    )


def widget(name: str, **spec: int) -> str:
    metadata = {"name": name}
    kind = {"apiVersion": "example.com/v1", "kind": "Widget"}
    return json.dumps({**kind, "metadata": metadata, "spec": {"size": 1, **spec}})
