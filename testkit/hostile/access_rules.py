"""Roles, bindings, reviews and field owners that are expensive to process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api.http import APPLY_PATCH, Request
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.granting import DEFAULT, RBAC, binding, role, rule, user
from testkit.hostile.request import HostileRequest, project_request

_ROLES, _BINDINGS = f"{RBAC}{DEFAULT}/roles", f"{RBAC}{DEFAULT}/rolebindings"
_CONFIG_MAPS = f"/api/v1{DEFAULT}/configmaps"
_REVIEWS = f"/apis/authorization.k8s.io/v1{DEFAULT}/localsubjectaccessreviews"


def _post_role(rules: Iterable[JsonObject], name: str = "r") -> Request:
    return project_request("POST", _ROLES, role(name, *rules))


def _post_binding(subjects: Sequence[JsonObject], to: str, of: str = "Role") -> Request:
    return project_request("POST", _BINDINGS, binding("b", to, *subjects, of=of))


def _some(prefix: str, count: int = 10) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def _named_rules(count: int, names_each: int = 1) -> list[JsonObject]:
    """Rules that a project user holds, each for other names."""
    return [
        rule("get list", "configmaps", group="", names=" ".join(_some(f"n{number}-", names_each)))
        for number in range(count)
    ]


def _wide_rules(count: int) -> list[JsonObject]:
    """Rules that a project user does not hold, each for 10,000 permissions."""
    return [
        {
            "verbs": _some(f"v{number}-"),
            "apiGroups": _some("g"),
            "resources": _some("r"),
            "resourceNames": _some("n"),
        }
        for number in range(count)
    ]


def _read_after(name: str, setup: Sequence[Request]) -> HostileRequest:
    return HostileRequest(
        name,
        setup=lambda: setup,
        requests=lambda: [project_request("GET", _CONFIG_MAPS)],
        status=200,
    )


_USERS = [user(f"u{number}") for number in range(1000)]

_BINDING_REQUESTS = (
    _read_after(
        "read after a binding of 1,000 equal subjects to 500 rules",
        [_post_role(_named_rules(500)), _post_binding([user("u")] * 1000, "r")],
    ),
    _read_after(
        "read after a binding of 1,000 subjects to 500 rules with 50 names",
        [_post_role(_named_rules(500, 50)), _post_binding(_USERS, "r")],
    ),
    HostileRequest(
        "binding of 14,000 equal subjects",
        requests=lambda: [_post_binding([user("u")] * 14_000, "project-viewer", "ClusterRole")],
        status=422,
        mentions="subjects: Too many: 14000: must have at most 1000 items",
    ),
    HostileRequest(
        "binding of 14,000 invalid subjects",
        requests=lambda: [
            _post_binding([{"kind": "x", "name": ""}] * 14_000, "project-viewer", "ClusterRole")
        ],
        status=422,
        mentions="subjects: Too many: 14000: must have at most 1000 items",
    ),
)

_ROLE_REQUESTS = (
    HostileRequest(
        "role of 1,500 rules",
        requests=lambda: [_post_role(_named_rules(1500))],
        status=422,
        mentions="rules: Too many: 1500: must have at most 500 items",
    ),
    HostileRequest(
        "role of 10,000 empty rules",
        requests=lambda: [_post_role([{"verbs": []}] * 10_000)],
        status=422,
        mentions="rules: Too many: 10000: must have at most 500 items",
    ),
    HostileRequest(
        "role of 500 rules that are held",
        requests=lambda: [_post_role(_named_rules(500, 50))],
        status=201,
    ),
    HostileRequest(
        "role of 100 rules with 10,000 permissions that are not held",
        requests=lambda: [_post_role(_wide_rules(100))],
        status=403,
        mentions="not currently held: v0-0 r0.g0 named n0, v0-0 r0.g0 named n1",
    ),
    HostileRequest(
        "role of 500 rules with one that is not held at the end",
        setup=lambda: [
            _post_role(_named_rules(500), "held"),
            _post_binding([user("admin:project/demo")], "held"),
        ],
        requests=lambda: [_post_role([*_named_rules(499, 50), rule("get", "x", group="y")])],
        status=403,
        mentions="not currently held: get x.y",
    ),
    HostileRequest(
        "role of a rule with 15,000 verbs and 15,000 resources",
        requests=lambda: [
            _post_role(
                [
                    {
                        "verbs": _some("v", 15_000),
                        "apiGroups": [""],
                        "resources": _some("r", 15_000),
                    }
                ]
            )
        ],
        status=403,
        mentions="not currently held: v0 r0, v0 r1",
    ),
)


def _review(groups: int) -> Request:
    attributes = {"namespace": "default", "verb": "get", "resource": "configmaps"}
    spec = {"user": "u", "groups": _some("g", groups), "resourceAttributes": attributes}
    return project_request("POST", _REVIEWS, {"spec": spec})


_REVIEW_REQUESTS = (
    HostileRequest(
        "review of a user with 50,000 groups",
        requests=lambda: [_review(50_000)],
        status=422,
        mentions="spec.groups: Too many: 50000: must have at most 1000 items",
    ),
    HostileRequest(
        "review of a user with 1,000 groups", requests=lambda: [_review(1000)], status=201
    ),
)


def _owners(count: int, keys_each: int = 1) -> list[JsonObject]:
    return [
        {
            "manager": f"m{number}",
            "operation": "Apply" if number % 2 else "Update",
            "apiVersion": "v1",
            "time": "2024-01-31T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {f"f:k{number * keys_each + key}": {} for key in range(keys_each)}
            },
        }
        for number in range(count)
    ]


def _config_map(keys: int, value: str = "", **metadata: object) -> JsonObject:
    return {"metadata": {"name": "c", **metadata}, "data": dict.fromkeys(_some("k", keys), value)}


def _apply(keys: int) -> Request:
    body = {"apiVersion": "v1", "kind": "ConfigMap", **_config_map(keys, value="x")}
    return project_request(
        "PATCH", f"{_CONFIG_MAPS}/c", body, content_type=APPLY_PATCH, fieldManager="me"
    )


_OWNER_REQUESTS = (
    HostileRequest(
        "update of 30,000 keys with 1,000 field owners",
        setup=lambda: [project_request("POST", _CONFIG_MAPS, _config_map(1))],
        requests=lambda: [
            project_request(
                "PUT", f"{_CONFIG_MAPS}/c", _config_map(30_000, managedFields=_owners(1000))
            )
        ],
        status=200,
    ),
    HostileRequest(
        "server-side apply of 29,000 keys that others own",
        setup=lambda: [project_request("POST", _CONFIG_MAPS, _config_map(29_000))],
        requests=lambda: [_apply(29_000)],
        status=409,
        mentions="and 28900 more",
    ),
    HostileRequest(
        "server-side apply that conflicts with 1,000 field owners",
        setup=lambda: [
            project_request("POST", _CONFIG_MAPS, _config_map(10_000)),
            project_request(
                "PUT", f"{_CONFIG_MAPS}/c", _config_map(10_000, managedFields=_owners(1000, 10))
            ),
        ],
        requests=lambda: [_apply(10_000)],
        status=409,
        mentions="Apply failed with 10000 conflicts",
    ),
)

REQUESTS = (*_BINDING_REQUESTS, *_ROLE_REQUESTS, *_REVIEW_REQUESTS, *_OWNER_REQUESTS)
