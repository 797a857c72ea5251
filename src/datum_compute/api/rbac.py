"""ClusterRole (rbac.authorization.k8s.io): what may be done everywhere on a plane."""

from __future__ import annotations

from datum_compute.api.karmada import LabelSelector
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo
from datum_compute.api.rbacfields import RBAC_GROUP, PolicyRule


class AggregationRule(ApiStruct, frozen=True, kw_only=True):
    """The rules of all cluster roles that one of the selectors finds."""

    cluster_role_selectors: list[LabelSelector] = []


class ClusterRole(ApiObject, frozen=True, kw_only=True):
    """ClusterRole (rbac.authorization.k8s.io): what may be done everywhere on a plane."""

    rules: list[PolicyRule] = []
    aggregation_rule: AggregationRule | None = None


CLUSTER_ROLE = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="ClusterRole",
    plural="clusterroles",
    model=ClusterRole,
    namespaced=False,
    has_status=False,
    built_in=True,
    needs_version=False,
    put_creates=True,
    has_generation=False,
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
)
