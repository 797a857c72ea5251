"""ClusterRoleBinding (rbac.authorization.k8s.io): who has a cluster role everywhere on a plane."""

from __future__ import annotations

from datum_compute.api.meta.objects import ApiObject, Column, KindInfo
from datum_compute.api.rbacfields import RBAC_GROUP, RoleRef, Subject


class ClusterRoleBinding(ApiObject, frozen=True, kw_only=True):
    """ClusterRoleBinding (rbac.authorization.k8s.io): who has a cluster role everywhere on a
    plane.
    """

    role_ref: RoleRef
    subjects: list[Subject] = []


CLUSTER_ROLE_BINDING = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    model=ClusterRoleBinding,
    namespaced=False,
    has_status=False,
    built_in=True,
    needs_version=False,
    put_creates=True,
    has_generation=False,
    columns=(
        Column("Role", ".roleRef", "reference"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
