"""ClusterPropagationPolicy (Karmada): the same for cluster-scoped objects, here namespaces."""

from __future__ import annotations

from datum_compute.api.karmada import PropagationSpec
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


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
