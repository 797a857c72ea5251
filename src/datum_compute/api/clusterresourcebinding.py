"""ClusterResourceBinding (Karmada): the binding of a cluster-scoped hub object."""

from __future__ import annotations

from datum_compute.api.meta.objects import ApiObject, KindInfo
from datum_compute.api.resourcebinding import COLUMNS, ResourceBindingSpec, ResourceBindingStatus


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
