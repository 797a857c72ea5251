"""Rules for the service accounts of controllers on Kubernetes API servers.

Kubernetes collects garbage and deletes namespaces itself, so these rules do not cover objects of
other owners. A single cluster has one account. In a federation each plane has accounts for the
management controllers (with the propagator), the controllers of a cell, and the hub on a cell.
Tests against real API servers use exactly these rules and fail if a request is forbidden.
"""

from __future__ import annotations

from datum_compute.planes.roles import (
    CELL_RULES,
    COMPUTE,
    COORDINATION,
    HUB_ON_CELL_RULES,
    IPAM,
    NETWORKING,
    QUOTA,
    READ,
    REGION,
    RELEASE,
    RESOURCE_MANAGER,
    SERVICES,
    JsonObject,
    rule_on,
    rules_beyond_housekeeping,
)

Rules = tuple[JsonObject, ...]

_KARMADA = ("policy.karmada.io", "work.karmada.io", "cluster.karmada.io")
_EVENTS_AND_LEASES = (
    rule_on("", ("events",), "get", "create", "patch"),
    rule_on(COORDINATION, ("leases",), "get", "create", "patch"),
)
# Required by the admission plugin OwnerReferencesPermissionEnforcement for owner references with
# blockOwnerDeletion.
_BLOCK_OWNER_DELETION = (
    rule_on(COMPUTE, ("workloads/finalizers", "workloaddeployments/finalizers"), "update"),
    rule_on(COMPUTE, ("instances/finalizers",), "update"),
    rule_on(NETWORKING, ("networks/finalizers", "networkcontexts/finalizers"), "update"),
)
# The gateway authenticates and authorizes its callers.
_TOKEN_REVIEWS = rule_on("authentication.k8s.io", ("tokenreviews",), "create")
_ACCESS_REVIEWS = rule_on("authorization.k8s.io", ("subjectaccessreviews",), "create")
# Templates refer to objects of their namespace.
_READ_DATA = rule_on("", ("namespaces", "configmaps", "secrets"), *READ)
_READ_BY_MANAGER = {
    "platform": (COMPUTE, NETWORKING, QUOTA, IPAM, RESOURCE_MANAGER, SERVICES),
    "project": (COMPUTE, NETWORKING, QUOTA, SERVICES),
    "hub": (COMPUTE, *_KARMADA),
}


def single_cluster_rules() -> Rules:
    """Return the rules of the only account of a single cluster."""
    roles = ("platform", "project", "cell")
    written = [rule for role in roles for rule in rules_beyond_housekeeping(role)]
    groups = (COMPUTE, NETWORKING, QUOTA, IPAM, REGION)
    return _without_duplicates(
        *_read_and_release(*groups),
        # The webhook checks whether entitlements exist.
        rule_on(SERVICES, ("services", "serviceentitlements"), *READ),
        _READ_DATA,
        *_EVENTS_AND_LEASES,
        *_BLOCK_OWNER_DELETION,
        _TOKEN_REVIEWS,
        *(rule for rule in written if rule["apiGroups"] != [""]),
    )


def account_rules(role: str) -> dict[str, Rules]:
    """Return the rules of every account on planes of a role in a federation."""
    found: dict[str, Rules] = {}
    if role != "cell":
        found["compute-manager"] = _manager_rules(role)
    if role in CELL_RULES:
        found["compute-cell"] = _cell_rules(role)
    if role == "cell":
        found["compute-hub"] = HUB_ON_CELL_RULES
    return found


def _manager_rules(role: str) -> Rules:
    """Return the rules of the management controllers and, on the hub, the propagator."""
    return _without_duplicates(
        *_read_and_release(*_READ_BY_MANAGER[role]),
        _READ_DATA if role != "platform" else rule_on("", ("namespaces",), *READ),
        *_EVENTS_AND_LEASES,
        *(_BLOCK_OWNER_DELETION if role != "platform" else ()),
        *rules_beyond_housekeeping(role),
        *((_TOKEN_REVIEWS,) if role == "project" else ()),
        # For the finalizer of a consumer, which stays until its project is drained.
        *((rule_on(SERVICES, ("serviceconsumers",), "patch"),) if role == "platform" else ()),
    )


def _cell_rules(role: str) -> Rules:
    """Return the rules of the controllers of a cell on its plane, the hub and projects."""
    if role == "cell":
        return _without_duplicates(
            *CELL_RULES[role], *_BLOCK_OWNER_DELETION[:2], _TOKEN_REVIEWS, _ACCESS_REVIEWS
        )
    if role == "hub":
        # Labels of a namespace identify its project.
        return _without_duplicates(
            *CELL_RULES[role], rule_on("", ("namespaces",), *READ), *_BLOCK_OWNER_DELETION[:1]
        )
    return CELL_RULES[role]


def _read_and_release(*groups: str) -> Rules:
    return tuple(rule_on(group, ("*",), *READ, RELEASE) for group in groups)


def _without_duplicates(*rules: JsonObject) -> Rules:
    return tuple(rule for at, rule in enumerate(rules) if rule not in rules[:at])


def pods_rules() -> Rules:
    """Return the additional rules of a cell whose instances are pods."""
    return (
        rule_on("", ("pods",), *READ, "create", "delete"),
        # Requests relayed by the gateway. A websocket is opened with GET and needs both verbs.
        rule_on("", ("pods/log",), "get"),
        rule_on("", ("pods/exec",), "get", "create"),
        rule_on("metrics.k8s.io", ("pods",), "get"),
    )
