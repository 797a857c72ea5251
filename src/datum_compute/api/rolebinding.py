"""RoleBinding (rbac.authorization.k8s.io): gives a Role or ClusterRole to subjects, inside one
namespace."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.meta import ApiObject, Column, KindInfo
from datum_compute.api.role import RBAC_GROUP


class Subject(ApiStruct, frozen=True, kw_only=True):
    """A User, a Group, or a ServiceAccount with its namespace."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class RoleRef(ApiStruct, frozen=True, kw_only=True):
    """The role that is given; it cannot be changed later."""

    kind: str
    name: str
    api_group: str = RBAC_GROUP


class RoleBinding(ApiObject, frozen=True, kw_only=True):
    role_ref: RoleRef
    subjects: list[Subject] = []


KIND = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="RoleBinding",
    plural="rolebindings",
    model=RoleBinding,
    has_status=False,
    built_in=True,
    columns=(
        Column("Role", ".roleRef.name"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
