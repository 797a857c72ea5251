"""Cluster (Karmada): a cell as the hub knows it; its labels drive placement."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.conditions import Conditions
from datum_compute.api.meta import ApiObject, Column, KindInfo


class ClusterSpec(ApiStruct, frozen=True, kw_only=True):
    sync_mode: str = "Push"
    api_endpoint: str = ""
    region: str = ""


class ClusterStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    kubernetes_version: str = ""


class Cluster(ApiObject, frozen=True, kw_only=True):
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


KIND = KindInfo(
    group="cluster.karmada.io",
    version="v1alpha1",
    kind="Cluster",
    plural="clusters",
    model=Cluster,
    partial=True,
    namespaced=False,
    columns=(
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
