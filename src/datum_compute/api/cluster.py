"""Cluster (Karmada): a cell as the hub knows it; its labels drive placement."""

from __future__ import annotations

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

# Where the hub keeps what it needs to reach a cell.
CREDENTIALS_NAMESPACE = "karmada-cluster"
NO_SCHEDULE = "NoSchedule"


class SecretReference(ApiStruct, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""


class Taint(ApiStruct, frozen=True, kw_only=True):
    """``NoSchedule`` keeps new work away; what is there stays."""

    key: str
    value: str | None = None
    effect: str | None = None


class ClusterSpec(ApiStruct, frozen=True, kw_only=True):
    sync_mode: str = "Push"
    api_endpoint: str = ""
    region: str = ""
    secret_ref: SecretReference | None = None
    taints: list[Taint] = []


class ResourceSummary(ApiStruct, frozen=True, kw_only=True):
    """What a cell has, and how much of it is taken, by resource (cpu, memory, instances)."""

    allocatable: dict[str, str] = {}
    allocated: dict[str, str] = {}


class ClusterStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    kubernetes_version: str = ""
    resource_summary: ResourceSummary = ResourceSummary()


class Cluster(ApiObject, frozen=True, kw_only=True):
    """Cluster (Karmada): a cell as the hub knows it; its labels drive placement."""

    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


CLUSTER = KindInfo(
    group="cluster.karmada.io",
    version="v1alpha1",
    kind="Cluster",
    plural="clusters",
    model=Cluster,
    partial=True,
    namespaced=False,
    columns=(
        Column("Version", ".status.kubernetesVersion"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
