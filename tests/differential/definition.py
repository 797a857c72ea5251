"""The custom kind of the sequences, whose schema uses most keywords."""

from __future__ import annotations

from typing import Any

_PART = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "weight": {"type": "integer", "default": 1, "minimum": 0},
    },
}
_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "description": "How large it is."},
        "most": {"type": "integer"},
        "replicas": {"type": "integer", "default": 2, "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "code": {"type": "string", "maxLength": 10, "pattern": "^[a-z]+$"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _PART,
        },
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": _SPEC,
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    },
}
_VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": _SCHEMA},
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
        },
    },
    "additionalPrinterColumns": [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
}
WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
            "shortNames": ["wdg"],
            "categories": ["toys"],
        },
        "versions": [_VERSION],
    },
}
