"""Kinds of Karmada that the hub uses: policies, clusters, bindings and works.

Only the fields that this platform uses are modeled. The server keeps all other fields.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.label_selector import LabelSelector
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn


class ResourceSelector(ApiStruct, frozen=True, kw_only=True):
    """Objects that a policy selects. A name wins over the label selector. Without both, all objects
    of the kind are selected.
    """

    api_version: Annotated[str, doc("API version of the objects.")]
    kind: Annotated[str, doc("Kind of the objects.")]
    namespace: Annotated[
        str, doc("Namespace of the objects. Defaults to the namespace of the policy.")
    ] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    label_selector: Annotated[LabelSelector | None, doc("Labels of the objects.")] = None


class ClusterAffinity(ApiStruct, frozen=True, kw_only=True):
    """Clusters that can be chosen."""

    cluster_names: Annotated[
        list[str], doc("Names of the clusters. If empty, all clusters can be chosen.")
    ] = []
    label_selector: Annotated[LabelSelector | None, doc("Labels of the clusters.")] = None


class SpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """Number of cluster groups that are chosen."""

    spread_by_field: Annotated[
        str, doc("Field by which clusters are grouped, such as cluster.")
    ] = ""
    min_groups: Annotated[int, doc("Lowest number of groups.")] = 0
    max_groups: Annotated[int, doc("Highest number of groups.")] = 0


class PropagationPlacement(ApiStruct, frozen=True, kw_only=True):
    """How clusters are chosen."""

    cluster_affinity: Annotated[ClusterAffinity, doc("Clusters that can be chosen.")] = (
        ClusterAffinity()
    )
    spread_constraints: Annotated[
        list[SpreadConstraint], doc("Limits on the number of chosen clusters.")
    ] = []


class SuspendClusters(ApiStruct, frozen=True, kw_only=True):
    """Clusters to which nothing is sent."""

    cluster_names: Annotated[list[str], doc("Names of the clusters.")] = []


class Suspension(ApiStruct, frozen=True, kw_only=True):
    """Suspension of propagation to all or some clusters. Existing copies stay and report their
    status, and deletions are still propagated.
    """

    dispatching: Annotated[
        bool | None, doc("Whether propagation to all clusters is suspended.")
    ] = None
    dispatching_on_clusters: Annotated[
        SuspendClusters | None, doc("Clusters to which propagation is suspended.")
    ] = None

    def holds(self, cluster: str) -> bool:
        named = self.dispatching_on_clusters
        return bool(self.dispatching) or (named is not None and cluster in named.cluster_names)


class PropagationSpec(ApiStruct, frozen=True, kw_only=True):
    resource_selectors: Annotated[
        list[ResourceSelector], Meta(min_length=1), doc("Objects that are propagated.")
    ]
    placement: Annotated[PropagationPlacement, doc("How clusters are chosen.")] = (
        PropagationPlacement()
    )
    suspension: Suspension | None = None


class PropagationPolicy(ApiObject, frozen=True, kw_only=True):
    """A PropagationPolicy selects objects of its namespace and the clusters to which they are
    propagated.
    """

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
    columns=(TableColumn("Age", ".metadata.creationTimestamp", "date"),),
)


# --- Cluster


# Namespace of the Secrets with which the hub accesses the cells.
CREDENTIALS_NAMESPACE = "karmada-cluster"
NO_SCHEDULE = "NoSchedule"


class SecretReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to a Secret."""

    namespace: Annotated[str, doc("Namespace of the Secret.")] = ""
    name: Annotated[str, doc("Name of the Secret.")] = ""


class Taint(ApiStruct, frozen=True, kw_only=True):
    """A taint of a cluster. The effect NoSchedule keeps new objects away; existing ones stay."""

    key: Annotated[str, doc("Key of the taint.")]
    value: Annotated[str | None, doc("Value of the taint.")] = None
    effect: Annotated[str | None, doc("Effect of the taint, such as NoSchedule.")] = None


class ClusterSpec(ApiStruct, frozen=True, kw_only=True):
    sync_mode: Annotated[str, doc("How objects are synchronized, Push or Pull.")] = "Push"
    api_endpoint: Annotated[str, doc("Address of the API server of the cluster.")] = ""
    region: Annotated[str, doc("Region of the cluster.")] = ""
    secret_ref: Annotated[
        SecretReference | None, doc("Secret with the credentials of the cluster.")
    ] = None
    taints: Annotated[list[Taint], doc("Taints of the cluster.")] = []


