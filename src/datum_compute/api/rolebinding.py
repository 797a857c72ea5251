"""RoleBinding (rbac.authorization.k8s.io): who has a role inside one namespace."""

from __future__ import annotations

from datum_compute.api.meta.objects import ApiObject, Column, KindInfo
from datum_compute.api.rbacfields import RBAC_GROUP, RoleRef, Subject


class RoleBinding(ApiObject, frozen=True, kw_only=True):
    """RoleBinding (rbac.authorization.k8s.io): who has a role inside one namespace."""

    role_ref: RoleRef
    subjects: list[Subject] = []


ROLE_BINDING = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="RoleBinding",
    plural="rolebindings",
    model=RoleBinding,
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
