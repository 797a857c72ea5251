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

from datum_compute.api.plane import PlaneName, member_name, plane_role

JsonObject = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
COMPUTE = "compute.datumapis.com"
NETWORKING = "networking.datumapis.com"
QUOTA = "quota.miloapis.com"
IPAM = "ipam.miloapis.com"
SERVICES = "services.miloapis.com"
REGION = "region.datumapis.com"
COORDINATION = "coordination.k8s.io"
DEFINITIONS = "apiextensions.k8s.io"
AGGREGATE_TO = "rbac.compute.datumapis.com/aggregate-to-"
MANAGER_USER = "system:compute-manager"
OPERATOR_USER = "system:operator"
CELLS_GROUP = "system:cells"

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
    return f"system:cell:{member_name(plane)}"


def _on(group: str, resources: tuple[str, ...], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _seen(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """Read in every way there is: what belongs to an object can only be got."""
    whole = tuple(resource for resource in resources if "/" not in resource)
    parts = tuple(resource for resource in resources if "/" in resource)
    found = (_on(group, whole, *READ),)
    return (*found, _on(group, parts, "get")) if parts else found


def _paths(*paths: str) -> JsonObject:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


# --- people

_PLATFORM_ADMIN = (
    _on("*", ("*",), "*"),
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)

_OWNED_BY_CONTROLLERS = (
    *("workloaddeployments", "workloaddeployments/status", "workloaddeployments/scale"),
    *("instances", "instances/status"),
    *("workloadrevisions", "instancetypes"),
)
_WORKLOADS = ("workloads",)
_NETWORKS = ("networks",)
_NETWORKS_OF_CONTROLLERS = (
    *("networkbindings", "networkcontexts", "subnets", "subnetclaims"),
    *("locations", "locationbindings"),
)

_PROJECT_VIEWER = (
    *_seen(COMPUTE, *_WORKLOADS, "workloads/status", *_OWNED_BY_CONTROLLERS),
    _on(NETWORKING, (*_NETWORKS, *_NETWORKS_OF_CONTROLLERS), *READ),
    _on(
        QUOTA,
        ("resourceregistrations", "resourcegrants", "resourceclaims", "allowancebuckets"),
        *READ,
    ),
    _on(
        SERVICES,
        ("services", "serviceentitlements", "serviceconsumers", "serviceconfigurations"),
        *READ,
    ),
    *_seen("", "namespaces", "namespaces/status", "configmaps", "events", "serviceaccounts"),
    _on("", ("services",), *READ),  # there are none: api/nothinghere.py
    _on("events.k8s.io", ("events",), *READ),
    _on(COORDINATION, ("leases",), *READ),
    *_seen(DEFINITIONS, "customresourcedefinitions", "customresourcedefinitions/status"),
)

_PROJECT_EDITOR = (
    *_PROJECT_VIEWER,
    _on(COMPUTE, _WORKLOADS, *WRITE),
    _on(NETWORKING, _NETWORKS, *WRITE, "use"),
    # Programs of the project report what happens, and agree on who leads.
    _on("", ("configmaps", "events"), *WRITE),
    _on("events.k8s.io", ("events",), *WRITE),
    _on(COORDINATION, ("leases",), *WRITE),
    _on("", ("secrets",), *READ, *WRITE),
)

_PROJECT_ADMIN = (
    *_PROJECT_EDITOR,
    _on("", ("namespaces",), "create", "update", "patch", "delete"),
    _on("", ("serviceaccounts",), *WRITE),
    _on("", ("serviceaccounts/token",), "create"),
    _on(SERVICES, ("serviceentitlements",), *WRITE),
    _on(DEFINITIONS, ("customresourcedefinitions",), *WRITE),
    # Inside namespaces only: the roles of the whole plane keep the platform itself working.
    _on(RBAC, ("roles", "rolebindings"), *READ, *WRITE),
    _on(RBAC, ("clusterroles", "clusterrolebindings"), *READ),
    _on("authorization.k8s.io", ("localsubjectaccessreviews", "subjectaccessreviews"), "create"),
)

# Who runs the platform, on a project's plane: what the project may use, and nothing of its own.
_QUOTA_OPERATOR = (
    _on(QUOTA, ("resourcegrants",), *READ, *WRITE),
    _on(QUOTA, ("resourceregistrations", "resourceclaims", "allowancebuckets"), *READ),
    _on("", ("namespaces", "events"), *READ),
)

# --- programs


def _owned(group: str, *resources: str) -> tuple[JsonObject, ...]:
    """A controller makes, changes and removes these objects, and writes their status."""
    statuses = tuple(f"{resource}/status" for resource in resources)
    return (_on(group, resources, *OWN), _on(group, statuses, "patch"))


def _controlled(*resources: str) -> tuple[JsonObject, ...]:
    """The same of what users see and only controllers write (admission/ownership.py)."""
    return (*_owned(COMPUTE, *resources), _on(COMPUTE, resources, CONTROL))


# What is done on every plane: the garbage collector follows owners of any kind, a namespace gets
# what every namespace has and is emptied of whatever is in it, and definitions are told what has
# become of them. Owners and finalizers of any kind are taken away by the server itself
# (server/holdings.py), so nothing here may change what it does not own.
_KEEP_HOUSE = (
    _on("*", ("*",), *READ, "delete", RELEASE),
    _on("", ("serviceaccounts", "configmaps"), "create"),
    _on("", ("configmaps", "namespaces/status"), "patch"),
    _on("", ("namespaces/finalize",), "update"),
    # Controllers tell users what happens, and agree on who leads.
    _on("", ("events",), "create", "patch"),
    _on(COORDINATION, ("leases",), "create", "patch"),
    _on(DEFINITIONS, ("customresourcedefinitions", "customresourcedefinitions/status"), "patch"),
)

_MANAGER: dict[str, tuple[JsonObject, ...]] = {
    "platform": (
        *_KEEP_HOUSE,
        _on(IPAM, ("ipallocations",), *OWN),
        _on(QUOTA, ("resourceregistrations/status",), "patch"),
        _on(COMPUTE, ("instancetypes/status",), "patch"),
    ),
    "project": (
        *_KEEP_HOUSE,
        # The webhook asks whether users may use what their workloads name.
        _on("authorization.k8s.io", ("subjectaccessreviews",), "create"),
        _on(COMPUTE, ("workloads",), "patch"),
        _on(COMPUTE, ("workloads/status",), "patch"),
        *_controlled("workloaddeployments", "instances"),
        _on(COMPUTE, ("instancetypes",), "create", "patch"),
        _on(COMPUTE, ("workloadrevisions",), "create", "delete"),
        _on(NETWORKING, ("networks",), "create", "patch"),
        _on(NETWORKING, ("networks/status",), "patch"),
        *_owned(NETWORKING, "networkbindings", "networkcontexts", "subnetclaims", "subnets"),
        _on(QUOTA, ("resourcegrants/status",), "patch"),
        *_owned(QUOTA, "resourceclaims", "allowancebuckets"),
    ),
    "hub": (
        *_KEEP_HOUSE,
        _on("", ("namespaces",), *OWN),
        *_controlled("workloaddeployments", "instances"),
        _on("", ("configmaps", "secrets"), *OWN),
        _on("policy.karmada.io", ("propagationpolicies", "clusterpropagationpolicies"), *OWN),
        *_owned("work.karmada.io", "resourcebindings", "clusterresourcebindings", "works"),
        _on("cluster.karmada.io", ("clusters/status",), "patch"),
    ),
    "cell": (
        *_KEEP_HOUSE,
        _on("", ("namespaces",), *OWN),
        *_controlled("workloaddeployments", "instances"),
        *_owned(REGION, "servers"),
        _on("", ("configmaps", "secrets"), *OWN),
        _on(COMPUTE, ("instancetypes",), "create", "patch"),
    ),
}


def single_cluster_rules() -> tuple[JsonObject, ...]:
    """What the controllers need where one API server is everything and does the housekeeping
    itself, as Kubernetes does: no right to anything of others."""
    of_roles = (_MANAGER[role] for role in ("platform", "project", "cell"))
    written = [rule for rules in of_roles for rule in rules if rule not in _KEEP_HOUSE]
    groups = (COMPUTE, NETWORKING, QUOTA, IPAM, REGION)
    needed = (
        *(_on(group, ("*",), *READ, RELEASE) for group in groups),
        # What templates refer to lies beside them.
        _on("", ("namespaces", "configmaps", "secrets"), *READ),
        _on("", ("events",), "get", "create", "patch"),
        _on(COORDINATION, ("leases",), "get", "create", "patch"),
        # To name an owner that waits for what it owns; some API servers ask for that.
        _on(COMPUTE, ("workloads/finalizers", "workloaddeployments/finalizers"), "update"),
        _on(COMPUTE, ("instances/finalizers",), "update"),
        _on(NETWORKING, ("networks/finalizers", "networkcontexts/finalizers"), "update"),
        *(rule for rule in written if rule["apiGroups"] != [""]),
    )
    return tuple(rule for at, rule in enumerate(needed) if rule not in needed[:at])


# A cell that joins: its controllers on its own plane, and what it reports to the hub.
_CELL: dict[str, tuple[JsonObject, ...]] = {
    # The quota claims of its instances; which of them are its own the labels say.
    "project": (_on(QUOTA, ("resourceclaims",), *READ, *OWN, RELEASE),),
    "hub": (
        _on(COMPUTE, ("workloaddeployments", "instances"), *READ),
        *_controlled("instances"),
    ),
    "cell": (
        _on("", ("namespaces", "configmaps", "secrets"), *READ),
        _on(COMPUTE, ("workloaddeployments", "instances", "instancetypes"), *READ),
        _on(COMPUTE, ("workloaddeployments",), "patch", CONTROL, RELEASE),
        _on(COMPUTE, ("workloaddeployments/status",), "patch"),
        _on(COMPUTE, ("instances",), RELEASE),
        _on(REGION, ("servers",), RELEASE),
        _on(REGION, ("servers",), *READ),
        *_controlled("instances"),
        *_owned(REGION, "servers"),
        _on("", ("events",), "get", "create", "patch"),
        _on(COORDINATION, ("leases",), "get", "create", "patch"),
    ),
}

# --- everybody

_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_PUBLIC = (_paths(*_HEALTH),)
# For whoever collects metrics; the platform plane serves them, about the whole process.
_METRICS_READER = (_paths("/metrics"),)
_DISCOVERY = (_paths("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH),)
_BASIC_USER = (
    _on(
        "authorization.k8s.io",
        ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        "create",
    ),
    _on("authentication.k8s.io", ("selfsubjectreviews",), "create"),
)


def rules_by_role(plane: PlaneName) -> dict[str, tuple[JsonObject, ...]]:
    """The rules of every role a plane starts with."""
    role = plane_role(plane)
    return {
        "platform-admin": _PLATFORM_ADMIN,
        "project-admin": _PROJECT_ADMIN,
        "project-editor": _PROJECT_EDITOR,
        "project-viewer": _PROJECT_VIEWER,
        "manager": _MANAGER[role],
        "cell": _CELL.get(role, ()),
        **({"metrics-reader": _METRICS_READER} if role == "platform" else {}),
        **({"quota-operator": _QUOTA_OPERATOR} if role == "project" else {}),
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
    if role == "project":
        found["quota-operator"] = (("User", OPERATOR_USER),)
    if role in ("hub", "project"):
        found["cell"] = (("Group", CELLS_GROUP),)
    if role == "cell":
        found["cell"] = (("User", cell_user(plane)),)
    return found


def takes_up_others(role: str) -> bool:
    """Whether the role also holds the rules of roles labelled for it."""
    return role.startswith("project-") or role == "manager"
