"""ClusterRole (rbac.authorization.k8s.io): what its holders may do on a plane, or, bound by a
RoleBinding, inside one namespace. An aggregated one also holds the rules of those it selects."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.meta import ApiObject, Column, KindInfo
from datum_compute.api.role import RBAC_GROUP, PolicyRule


class LabelRequirement(ApiStruct, frozen=True, kw_only=True):
    key: str
    operator: str
    values: list[str] = []


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[LabelRequirement] = []


class AggregationRule(ApiStruct, frozen=True, kw_only=True):
    cluster_role_selectors: list[LabelSelector] = []


class ClusterRole(ApiObject, frozen=True, kw_only=True):
    rules: list[PolicyRule] = []
    aggregation_rule: AggregationRule | None = None


KIND = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    model=ClusterRole,
    namespaced=False,
    has_status=False,
    built_in=True,
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
)
