"""The initial roles of every plane and their subjects, as data.

- A role has the same name on every plane. The rules of ``manager`` and ``cell`` depend on the role
  of the plane.
- Users only read the objects that controllers own (WorkloadDeployments, Instances). Their roles
  list each resource, because a wildcard would also let them write these.
- Two verbs exist for admission only: ``use`` on a network allows attaching a workload to it, and
  ``control`` allows writing objects that belong to controllers.

To give a controller a new verb, add it to ``_MANAGER_RULES`` under the role of its plane. To give
users a new kind, add its plural to their role.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.membership import CELLS_GROUP, HUB_USER, JOINERS_GROUP, cell_user_of
from datum_compute.api.planes import PlaneName, member_name, plane_role

JsonObject = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
COMPUTE = "compute.datumapis.com"
NETWORKING = "networking.datumapis.com"
QUOTA = "quota.miloapis.com"
IPAM = "ipam.miloapis.com"
SERVICES = "services.miloapis.com"
RESOURCE_MANAGER = "resourcemanager.miloapis.com"
REGION = "region.datumapis.com"
COORDINATION = "coordination.k8s.io"
DEFINITIONS = "apiextensions.k8s.io"
AGGREGATE_TO = "rbac.compute.datumapis.com/aggregate-to-"
MANAGER_USER = "system:compute-manager"
OPERATOR_USER = "system:operator"

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
OWN = ("create", "patch", "delete")  # for objects that a controller owns
CONTROL = "control"  # identifies controllers to admission (admission/rules/controller_owned.py)
# Allows removing finalizers of the platform (admission/rules/controller_owned.py). Never for users.
RELEASE = "release"


def admin_user(plane: PlaneName) -> str:
    """Return the user of the token of a plane in the kubeconfig."""
    return f"admin:{plane}"


def cell_user(plane: PlaneName) -> str:
    """Return the user of a joined cell. It is a member of the group of all cells."""
    return cell_user_of(member_name(plane))


def rule_on(group: str, resources: tuple[str, ...], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _read_rules(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """Return rules to read resources. Subresources support ``get`` only."""
    plain = tuple(resource for resource in resources if "/" not in resource)
    subresources = tuple(resource for resource in resources if "/" in resource)
    rules = (rule_on(group, plain, *READ),)
    return (*rules, rule_on(group, subresources, "get")) if subresources else rules


def _paths(*paths: str) -> JsonObject:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


# --- people

_PLATFORM_ADMIN = (
    rule_on("*", ("*",), "*"),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)

_CONTROLLER_COMPUTE_RESOURCES = (
    *("workloaddeployments", "workloaddeployments/status", "workloaddeployments/scale"),
    *("instances", "instances/status"),
    *("workloadrevisions", "instancetypes"),
)
_GATEWAY_RESOURCES = ("instances/log", "instances/usage", "instances/crashes")
_EXEC = "instances/exec"
_WORKLOADS = ("workloads",)
_NETWORKS = ("networks",)
_CONTROLLER_NETWORK_RESOURCES = (
    *("networkbindings", "networkcontexts", "subnets", "subnetclaims"),
    *("locations", "locationbindings"),
)

_PROJECT_VIEWER = (
    *_read_rules(
        COMPUTE,
        *_WORKLOADS,
        "workloads/status",
        *_CONTROLLER_COMPUTE_RESOURCES,
        *_GATEWAY_RESOURCES,
    ),
    rule_on(NETWORKING, (*_NETWORKS, *_CONTROLLER_NETWORK_RESOURCES), *READ),
    rule_on(
        QUOTA,
        ("resourceregistrations", "resourcegrants", "resourceclaims", "allowancebuckets"),
        *READ,
    ),
    rule_on(
        SERVICES,
        ("services", "serviceentitlements", "serviceconsumers", "serviceconfigurations"),
        *READ,
    ),
    *_read_rules("", "namespaces", "namespaces/status", "configmaps", "events", "serviceaccounts"),
    rule_on("", ("services",), *READ),  # always empty, see api/kinds.py
    rule_on("events.k8s.io", ("events",), *READ),
    rule_on(COORDINATION, ("leases",), *READ),
    *_read_rules(DEFINITIONS, "customresourcedefinitions", "customresourcedefinitions/status"),
)

_PROJECT_EDITOR = (
    *_PROJECT_VIEWER,
    rule_on(COMPUTE, _WORKLOADS, *WRITE),
    rule_on(NETWORKING, _NETWORKS, *WRITE, "use"),
    # Programs of the project write events and elect leaders.
    rule_on("", ("configmaps", "events"), *WRITE),
    rule_on("events.k8s.io", ("events",), *WRITE),
    rule_on(COORDINATION, ("leases",), *WRITE),
    rule_on("", ("secrets",), *READ, *WRITE),
    rule_on(COMPUTE, (_EXEC,), "create"),
)

_PROJECT_ADMIN = (
    *_PROJECT_EDITOR,
    rule_on("", ("namespaces",), "create", "update", "patch", "delete"),
    rule_on("", ("serviceaccounts",), *WRITE),
    rule_on("", ("serviceaccounts/token",), "create"),
    rule_on(SERVICES, ("serviceentitlements",), *WRITE),
    rule_on(DEFINITIONS, ("customresourcedefinitions",), *WRITE),
    # Only namespaced ones: the platform depends on the roles of the plane.
    rule_on(RBAC, ("roles", "rolebindings"), *READ, *WRITE),
    rule_on(RBAC, ("clusterroles", "clusterrolebindings"), *READ),
    rule_on(
        "authorization.k8s.io", ("localsubjectaccessreviews", "subjectaccessreviews"), "create"
    ),
)

# Operators of the platform on the plane of a project. They manage its quota, and cannot read its
# workloads or their data.
_QUOTA_OPERATOR = (
    rule_on(QUOTA, ("resourcegrants",), *READ, *WRITE),
    rule_on(QUOTA, ("resourceregistrations", "resourceclaims", "allowancebuckets"), *READ),
    rule_on("", ("namespaces", "events"), *READ),
)

# On the platform: administrators of organizations and projects, and providers that grant access to
# their service. Initially without subjects.
_ORGANIZATION_ADMIN = (
    rule_on(RESOURCE_MANAGER, ("organizations", "projects"), *READ, *WRITE),
    rule_on(RESOURCE_MANAGER, ("organizations/status", "projects/status"), "get"),
)
_SERVICE_PROVIDER = (
    rule_on(SERVICES, ("services", "serviceconfigurations", "serviceconsumers"), *READ),
    rule_on(SERVICES, ("serviceconsumers",), "update", "patch", "delete"),
)
# Readable by every authenticated user, also without access to a project.
_CATALOGUE_VIEWER = (
    rule_on(SERVICES, ("services",), *READ),
    rule_on(QUOTA, ("resourceregistrations",), *READ),
)

# --- programs


def _owner_rules(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """Return rules for a controller that owns the objects and writes their status."""
    statuses = tuple(f"{resource}/status" for resource in resources)
    return (rule_on(group, resources, *OWN), rule_on(group, statuses, "patch"))


def _controller_rules(*resources: str) -> tuple[JsonObject, ...]:
    """Return rules for objects that users read and only controllers write."""
    return (*_owner_rules(COMPUTE, *resources), rule_on(COMPUTE, resources, CONTROL))


# Controllers on every plane: the garbage collector reads owners of any kind, the namespace
# controllers create the initial objects of a namespace and delete its contents, and definitions
# receive a status. The server itself removes owner references and finalizers of any kind
# (server/inventory.py), so these rules do not allow patching arbitrary objects.
_HOUSEKEEPING = (
    rule_on("*", ("*",), *READ, "delete", RELEASE),
    rule_on("", ("serviceaccounts", "configmaps"), "create"),
    rule_on("", ("configmaps", "namespaces/status"), "patch"),
    rule_on("", ("namespaces/finalize",), "update"),
    # Events and leader election.
    rule_on("", ("events",), "create", "patch"),
    rule_on(COORDINATION, ("leases",), "create", "patch"),
    rule_on(
        DEFINITIONS, ("customresourcedefinitions", "customresourcedefinitions/status"), "patch"
    ),
)

_MANAGER_RULES: dict[str, tuple[JsonObject, ...]] = {
    "platform": (
        *_HOUSEKEEPING,
        rule_on(IPAM, ("ipallocations",), *OWN),
        rule_on(QUOTA, ("resourceregistrations/status",), "patch"),
        rule_on(COMPUTE, ("instancetypes/status",), "patch"),
        rule_on(NETWORKING, ("locations/status",), "patch"),
    ),
    "project": (
        *_HOUSEKEEPING,
        # The webhook checks that users may use the networks of their workloads.
        rule_on("authorization.k8s.io", ("subjectaccessreviews",), "create"),
        rule_on(COMPUTE, ("workloads",), "patch"),
        rule_on(COMPUTE, ("workloads/status",), "patch"),
        *_controller_rules("workloaddeployments", "instances"),
        rule_on(COMPUTE, ("instancetypes",), "create", "patch"),
        rule_on(COMPUTE, ("workloadrevisions",), *OWN),
        rule_on(NETWORKING, ("networks",), "create", "patch"),
        rule_on(NETWORKING, ("networks/status",), "patch"),
        *_owner_rules(NETWORKING, "networkbindings", "networkcontexts", "subnetclaims", "subnets"),
        rule_on(NETWORKING, ("locationbindings/status",), "patch"),
        rule_on(QUOTA, ("resourcegrants/status",), "patch"),
        *_owner_rules(QUOTA, "resourceclaims", "allowancebuckets"),
    ),
    "hub": (
        *_HOUSEKEEPING,
        rule_on("", ("namespaces",), *OWN),
        *_controller_rules("workloaddeployments", "instances"),
        rule_on("", ("configmaps", "secrets"), *OWN),
        rule_on("policy.karmada.io", ("propagationpolicies", "clusterpropagationpolicies"), *OWN),
        *_owner_rules("work.karmada.io", "resourcebindings", "clusterresourcebindings", "works"),
        rule_on("cluster.karmada.io", ("clusters", "clusters/status"), "patch"),
    ),
    "cell": (
        *_HOUSEKEEPING,
        rule_on("", ("namespaces",), *OWN),
        *_controller_rules("workloaddeployments", "instances"),
        *_owner_rules(REGION, "servers"),
        rule_on("", ("configmaps", "secrets"), *OWN),
        rule_on(COMPUTE, ("instancetypes",), "create", "patch"),
    ),
}


# For the controllers that replace Milo (controllers/platform). With Milo they are not needed.
_MILO_STAND_IN_RULES: dict[str, tuple[JsonObject, ...]] = {
    "platform": (
        rule_on("", ("namespaces",), "create"),
        rule_on(RESOURCE_MANAGER, ("projects", "projects/status", "organizations/status"), "patch"),
        rule_on(QUOTA, ("resourceregistrations",), "create"),
        rule_on(SERVICES, ("services/status", "serviceconfigurations/status"), "patch"),
        *_owner_rules(SERVICES, "serviceconsumers"),
    ),
    "project": (
        *_owner_rules(SERVICES, "serviceentitlements"),
        rule_on(QUOTA, ("resourcegrants",), *OWN),
        *_owner_rules(NETWORKING, "locationbindings"),
    ),
}


def rules_beyond_housekeeping(role: str) -> list[JsonObject]:
    """Return the rules of the manager for API servers that do their own housekeeping."""
    return [rule for rule in _MANAGER_RULES[role] if rule not in _HOUSEKEEPING]


# A joined cell: its controllers on its own plane, and its access to the hub and to projects. On the
# hub and on projects its slice (server/access/cell_authorizer.py) also limits it to its own
# objects.
CELL_RULES: dict[str, tuple[JsonObject, ...]] = {
    # Quota claims of its instances.
    "project": (rule_on(QUOTA, ("resourceclaims",), *READ, *OWN, RELEASE),),
    "hub": (
        rule_on(COMPUTE, ("workloaddeployments", "instances"), *READ),
        *_controller_rules("instances"),
        rule_on("cluster.karmada.io", ("clusters",), "get"),
        rule_on("cluster.karmada.io", ("clusters/status",), "get", "patch"),
        rule_on(COORDINATION, ("leases",), "get", "create", "patch"),
        rule_on(COMPUTE, ("celljoins",), "create"),
    ),
    "cell": (
        rule_on("", ("namespaces", "configmaps", "secrets"), *READ),
        rule_on(COMPUTE, ("workloaddeployments", "instances", "instancetypes"), *READ),
        rule_on(COMPUTE, ("workloaddeployments",), "patch", CONTROL, RELEASE),
        rule_on(COMPUTE, ("workloaddeployments/status",), "patch"),
        rule_on(COMPUTE, ("instances",), RELEASE),
        rule_on(REGION, ("servers",), RELEASE),
        rule_on(REGION, ("servers",), *READ),
        *_controller_rules("instances"),
        *_owner_rules(REGION, "servers"),
        rule_on("", ("events",), "get", "create", "patch"),
        rule_on(COORDINATION, ("leases",), "get", "create", "patch"),
    ),
}

# The hub on the plane of a cell, with the token of the cell: propagation, probes, and the requests
# of users that the gateway relays. Our propagator patches, Karmada updates.
HUB_ON_CELL_RULES = (
    rule_on("", ("namespaces", "configmaps", "secrets"), *READ, *OWN, "update"),
    rule_on(COMPUTE, ("workloaddeployments",), *READ, *OWN, "update", CONTROL),
    rule_on(COMPUTE, ("instancetypes",), *READ, "create", "patch"),
    rule_on(COMPUTE, ("instances", *_GATEWAY_RESOURCES), "get"),
    rule_on(COMPUTE, (_EXEC,), "create"),
)
# Holders of a join token.
_JOINER = (rule_on(COMPUTE, ("celljoins",), "create"),)

# --- all users

_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_PUBLIC = (_paths(*_HEALTH),)
# For Prometheus: the platform plane serves the metrics of the process.
_METRICS_READER = (_paths("/metrics"),)
_DISCOVERY = (_paths("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH),)
_BASIC_USER = (
    rule_on(
        "authorization.k8s.io",
        ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        "create",
    ),
    rule_on("authentication.k8s.io", ("selfsubjectreviews",), "create"),
)


_PLATFORM_ROLES = {
    "metrics-reader": _METRICS_READER,
    "organization-admin": _ORGANIZATION_ADMIN,
    "service-provider": _SERVICE_PROVIDER,
    "catalogue-viewer": _CATALOGUE_VIEWER,
}


def rules_by_role(plane: PlaneName) -> dict[str, tuple[JsonObject, ...]]:
    """Return the rules of every initial role of a plane."""
    return rules_on(plane_role(plane))


def rules_on(role: str) -> dict[str, tuple[JsonObject, ...]]:
    """Return the rules of every initial role of planes of a role."""
    return {
        "platform-admin": _PLATFORM_ADMIN,
        "project-admin": _PROJECT_ADMIN,
        "project-editor": _PROJECT_EDITOR,
        "project-viewer": _PROJECT_VIEWER,
        "manager": (*_MANAGER_RULES[role], *_MILO_STAND_IN_RULES.get(role, ())),
        "cell": CELL_RULES.get(role, ()),
        **(_PLATFORM_ROLES if role == "platform" else {}),
        **({"quota-operator": _QUOTA_OPERATOR} if role == "project" else {}),
        **({"joiner": _JOINER} if role == "hub" else {}),
        **({"hub": HUB_ON_CELL_RULES} if role == "cell" else {}),
        "system:public-info-viewer": _PUBLIC,
        "system:discovery": _DISCOVERY,
        "system:basic-user": _BASIC_USER,
    }


def subjects_by_role(plane: PlaneName) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the initial subjects of roles as (kind, name)."""
    role = plane_role(plane)
    authenticated = ("Group", "system:authenticated")
    admins = "project-admin" if role == "project" else "platform-admin"
    subjects: dict[str, tuple[tuple[str, str], ...]] = {
        admins: (("User", admin_user(plane)),),
        "manager": (("User", MANAGER_USER),),
        "system:public-info-viewer": (authenticated, ("Group", "system:unauthenticated")),
        "system:discovery": (authenticated,),
        "system:basic-user": (authenticated,),
    }
    if role == "platform":
        subjects["catalogue-viewer"] = (authenticated,)
    if role == "project":
        subjects["quota-operator"] = (("User", OPERATOR_USER),)
    if role in ("hub", "project"):
        subjects["cell"] = (("Group", CELLS_GROUP),)
    if role == "cell":
        subjects["cell"] = (("User", cell_user(plane)),)
        subjects["hub"] = (("User", HUB_USER),)
    if role == "hub":
        subjects["joiner"] = (("Group", JOINERS_GROUP),)
    return subjects


def is_aggregated(role: str) -> bool:
    """Return True if the role also has the rules of roles labeled for it."""
    return role.startswith("project-") or role == "manager"
