"""Kinds of role-based access control (rbac.authorization.k8s.io)."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.label_selector import LabelSelector
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn

# --- Rules, subjects and references to roles


RBAC_GROUP = "rbac.authorization.k8s.io"


class PolicyRule(ApiStruct, frozen=True, kw_only=True):
    """Verbs that are allowed on resources, or in a ClusterRole also on paths that are not
    resources.
    """

    verbs: Annotated[
        list[str], doc("Allowed verbs, such as get, list and watch. * means all verbs.")
    ]
    api_groups: Annotated[
        list[str],
        doc("API groups of the resources. The empty string is the core group, * means all groups."),
    ] = []
    resources: Annotated[
        list[str],
        doc(
            "Resources in the plural form, such as workloads or workloads/status. * "
            "means all resources."
        ),
    ] = []
    resource_names: Annotated[
        list[str],
        doc(
            "Names of the objects to which the rule is limited. If empty, the rule "
            "applies to all objects."
        ),
    ] = []
    non_resource_urls: Annotated[
        list[str],
        doc(
            "Paths to which the rule applies, such as /metrics. A * at the end "
            "matches all longer paths. Only for a ClusterRole."
        ),
    ] = field(name="nonResourceURLs", default_factory=list)


class Subject(ApiStruct, frozen=True, kw_only=True):
    """A user, group or ServiceAccount to which a role is granted."""

    kind: Annotated[str, doc("Kind of the subject: User, Group or ServiceAccount.")]
    name: Annotated[str, doc("Name of the subject.")]
    api_group: Annotated[
        str,
        doc(
            "API group of the subject. Empty for a ServiceAccount, "
            "rbac.authorization.k8s.io for a User or Group."
        ),
    ] = ""
    namespace: Annotated[str, doc("Namespace of a ServiceAccount.")] = ""


class RoleRef(ApiStruct, frozen=True, kw_only=True):
    """Reference to a role."""

    kind: Annotated[str, doc("Role or ClusterRole.")]
    name: Annotated[str, doc("Name of the role.")]
    api_group: Annotated[str, doc("API group of the role.")] = RBAC_GROUP


# --- ClusterRole


class AggregationRule(ApiStruct, frozen=True, kw_only=True):
    """Selection of cluster roles whose rules are combined."""

    cluster_role_selectors: Annotated[
        list[LabelSelector],
        doc(
            "Label selectors of cluster roles. The rules of each ClusterRole that a "
            "selector matches are added to this ClusterRole."
        ),
    ] = []


class ClusterRole(ApiObject, frozen=True, kw_only=True):
    """A ClusterRole is a set of rules that can be granted in a namespace or on the whole plane."""

    rules: Annotated[list[PolicyRule], doc("Rules of the role.")] = []
    aggregation_rule: Annotated[
        AggregationRule | None,
        doc("Cluster roles whose rules this role contains. If set, the server writes rules."),
    ] = None


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
    columns=(TableColumn("Created At", ".metadata.creationTimestamp"),),
)


# --- Role


class Role(ApiObject, frozen=True, kw_only=True):
    """A Role is a set of rules that can be granted in its namespace."""

    rules: Annotated[list[PolicyRule], doc("Rules of the role.")] = []


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
    columns=(TableColumn("Created At", ".metadata.creationTimestamp"),),
)


# --- RoleBinding


class RoleBinding(ApiObject, frozen=True, kw_only=True):
    """A RoleBinding grants a Role or a ClusterRole in its namespace."""

    role_ref: Annotated[RoleRef, doc("Role that is granted. It cannot be changed.")]
    subjects: Annotated[
        list[Subject], doc("Users, groups and service accounts to which the role is granted.")
    ] = []


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
        TableColumn("Role", ".roleRef", "reference"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ClusterRoleBinding


class ClusterRoleBinding(ApiObject, frozen=True, kw_only=True):
    """A ClusterRoleBinding grants a ClusterRole on the whole plane."""

    role_ref: Annotated[RoleRef, doc("ClusterRole that is granted. It cannot be changed.")]
    subjects: Annotated[
        list[Subject], doc("Users, groups and service accounts to which the role is granted.")
    ] = []


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
        TableColumn("Role", ".roleRef", "reference"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)
