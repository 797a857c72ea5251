"""Role (rbac.authorization.k8s.io): what may be done inside its namespace."""

from __future__ import annotations

from datum_compute.api.meta.objects import ApiObject, Column, KindInfo
from datum_compute.api.rbacfields import RBAC_GROUP, PolicyRule


class Role(ApiObject, frozen=True, kw_only=True):
    """Role (rbac.authorization.k8s.io): what may be done inside its namespace."""

    rules: list[PolicyRule] = []


ROLE = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="Role",
    plural="roles",
    model=Role,
    has_status=False,
    built_in=True,
    needs_version=False,
    put_creates=True,
    has_generation=False,
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
)
