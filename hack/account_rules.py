"""What the accounts of controllers may do on API servers that are not ours.

Kubernetes does the housekeeping itself there (garbage, namespaces, definitions), so that these
rules give no right to anything of others. One cluster alone has one account; in a federation each
plane has accounts for those who work on it: the management controllers with the propagator, the
controllers of a cell, and the hub on a cell. The tests on real API servers run under exactly these
rules and fail on a single refusal.
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
# Controllers tell users what happens, and agree on who leads.
_TELL_AND_LEAD = (
    rule_on("", ("events",), "get", "create", "patch"),
    rule_on(COORDINATION, ("leases",), "get", "create", "patch"),
)
# To name an owner that waits for what it owns, an API server may ask for the right to hold it up.
_HOLD_UP = (
    rule_on(COMPUTE, ("workloads/finalizers", "workloaddeployments/finalizers"), "update"),
    rule_on(COMPUTE, ("instances/finalizers",), "update"),
    rule_on(NETWORKING, ("networks/finalizers", "networkcontexts/finalizers"), "update"),
)
# The gateway asks who its callers are, and what they may.
_KNOW_CALLERS = rule_on("authentication.k8s.io", ("tokenreviews",), "create")
_ASK_FOR_OTHERS = rule_on("authorization.k8s.io", ("subjectaccessreviews",), "create")
# What templates refer to lies beside them.
_READ_DATA = rule_on("", ("namespaces", "configmaps", "secrets"), *READ)
_READ_BY_MANAGER = {
    "platform": (COMPUTE, NETWORKING, QUOTA, IPAM, RESOURCE_MANAGER, SERVICES),
    "project": (COMPUTE, NETWORKING, QUOTA, SERVICES),
    "hub": (COMPUTE, *_KARMADA),
}


def single_cluster_rules() -> Rules:
    """Where one API server is everything."""
    roles = ("platform", "project", "cell")
    written = [rule for role in roles for rule in rules_beyond_housekeeping(role)]
    groups = (COMPUTE, NETWORKING, QUOTA, IPAM, REGION)
    return _each_once(
        *_seen_and_released(*groups),
        # The webhook asks whether there is anybody to ask for access.
        rule_on(SERVICES, ("services", "serviceentitlements"), *READ),
        _READ_DATA,
        *_TELL_AND_LEAD,
        *_HOLD_UP,
        _KNOW_CALLERS,
        *(rule for rule in written if rule["apiGroups"] != [""]),
    )


def account_rules(role: str) -> dict[str, Rules]:
    """The rules of every account on planes of a role, in a federation."""
    found: dict[str, Rules] = {}
    if role != "cell":
        found["compute-manager"] = _manager_rules(role)
    if role in CELL_RULES:
        found["compute-cell"] = _cell_rules(role)
    if role == "cell":
        found["compute-hub"] = HUB_ON_CELL_RULES
    return found


def _manager_rules(role: str) -> Rules:
    """The management controllers, and on the hub the propagator."""
    return _each_once(
        *_seen_and_released(*_READ_BY_MANAGER[role]),
        _READ_DATA if role != "platform" else rule_on("", ("namespaces",), *READ),
        *_TELL_AND_LEAD,
        *(_HOLD_UP if role != "platform" else ()),
        *rules_beyond_housekeeping(role),
        *((_KNOW_CALLERS,) if role == "project" else ()),
        # A consumer stays until its project is drained.
        *((rule_on(SERVICES, ("serviceconsumers",), "patch"),) if role == "platform" else ()),
    )


def _cell_rules(role: str) -> Rules:
    """The controllers of a cell: on its own plane, and what they report to hub and projects."""
    if role == "cell":
        return _each_once(*CELL_RULES[role], *_HOLD_UP[:2], _KNOW_CALLERS, _ASK_FOR_OTHERS)
    if role == "hub":
        # Whose home a namespace is.
        return _each_once(*CELL_RULES[role], rule_on("", ("namespaces",), *READ), *_HOLD_UP[:1])
    return CELL_RULES[role]


def _seen_and_released(*groups: str) -> Rules:
    return tuple(rule_on(group, ("*",), *READ, RELEASE) for group in groups)


def _each_once(*rules: JsonObject) -> Rules:
    return tuple(rule for at, rule in enumerate(rules) if rule not in rules[:at])


def pods_rules() -> Rules:
    """What the controllers of a cell need besides where instances are its pods."""
    return (
        rule_on("", ("pods",), *READ, "create", "delete"),
        # What people ask the gateway. A websocket is asked for with GET, and needs both verbs.
        rule_on("", ("pods/log",), "get"),
        rule_on("", ("pods/exec",), "get", "create"),
        rule_on("metrics.k8s.io", ("pods",), "get"),
    )
