"""ClusterRoleBinding (rbac.authorization.k8s.io): gives a ClusterRole to subjects on the whole
plane."""

from __future__ import annotations

from datum_compute.api.meta import ApiObject, Column, KindInfo
from datum_compute.api.role import RBAC_GROUP
from datum_compute.api.rolebinding import RoleRef, Subject


class ClusterRoleBinding(ApiObject, frozen=True, kw_only=True):
    role_ref: RoleRef
    subjects: list[Subject] = []


KIND = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    model=ClusterRoleBinding,
    namespaced=False,
    has_status=False,
    built_in=True,
    columns=(
        Column("Role", ".roleRef.name"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
