"""The roles every plane starts with, and who holds them: plain data, one place.

A role has the same name on every plane; what ``manager`` and ``cell`` may do depends on what
the plane is for. Users only read what controllers own (WorkloadDeployments, Instances): their
roles name each resource, because a star would let them write those too.

Two verbs are asked by admission only: ``use`` on a network lets a workload be attached to it, and
``control`` marks those who may write what belongs to controllers.

To give a controller a new verb: add it to ``_MANAGER`` under the role of the plane it works on.
To give users a new kind: add its plural to the role of those who need it.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.cellidentity import (
    CELLS_GROUP,
    HUB_USER,
    JOINERS_GROUP,
    cell_user_of,
)
from datum_compute.api.plane import PlaneName, member_name, plane_role

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
OWN = ("create", "patch", "delete")  # what controllers do with objects they own
CONTROL = "control"  # who has it on a resource that controllers write counts as one of them
# To take away finalizers of the platform (admission/finalizers.py): never for users.
RELEASE = "release"


def admin_user(plane: PlaneName) -> str:
    """The user behind the token of a plane in the kubeconfig."""
    return f"admin:{plane}"


def cell_user(plane: PlaneName) -> str:
    """The user a cell has joined as; a member of the group of all cells."""
    return cell_user_of(member_name(plane))


def rule_on(group: str, resources: tuple[str, ...], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _seen(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """Read in every way there is: what belongs to an object can only be got."""
    whole = tuple(resource for resource in resources if "/" not in resource)
    parts = tuple(resource for resource in resources if "/" in resource)
    found = (rule_on(group, whole, *READ),)
    return (*found, rule_on(group, parts, "get")) if parts else found


def _paths(*paths: str) -> JsonObject:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


# --- people

_PLATFORM_ADMIN = (
    rule_on("*", ("*",), "*"),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)

_OWNED_BY_CONTROLLERS = (
    *("workloaddeployments", "workloaddeployments/status", "workloaddeployments/scale"),
    *("instances", "instances/status"),
    *("workloadrevisions", "instancetypes"),
)
_OF_THE_GATEWAY = ("instances/log", "instances/usage", "instances/crashes")
_INSIDE_INSTANCES = "instances/exec"  # to run commands in them
_WORKLOADS = ("workloads",)
_NETWORKS = ("networks",)
_NETWORKS_OF_CONTROLLERS = (
    *("networkbindings", "networkcontexts", "subnets", "subnetclaims"),
    *("locations", "locationbindings"),
)

_PROJECT_VIEWER = (
    *_seen(COMPUTE, *_WORKLOADS, "workloads/status", *_OWNED_BY_CONTROLLERS, *_OF_THE_GATEWAY),
    rule_on(NETWORKING, (*_NETWORKS, *_NETWORKS_OF_CONTROLLERS), *READ),
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
    *_seen("", "namespaces", "namespaces/status", "configmaps", "events", "serviceaccounts"),
    rule_on("", ("services",), *READ),  # there are none: api/nothinghere.py
    rule_on("events.k8s.io", ("events",), *READ),
    rule_on(COORDINATION, ("leases",), *READ),
    *_seen(DEFINITIONS, "customresourcedefinitions", "customresourcedefinitions/status"),
)

_PROJECT_EDITOR = (
    *_PROJECT_VIEWER,
    rule_on(COMPUTE, _WORKLOADS, *WRITE),
    rule_on(NETWORKING, _NETWORKS, *WRITE, "use"),
    # Programs of the project report what happens, and agree on who leads.
    rule_on("", ("configmaps", "events"), *WRITE),
    rule_on("events.k8s.io", ("events",), *WRITE),
    rule_on(COORDINATION, ("leases",), *WRITE),
    rule_on("", ("secrets",), *READ, *WRITE),
    rule_on(COMPUTE, (_INSIDE_INSTANCES,), "create"),
)

_PROJECT_ADMIN = (
    *_PROJECT_EDITOR,
    rule_on("", ("namespaces",), "create", "update", "patch", "delete"),
    rule_on("", ("serviceaccounts",), *WRITE),
    rule_on("", ("serviceaccounts/token",), "create"),
    rule_on(SERVICES, ("serviceentitlements",), *WRITE),
    rule_on(DEFINITIONS, ("customresourcedefinitions",), *WRITE),
    # Inside namespaces only: the roles of the whole plane keep the platform itself working.
    rule_on(RBAC, ("roles", "rolebindings"), *READ, *WRITE),
    rule_on(RBAC, ("clusterroles", "clusterrolebindings"), *READ),
    rule_on(
        "authorization.k8s.io", ("localsubjectaccessreviews", "subjectaccessreviews"), "create"
    ),
)

# Who runs the platform, on a project's plane: what the project may use, and nothing of its own.
_QUOTA_OPERATOR = (
    rule_on(QUOTA, ("resourcegrants",), *READ, *WRITE),
    rule_on(QUOTA, ("resourceregistrations", "resourceclaims", "allowancebuckets"), *READ),
    rule_on("", ("namespaces", "events"), *READ),
)

# On the platform: whoever makes organizations and projects for others, and whoever provides a
# service and decides who may use it. Nobody holds them at first.
_ORGANIZATION_ADMIN = (
    rule_on(RESOURCE_MANAGER, ("organizations", "projects"), *READ, *WRITE),
    rule_on(RESOURCE_MANAGER, ("organizations/status", "projects/status"), "get"),
)
_SERVICE_PROVIDER = (
    rule_on(SERVICES, ("services", "serviceconfigurations", "serviceconsumers"), *READ),
    rule_on(SERVICES, ("serviceconsumers",), "update", "patch", "delete"),
)
# What everybody may know before they have access to anything.
_CATALOGUE_VIEWER = (
    rule_on(SERVICES, ("services",), *READ),
    rule_on(QUOTA, ("resourceregistrations",), *READ),
)

# --- programs


def _owned(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """A controller makes, changes and removes these objects, and writes their status."""
    statuses = tuple(f"{resource}/status" for resource in resources)
    return (rule_on(group, resources, *OWN), rule_on(group, statuses, "patch"))


def _controlled(*resources: str) -> tuple[JsonObject, ...]:
    """The same of what users see and only controllers write (admission/ownership.py)."""
    return (*_owned(COMPUTE, *resources), rule_on(COMPUTE, resources, CONTROL))


# What is done on every plane: the garbage collector follows owners of any kind, a namespace gets
# what every namespace has and is emptied of whatever is in it, and definitions are told what has
# become of them. Owners and finalizers of any kind are taken away by the server itself
# (server/holdings.py), so nothing here may change what it does not own.
_KEEP_HOUSE = (
    rule_on("*", ("*",), *READ, "delete", RELEASE),
    rule_on("", ("serviceaccounts", "configmaps"), "create"),
    rule_on("", ("configmaps", "namespaces/status"), "patch"),
    rule_on("", ("namespaces/finalize",), "update"),
    # Controllers tell users what happens, and agree on who leads.
    rule_on("", ("events",), "create", "patch"),
    rule_on(COORDINATION, ("leases",), "create", "patch"),
    rule_on(
        DEFINITIONS, ("customresourcedefinitions", "customresourcedefinitions/status"), "patch"
    ),
)

_MANAGER: dict[str, tuple[JsonObject, ...]] = {
    "platform": (
        *_KEEP_HOUSE,
        rule_on(IPAM, ("ipallocations",), *OWN),
        rule_on(QUOTA, ("resourceregistrations/status",), "patch"),
        rule_on(COMPUTE, ("instancetypes/status",), "patch"),
        rule_on(NETWORKING, ("locations/status",), "patch"),
    ),
    "project": (
        *_KEEP_HOUSE,
        # The webhook asks whether users may use what their workloads name.
        rule_on("authorization.k8s.io", ("subjectaccessreviews",), "create"),
        rule_on(COMPUTE, ("workloads",), "patch"),
        rule_on(COMPUTE, ("workloads/status",), "patch"),
        *_controlled("workloaddeployments", "instances"),
        rule_on(COMPUTE, ("instancetypes",), "create", "patch"),
        rule_on(COMPUTE, ("workloadrevisions",), "create", "delete"),
        rule_on(NETWORKING, ("networks",), "create", "patch"),
        rule_on(NETWORKING, ("networks/status",), "patch"),
        *_owned(NETWORKING, "networkbindings", "networkcontexts", "subnetclaims", "subnets"),
        rule_on(NETWORKING, ("locationbindings/status",), "patch"),
        rule_on(QUOTA, ("resourcegrants/status",), "patch"),
        *_owned(QUOTA, "resourceclaims", "allowancebuckets"),
    ),
    "hub": (
        *_KEEP_HOUSE,
        rule_on("", ("namespaces",), *OWN),
        *_controlled("workloaddeployments", "instances"),
        rule_on("", ("configmaps", "secrets"), *OWN),
        rule_on("policy.karmada.io", ("propagationpolicies", "clusterpropagationpolicies"), *OWN),
        *_owned("work.karmada.io", "resourcebindings", "clusterresourcebindings", "works"),
        rule_on("cluster.karmada.io", ("clusters", "clusters/status"), "patch"),
    ),
    "cell": (
        *_KEEP_HOUSE,
        rule_on("", ("namespaces",), *OWN),
        *_controlled("workloaddeployments", "instances"),
        *_owned(REGION, "servers"),
        rule_on("", ("configmaps", "secrets"), *OWN),
        rule_on(COMPUTE, ("instancetypes",), "create", "patch"),
    ),
}


# What the stand-ins for Milo do (controllers/platform); on real planes Milo itself does.
_STAND_IN: dict[str, tuple[JsonObject, ...]] = {
    "platform": (
        rule_on("", ("namespaces",), "create"),
        rule_on(RESOURCE_MANAGER, ("projects", "projects/status", "organizations/status"), "patch"),
        rule_on(QUOTA, ("resourceregistrations",), "create"),
        rule_on(SERVICES, ("services/status", "serviceconfigurations/status"), "patch"),
        *_owned(SERVICES, "serviceconsumers"),
    ),
    "project": (
        *_owned(SERVICES, "serviceentitlements"),
        rule_on(QUOTA, ("resourcegrants",), *OWN),
        *_owned(NETWORKING, "locationbindings"),
    ),
}


def rules_beyond_housekeeping(role: str) -> list[JsonObject]:
    """What the manager writes on planes of this role, where others do the housekeeping."""
    return [rule for rule in _MANAGER[role] if rule not in _KEEP_HOUSE]


# A cell that joins: its controllers on its own plane, and what it reports to the hub. On the hub
# and in projects this is what cells do at all; which objects a cell may do it to is its slice
# (server/access/slices.py).
CELL_RULES: dict[str, tuple[JsonObject, ...]] = {
    # The quota claims of its instances.
    "project": (rule_on(QUOTA, ("resourceclaims",), *READ, *OWN, RELEASE),),
    "hub": (
        rule_on(COMPUTE, ("workloaddeployments", "instances"), *READ),
        *_controlled("instances"),
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
        *_controlled("instances"),
        *_owned(REGION, "servers"),
        rule_on("", ("events",), "get", "create", "patch"),
        rule_on(COORDINATION, ("leases",), "get", "create", "patch"),
    ),
}

# The hub on the plane of a cell, by the token that the cell gave it: what it propagates, and to see
# that the cell answers; and through its gateway what users ask about their instances. Our
# propagator patches, Karmada updates.
HUB_ON_CELL_RULES = (
    rule_on("", ("namespaces", "configmaps", "secrets"), *READ, *OWN, "update"),
    rule_on(COMPUTE, ("workloaddeployments",), *READ, *OWN, "update", CONTROL),
    rule_on(COMPUTE, ("instancetypes",), *READ, "create", "patch"),
    rule_on(COMPUTE, ("instances", *_OF_THE_GATEWAY), "get"),
    rule_on(COMPUTE, (_INSIDE_INSTANCES,), "create"),
)
# Who holds a join token and is nobody yet.
_JOINER = (rule_on(COMPUTE, ("celljoins",), "create"),)

# --- everybody

_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_PUBLIC = (_paths(*_HEALTH),)
# For whoever collects metrics; the platform plane serves them, about the whole process.
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


_OF_PLATFORM = {
    "metrics-reader": _METRICS_READER,
    "organization-admin": _ORGANIZATION_ADMIN,
    "service-provider": _SERVICE_PROVIDER,
    "catalogue-viewer": _CATALOGUE_VIEWER,
}


def rules_by_role(plane: PlaneName) -> dict[str, tuple[JsonObject, ...]]:
    """The rules of every role a plane starts with."""
    return rules_on(plane_role(plane))


def rules_on(role: str) -> dict[str, tuple[JsonObject, ...]]:
    """The same for every plane of a role."""
    return {
        "platform-admin": _PLATFORM_ADMIN,
        "project-admin": _PROJECT_ADMIN,
        "project-editor": _PROJECT_EDITOR,
        "project-viewer": _PROJECT_VIEWER,
        "manager": (*_MANAGER[role], *_STAND_IN.get(role, ())),
        "cell": CELL_RULES.get(role, ()),
        **(_OF_PLATFORM if role == "platform" else {}),
        **({"quota-operator": _QUOTA_OPERATOR} if role == "project" else {}),
        **({"joiner": _JOINER} if role == "hub" else {}),
        **({"hub": HUB_ON_CELL_RULES} if role == "cell" else {}),
        "system:public-info-viewer": _PUBLIC,
        "system:discovery": _DISCOVERY,
        "system:basic-user": _BASIC_USER,
    }


def subjects_by_role(plane: PlaneName) -> dict[str, tuple[tuple[str, str], ...]]:
    """Who holds which role from the start, as (kind, name)."""
    role = plane_role(plane)
    everybody = ("Group", "system:authenticated")
    admins = "project-admin" if role == "project" else "platform-admin"
    found: dict[str, tuple[tuple[str, str], ...]] = {
        admins: (("User", admin_user(plane)),),
        "manager": (("User", MANAGER_USER),),
        "system:public-info-viewer": (everybody, ("Group", "system:unauthenticated")),
        "system:discovery": (everybody,),
        "system:basic-user": (everybody,),
    }
    if role == "platform":
        found["catalogue-viewer"] = (everybody,)
    if role == "project":
        found["quota-operator"] = (("User", OPERATOR_USER),)
    if role in ("hub", "project"):
        found["cell"] = (("Group", CELLS_GROUP),)
    if role == "cell":
        found["cell"] = (("User", cell_user(plane)),)
        found["hub"] = (("User", HUB_USER),)
    if role == "hub":
        found["joiner"] = (("Group", JOINERS_GROUP),)
    return found


def is_aggregated(role: str) -> bool:
    """Whether the role also holds the rules of roles labelled for it."""
    return role.startswith("project-") or role == "manager"
