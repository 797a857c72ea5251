"""PropagationPolicy (Karmada): which objects of its namespace go to which clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class LabelRequirement(ApiStruct, frozen=True, kw_only=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelRequirement] = []


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
