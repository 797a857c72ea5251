"""The CustomResourceDefinition of a kind: how a real Kubernetes API server learns our kinds.

A pure function of the kind; ``hack/write_crds.py`` writes the files. Core kinds have none, and
those of a neighbour (``partial``) are the neighbour's to install.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.meta import Column, KindInfo
from datum_compute.api.schema import structural_schema

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
    return names


def _version(kind: KindInfo[Any]) -> JsonObject:
    version: JsonObject = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural_schema(kind)},
    }
    subresources = _subresources(kind)
    if subresources:
        version["subresources"] = subresources
    if kind.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    return version


def _subresources(kind: KindInfo[Any]) -> JsonObject:
    found: JsonObject = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        found["scale"] = {
            "specReplicasPath": kind.scale.spec_replicas_path,
            "statusReplicasPath": kind.scale.status_replicas_path,
        }
        if kind.scale.label_selector_path:
            found["scale"]["labelSelectorPath"] = kind.scale.label_selector_path
    return found


def _column(column: Column) -> JsonObject:
    shown: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = _WIDE_PRIORITY
    return shown
