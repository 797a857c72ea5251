"""What the four access kinds share: rules, subjects, and references to roles."""

from __future__ import annotations

from msgspec import field

from datum_compute.api.meta.codec import ApiStruct

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
