"""PropagationPolicy (Karmada): which objects of its namespace go to which clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.codec import ApiStruct
from datum_compute.api.meta import ApiObject, Column, KindInfo


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


class PropagationPlacement(ApiStruct, frozen=True, kw_only=True):
    cluster_affinity: ClusterAffinity = ClusterAffinity()


class PropagationSpec(ApiStruct, frozen=True, kw_only=True):
    resource_selectors: Annotated[list[ResourceSelector], Meta(min_length=1)]
    placement: PropagationPlacement = PropagationPlacement()


class PropagationPolicy(ApiObject, frozen=True, kw_only=True):
    spec: PropagationSpec


KIND = KindInfo(
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