class ResourceSummary(ApiStruct, frozen=True, kw_only=True):
    """Capacity of the cluster by resource: cpu, memory and instances."""

    allocatable: Annotated[dict[str, str], doc("Total amount of each resource.")] = {}
    allocated: Annotated[dict[str, str], doc("Used amount of each resource.")] = {}


class ClusterStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    kubernetes_version: Annotated[str, doc("Version of the API server of the cluster.")] = ""
    resource_summary: ResourceSummary = ResourceSummary()


class Cluster(ApiObject, frozen=True, kw_only=True):
    """A Cluster represents a cell on the hub. Its labels are used for placement."""

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
        TableColumn("Version", ".status.kubernetesVersion"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ClusterPropagationPolicy


class ClusterPropagationPolicy(ApiObject, frozen=True, kw_only=True):
    """A ClusterPropagationPolicy selects cluster-scoped objects, here namespaces, and the clusters
    to which they are propagated.
    """

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
    columns=(TableColumn("Age", ".metadata.creationTimestamp", "date"),),
)


# --- ResourceBinding


class PropagatedObject(ApiStruct, frozen=True, kw_only=True):
    """The object that a binding propagates."""

    api_version: Annotated[str, doc("API version of the object.")]
    kind: Annotated[str, doc("Kind of the object.")]
    name: Annotated[str, doc("Name of the object.")]
    namespace: Annotated[
        str, doc("Namespace of the object. Empty for a cluster-scoped object.")
    ] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""


class TargetCluster(ApiStruct, frozen=True, kw_only=True):
    """A cluster to which an object is propagated."""

    name: Annotated[str, doc("Name of the cluster.")]


class ResourceBindingSpec(ApiStruct, frozen=True, kw_only=True):
    resource: Annotated[PropagatedObject, doc("Object that is propagated.")]
    clusters: Annotated[list[TargetCluster], doc("Chosen clusters.")] = []
    suspension: Suspension | None = None


class AggregatedStatusItem(ApiStruct, frozen=True, kw_only=True):
    """Status of the object in one cluster."""

    cluster_name: Annotated[str, doc("Name of the cluster.")]
    applied: Annotated[bool, doc("Whether the object was applied to the cluster.")] = False
    applied_message: Annotated[str, doc("Why the object was not applied.")] = ""
    status: Annotated[
        dict[str, Any] | None, doc("Status of the object that the cluster reported.")
    ] = None


class ResourceBindingStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    aggregated_status: Annotated[
        list[AggregatedStatusItem], doc("Status of the object in each cluster.")
    ] = []


class ResourceBinding(ApiObject, frozen=True, kw_only=True):
    """A ResourceBinding shows to which clusters a namespaced object is propagated, and its status
    there.
    """

    spec: ResourceBindingSpec
    status: ResourceBindingStatus = ResourceBindingStatus()


COLUMNS = (
    TableColumn("Scheduled", '.status.conditions[?(@.type=="Scheduled")].status'),
    TableColumn("FullyApplied", '.status.conditions[?(@.type=="FullyApplied")].status'),
    TableColumn("Age", ".metadata.creationTimestamp", "date"),
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


# --- ClusterResourceBinding


class ClusterResourceBinding(ApiObject, frozen=True, kw_only=True):
    """A ClusterResourceBinding shows to which clusters a cluster-scoped object is propagated, and
    its status there.
    """

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


# --- Work


Manifest = Annotated[
    dict[str, Any],
    Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True}),
]


class WorkloadTemplate(ApiStruct, frozen=True, kw_only=True):
    """Objects that are applied to the cluster."""

    manifests: Annotated[list[Manifest], Meta(min_length=1), doc("Manifests of the objects.")]


class WorkSpec(ApiStruct, frozen=True, kw_only=True):
    workload: Annotated[WorkloadTemplate, doc("Objects that are applied to the cluster.")]
    suspend_dispatching: Annotated[
        bool | None, doc("Whether propagation of these objects is suspended.")
    ] = None


class ManifestStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of one manifest."""

    status: Annotated[Manifest | None, doc("Status of the object that the cluster reported.")] = (
        None
    )


class WorkStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    manifest_statuses: Annotated[list[ManifestStatus], doc("Status of each manifest.")] = []


class Work(ApiObject, frozen=True, kw_only=True):
    """A Work contains one object for one cluster. While it is being deleted, the copy in the
    cluster is deleted.
    """

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
        TableColumn("Applied", '.status.conditions[?(@.type=="Applied")].status'),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)
