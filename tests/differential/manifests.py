"""Paths and objects that the sequences share."""

from __future__ import annotations

from typing import Any

CORE, SPACES = "/api/v1", "/api/v1/namespaces"
COMPUTE = "/apis/compute.datumapis.com/v1alpha"
NETWORKING = "/apis/networking.datumapis.com/v1alpha"
QUOTA = "/apis/quota.miloapis.com/v1alpha1"
EXAMPLE = "/apis/example.com/v1"
Object = dict[str, Any]


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def widget(name: str, **more: Any) -> Object:
    spec = {"size": 1, **more}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def in_space(group: str, space: str, plural: str, name: str = "") -> str:
    return f"{group}/namespaces/{space}/{plural}" + (f"/{name}" if name else "")
