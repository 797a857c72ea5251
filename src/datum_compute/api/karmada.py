"""PropagationPolicy (Karmada): which objects of its namespace go to which clusters."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.label_selector import LabelSelector
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class ResourceSelector(ApiStruct, frozen=True, kw_only=True):
    """A name beats the label selector; without both every object of the kind is meant."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    label_selector: LabelSelector | None = None


class ClusterAffinity(ApiStruct, frozen=True, kw_only=True):
    cluster_names: list[str] = []
    label_selector: LabelSelector | None = None


class SpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """How many groups of clusters are chosen of those that match."""

    spread_by_field: str = ""
    min_groups: int = 0
    max_groups: int = 0


class PropagationPlacement(ApiStruct, frozen=True, kw_only=True):
    cluster_affinity: ClusterAffinity = ClusterAffinity()
    spread_constraints: list[SpreadConstraint] = []


class SuspendClusters(ApiStruct, frozen=True, kw_only=True):
    cluster_names: list[str] = []


class Suspension(ApiStruct, frozen=True, kw_only=True):
    """Nothing new is sent, to all clusters or to those named. What is there stays and reports, and
    what is deleted goes."""

    dispatching: bool | None = None
    dispatching_on_clusters: SuspendClusters | None = None

    def holds(self, cluster: str) -> bool:
        named = self.dispatching_on_clusters
        return bool(self.dispatching) or (named is not None and cluster in named.cluster_names)


class PropagationSpec(ApiStruct, frozen=True, kw_only=True):
    resource_selectors: Annotated[list[ResourceSelector], Meta(min_length=1)]
    placement: PropagationPlacement = PropagationPlacement()
    suspension: Suspension | None = None


class PropagationPolicy(ApiObject, frozen=True, kw_only=True):
    """PropagationPolicy (Karmada): which objects of its namespace go to which clusters."""

    spec: PropagationSpec


POLICY = KindInfo(
    group="policy.karmada.io",
    version="v1alpha1",
    kind="PropagationPolicy",
    plural="propagationpolicies",
    model=PropagationPolicy,
    partial=True,
    has_status=False,
    short_names=("pp",),
    columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
)


# --- Cluster (Karmada): a cell as the hub knows it; its labels drive placement


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


# --- ClusterPropagationPolicy (Karmada): the same for cluster-scoped objects, here namespaces


class ClusterPropagationPolicy(ApiObject, frozen=True, kw_only=True):
    """ClusterPropagationPolicy (Karmada): the same for cluster-scoped objects, here namespaces."""

    spec: PropagationSpec


CLUSTER_POLICY = KindInfo(
    group="policy.karmada.io",
    version="v1alpha1",
    kind="ClusterPropagationPolicy",
    plural="clusterpropagationpolicies",
    model=ClusterPropagationPolicy,
    partial=True,
    namespaced=False,
    has_status=False,
    short_names=("cpp",),
    columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
)


# --- ResourceBinding (Karmada): where one namespaced hub object has been placed, and how it fares


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class TargetCluster(ApiStruct, frozen=True, kw_only=True):
    name: str


class ResourceBindingSpec(ApiStruct, frozen=True, kw_only=True):
    resource: ObjectReference
    clusters: list[TargetCluster] = []
    suspension: Suspension | None = None


class AggregatedStatusItem(ApiStruct, frozen=True, kw_only=True):
    cluster_name: str
    applied: bool = False
    applied_message: str = ""
    status: dict[str, Any] | None = None


class ResourceBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    aggregated_status: list[AggregatedStatusItem] = []


class ResourceBinding(ApiObject, frozen=True, kw_only=True):
    """ResourceBinding (Karmada): where one namespaced hub object has been placed, and how it
    fares.
    """

    spec: ResourceBindingSpec
    status: ResourceBindingStatus = ResourceBindingStatus()


COLUMNS = (
    Column("Scheduled", '.status.conditions[?(@.type=="Scheduled")].status'),
    Column("FullyApplied", '.status.conditions[?(@.type=="FullyApplied")].status'),
    Column("Age", ".metadata.creationTimestamp", "date"),
)

BINDING = KindInfo(
    group="work.karmada.io",
    version="v1alpha2",
    kind="ResourceBinding",
    plural="resourcebindings",
    model=ResourceBinding,
    partial=True,
    short_names=("rb",),
    columns=COLUMNS,
)


# --- ClusterResourceBinding (Karmada): the binding of a cluster-scoped hub object


class ClusterResourceBinding(ApiObject, frozen=True, kw_only=True):
    """ClusterResourceBinding (Karmada): the binding of a cluster-scoped hub object."""

    spec: ResourceBindingSpec
    status: ResourceBindingStatus = ResourceBindingStatus()


CLUSTER_BINDING = KindInfo(
    group="work.karmada.io",
    version="v1alpha2",
    kind="ClusterResourceBinding",
    plural="clusterresourcebindings",
    model=ClusterResourceBinding,
    partial=True,
    namespaced=False,
    short_names=("crb",),
    columns=COLUMNS,
)


# --- Work (Karmada): one object for one cell. A terminating Work is the tombstone of its copy


Manifest = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True}),
]


class WorkloadTemplate(ApiStruct, frozen=True, kw_only=True):
    manifests: Annotated[list[Manifest], Meta(min_length=1)]


class WorkSpec(ApiStruct, frozen=True, kw_only=True):
    workload: WorkloadTemplate
    suspend_dispatching: bool | None = None


class ManifestStatus(ApiStruct, frozen=True, kw_only=True):
    status: Manifest | None = None


class WorkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    manifest_statuses: list[ManifestStatus] = []


class Work(ApiObject, frozen=True, kw_only=True):
    """Work (Karmada): one object for one cell. A terminating Work is the tombstone of its copy."""

    spec: WorkSpec
    status: WorkStatus = WorkStatus()


WORK = KindInfo(
    group="work.karmada.io",
    version="v1alpha1",
    kind="Work",
    plural="works",
    model=Work,
    partial=True,
    short_names=("wk",),
    columns=(
        Column("Applied", '.status.conditions[?(@.type=="Applied")].status'),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
