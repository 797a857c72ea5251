"""ClusterRole (rbac.authorization.k8s.io): what may be done everywhere on a plane."""

from __future__ import annotations

from msgspec import field

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.label_selector import LabelSelector
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

# --- What the four access kinds share: rules, subjects, and references to roles


RBAC_GROUP = "rbac.authorization.k8s.io"


class PolicyRule(ApiStruct, frozen=True, kw_only=True):
    """Verbs on resources of groups, or (cluster roles only) on paths that are no resource."""

    verbs: list[str]
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = field(name="nonResourceURLs", default_factory=list)


class Subject(ApiStruct, frozen=True, kw_only=True):
    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class RoleRef(ApiStruct, frozen=True, kw_only=True):
    kind: str
    name: str
    api_group: str = RBAC_GROUP


# --- clusterrole


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


# --- Role (rbac.authorization.k8s.io): what may be done inside its namespace


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


# --- RoleBinding (rbac.authorization.k8s.io): who has a role inside one namespace


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


# --- ClusterRoleBinding (rbac.authorization.k8s.io): who has a cluster role everywhere on a plane


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
