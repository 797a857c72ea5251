"""Role (rbac.authorization.k8s.io): what its holders may do inside one namespace."""

from __future__ import annotations

from msgspec import field

from datum_compute.api.codec import ApiStruct
from datum_compute.api.meta import ApiObject, Column, KindInfo

RBAC_GROUP = "rbac.authorization.k8s.io"


class PolicyRule(ApiStruct, frozen=True, kw_only=True):
    """Verbs on resources (``*`` for all, ``a/b`` for a subresource) or on paths outside them."""

    verbs: list[str]
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = field(name="nonResourceURLs", default_factory=list)


class Role(ApiObject, frozen=True, kw_only=True):
    rules: list[PolicyRule] = []


KIND = KindInfo(
    group=RBAC_GROUP,
    version="v1",
    kind="Role",
    plural="roles",
    model=Role,
    has_status=False,
    built_in=True,
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
)
