"""The CustomResourceDefinition of a kind: how a real Kubernetes API server learns our kinds.

A pure function of the kind; ``hack/write_crds.py`` writes the files. Core kinds have none, and
those of a neighbour (``partial``) are the neighbour's to install.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Column, KindInfo, Scale
from datum_compute.api.schema.derive import structural_schema

_WIDE_PRIORITY = 1


def crd_manifest(kind: KindInfo[Any]) -> JsonObject:
    """The apiextensions.k8s.io/v1 object of a kind that is not built in."""
    if kind.built_in:
        raise ValueError(f"{kind.kind} is a core kind and has no CustomResourceDefinition")
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


def _column(column: Column) -> JsonObject:
    shown: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = _WIDE_PRIORITY
    return shown
