"""Schemas of object metadata, in our own words, for OpenAPI documents."""

from __future__ import annotations

from datum_compute.api.meta.codec import JsonObject

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OWNER = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"


def schema_reference(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _texts(description: str) -> JsonObject:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "string"},
    }


META_SCHEMAS: JsonObject = {
    OBJECT_META: {
        "type": "object",
        "description": "What every object carries besides its spec and status.",
        "properties": {
            "name": _text("Unique for its kind in its namespace; cannot change."),
            "generateName": _text("Begin of a name that the server completes, if name is empty."),
            "namespace": _text("Where the object lives; empty for cluster-scoped kinds."),
            "labels": _texts("Short values that selectors can match."),
            "annotations": _texts("Values that tools keep with the object; not selectable."),
            "finalizers": {
                "type": "array",
                "description": "Who must clean up before a deleted object goes.",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
            },
            "ownerReferences": {
                "type": "array",
                "description": "Objects this one goes with.",
                "items": schema_reference(_OWNER),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
            },
            "uid": _text("Identifies this very object; set by the server."),
            "resourceVersion": _text("Changes with every write; set by the server."),
            "generation": {
                "type": "integer",
                "description": "Counts changes of the desired state; set by the server.",
            },
            "creationTimestamp": {**_text("Set by the server."), "format": "date-time"},
            "deletionTimestamp": {
                **_text("When deletion was asked for; set by the server."),
                "format": "date-time",
            },
            "deletionGracePeriodSeconds": {
                "type": "integer",
                "description": "Set by the server.",
            },
        },
    },
    _OWNER: {
        "type": "object",
        "description": "An owner in the same namespace, or a cluster-scoped one.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": _text("API version of the owner."),
            "kind": _text("Kind of the owner."),
            "name": _text("Name of the owner."),
            "uid": _text("UID of the owner."),
            "controller": {"type": "boolean", "description": "Whether it manages this object."},
            "blockOwnerDeletion": {
                "type": "boolean",
                "description": "Whether a foreground deletion of the owner waits for this object.",
            },
        },
    },
}

SCALE_SCHEMA_NAME = "io.k8s.api.autoscaling.v1.Scale"
_REPLICAS: JsonObject = {"type": "integer", "format": "int32"}
SCALE_SCHEMAS: JsonObject = {
    SCALE_SCHEMA_NAME: {
        "type": "object",
        "description": "How many replicas an object should have, and has.",
        "properties": {
            "apiVersion": _text("autoscaling/v1"),
            "kind": _text("Scale"),
            "metadata": schema_reference(OBJECT_META),
            "spec": {"type": "object", "properties": {"replicas": _REPLICAS}},
            "status": {
                "type": "object",
                "properties": {"replicas": _REPLICAS, "selector": _text("Finds the replicas.")},
            },
        },
        "x-kubernetes-group-version-kind": [
            {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        ],
    }
}
