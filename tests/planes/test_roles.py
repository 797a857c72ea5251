"""Initial roles: single rules listed by hand, and the complete matrix of verbs and kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from datum_compute.admission.rules.controller_owned import CONTROL, PROTECTED_FINALIZERS, RELEASE
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, KINDS, NETWORK
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.planes import PlaneName
from datum_compute.planes.roles import admin_user, rules_by_role, subjects_by_role
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.discovery.resources import ResourceRegistry
from datum_compute.store.journal import ObjectKey
from testkit.api_server.granting import RBAC, cluster_binding, ensure_first_roles
from testkit.api_server.running_server import (
    PROJECT,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)

PLANES = ("platform", "project/demo", "hub", "cell/dfw")
VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("impersonate", "escalate", "bind", "use", "control", "release"),
)
COMPUTE = "compute.datumapis.com"


def resources() -> Iterator[tuple[str, str, str]]:
    """Return group, plural and subresource of every resource."""
    for kind in KINDS:
        yield kind.group, kind.plural, ""
        if kind.has_status:
            yield kind.group, kind.plural, "status"
    yield "", "namespaces", "finalize"
    yield "", "serviceaccounts", "token"
    yield "", "secrets", ""
    yield "", "configmaps", ""
    yield "", "users", ""


def rules_allow(rules: tuple[JsonObject, ...], attributes: Attributes) -> bool:
    """Evaluate the role data, independently of the authorizer of the server."""
    full = attributes.full_resource
    return any(
        ("*" in r["verbs"] or attributes.verb in r["verbs"])
        and ("*" in r.get("apiGroups", ()) or attributes.group in r.get("apiGroups", ()))
        and ("*" in r.get("resources", ()) or full in r.get("resources", ()))
        for r in rules
    )


async def holder_of(server: InProcessServer, plane: str, role: str) -> User:
    prefix = {"platform": "", "project/demo": PROJECT, "hub": "/planes/hub"}.get(
        plane, "/planes/cells/dfw"
    )
    bound = cluster_binding(f"test-{role}", role, {"kind": "User", "name": f"holder-{role}"})
    await server.json("POST", f"{prefix}{RBAC}/clusterrolebindings", bound)
    return User(f"holder-{role}", (), frozenset({plane}))


@pytest.mark.parametrize("plane", PLANES)
async def test_the_authorizer_agrees_with_the_role_data_for_all_verbs_and_kinds(plane: str) -> None:
    name = PlaneName(plane)
    async with running_server() as server:
        await ensure_first_roles(server, plane)
        authorizer = server.api.authorizer
        for role, rules in rules_by_role(name).items():
            user = await holder_of(server, plane, role)
            for group, plural, subresource in resources():
                for verb in VERBS:
                    attributes = Attributes(verb, group, plural, subresource, "default")
                    expected = rules_allow(rules, attributes)
                    assert authorizer.allows(user, name, attributes) is expected, (role, attributes)


# plane, role, verb, group, resource, allowed
BY_HAND = [
    ("platform", "platform-admin", "delete", "", "secrets", True),
    ("platform", "platform-admin", "impersonate", "", "users", True),
    ("platform", "project-admin", "escalate", "rbac.authorization.k8s.io", "clusterroles", False),
    ("project/demo", "project-admin", "create", COMPUTE, "workloads", True),
    ("project/demo", "project-admin", "deletecollection", COMPUTE, "workloads", True),
    ("project/demo", "project-admin", "get", COMPUTE, "instances", True),
    ("project/demo", "project-admin", "create", COMPUTE, "instances", False),
    ("project/demo", "project-admin", "patch", COMPUTE, "instances/status", False),
    ("project/demo", "project-admin", "delete", COMPUTE, "instances", False),
    ("project/demo", "project-admin", "patch", COMPUTE, "workloaddeployments", False),
    ("project/demo", "project-admin", "patch", COMPUTE, "workloads/status", False),
    ("project/demo", "project-admin", "create", "", "serviceaccounts/token", True),
    ("project/demo", "project-admin", "create", "rbac.authorization.k8s.io", "roles", True),
    (
        *("project/demo", "project-admin", "create"),
        *("rbac.authorization.k8s.io", "clusterrolebindings", False),
    ),
    ("project/demo", "project-admin", "impersonate", "", "users", False),
    ("project/demo", "project-admin", "update", "", "namespaces/finalize", False),
    ("project/demo", "project-admin", "release", COMPUTE, "workloads", False),
    ("project/demo", "project-editor", "release", "networking.datumapis.com", "networks", False),
    ("project/demo", "manager", "release", COMPUTE, "workloads", True),
    ("cell/dfw", "cell", "release", COMPUTE, "instances", True),
    ("platform", "platform-admin", "release", COMPUTE, "workloads", True),
    ("project/demo", "project-editor", "update", COMPUTE, "workloads", True),
    ("project/demo", "project-editor", "get", "", "secrets", True),
    *(
        ("project/demo", role, "use", "networking.datumapis.com", "networks", may)
        for role, may in (("project-admin", True), ("project-editor", True))
    ),
    ("project/demo", "project-viewer", "use", "networking.datumapis.com", "networks", False),
    ("project/demo", "project-admin", "control", COMPUTE, "instances", False),
    ("project/demo", "manager", "control", COMPUTE, "workloaddeployments", True),
    ("cell/dfw", "cell", "control", COMPUTE, "instances", True),
    ("project/demo", "cell", "control", COMPUTE, "instances", False),
    ("project/demo", "project-editor", "create", "rbac.authorization.k8s.io", "roles", False),
    ("project/demo", "project-editor", "create", "", "serviceaccounts/token", False),
    ("project/demo", "project-editor", "delete", COMPUTE, "instances", False),
    ("project/demo", "project-viewer", "watch", COMPUTE, "workloads", True),
    ("project/demo", "project-viewer", "get", "", "secrets", False),
    ("project/demo", "project-viewer", "create", COMPUTE, "workloads", False),
    ("project/demo", "manager", "create", COMPUTE, "instances", True),
    ("project/demo", "manager", "create", COMPUTE, "workloads", False),
    ("project/demo", "manager", "create", "region.datumapis.com", "servers", False),
    ("project/demo", "manager", "create", "", "serviceaccounts/token", False),
    ("project/demo", "manager", "patch", "rbac.authorization.k8s.io", "clusterroles", False),
    ("project/demo", "cell", "get", COMPUTE, "workloads", False),
    ("hub", "manager", "create", "work.karmada.io", "works", True),
    ("hub", "manager", "create", "cluster.karmada.io", "clusters", False),
    ("project/demo", "cell", "create", "quota.miloapis.com", "resourceclaims", True),
    ("project/demo", "cell", "patch", "quota.miloapis.com", "resourceclaims/status", False),
    ("hub", "cell", "create", COMPUTE, "instances", True),
    ("hub", "cell", "patch", COMPUTE, "workloaddeployments", False),
    ("hub", "cell", "list", "work.karmada.io", "works", False),
    ("hub", "cell", "get", "", "secrets", False),
    ("cell/dfw", "manager", "create", "region.datumapis.com", "servers", True),
    ("cell/dfw", "cell", "create", "region.datumapis.com", "servers", True),
    ("cell/dfw", "cell", "create", COMPUTE, "workloaddeployments", False),
    ("cell/dfw", "cell", "delete", "", "namespaces", False),
]


@pytest.mark.parametrize(("plane", "role", "verb", "group", "resource", "expected"), BY_HAND)
async def test_permissions_listed_by_hand(
    plane: str, role: str, verb: str, group: str, resource: str, *, expected: bool
) -> None:
    plural, _, subresource = resource.partition("/")
    attributes = Attributes(verb, group, plural, subresource, "default", "x")
    async with running_server() as server:
        await ensure_first_roles(server, plane)
        user = await holder_of(server, plane, role)
        assert server.api.authorizer.allows(user, PlaneName(plane), attributes) is expected


# Verbs that only admission checks.
OWN_VERBS: dict[str, Collection[str]] = {
    RELEASE: PROTECTED_FINALIZERS.keys(),
    CONTROL: (DEPLOYMENT.resource, INSTANCE.resource),
    "use": (NETWORK.resource,),
}


# Served by the gateway, which checks these permissions.
OF_THE_GATEWAY = {
    ("compute.datumapis.com", "instances/log"): {"get"},
    ("compute.datumapis.com", "instances/usage"): {"get"},
    ("compute.datumapis.com", "instances/crashes"): {"get"},
    ("compute.datumapis.com", "instances/exec"): {"create"},
}


def served_verbs() -> dict[tuple[str, str], set[str]]:
    """By group and resource, as rules name them."""
    found: dict[tuple[str, str], set[str]] = {key: set(v) for key, v in OF_THE_GATEWAY.items()}
    catalogue = ResourceRegistry.of_kinds(KINDS)
    for served in catalogue.by_path.values():
        kind = served.kind
        more = {verb for verb, resources in OWN_VERBS.items() if kind.resource in resources}
        found.setdefault((kind.group, kind.plural), set()).update(served.verbs, more)
        for name, verbs in served.subresources.items():
            found.setdefault((kind.group, f"{kind.plural}/{name}"), set()).update(verbs)
    return found


@pytest.mark.parametrize("plane", PLANES)
def test_roles_name_only_existing_resources(plane: str) -> None:
    """``kubectl auth can-i --list`` shows the rules unchanged."""
    known = served_verbs()
    named = [
        (role, group, resource, verb)
        for role, rules in rules_by_role(PlaneName(plane)).items()
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
        if resource != "*"
    ]
    assert named
    assert [n for n in named if n[3] not in known.get((n[1], n[2]), ())] == []


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("role", ["project-admin", "project-editor", "project-viewer"])
def test_users_never_write_what_controllers_own(plane: str, role: str) -> None:
    rules = rules_by_role(PlaneName(plane))[role]
    for plural in ("instances", "workloaddeployments"):
        for subresource in ("", "status"):
            for verb in ("create", "update", "patch", "delete", "deletecollection"):
                attributes = Attributes(verb, COMPUTE, plural, subresource)
                assert not rules_allow(rules, attributes)


async def test_each_token_of_the_kubeconfig_has_the_admin_role_of_its_plane() -> None:
    for plane in PLANES:
        name = PlaneName(plane)
        users = {"t": User(admin_user(name), (), frozenset({name}))}
        async with running_server(users=users) as server:
            await ensure_first_roles(server, plane)
            user = users["t"]
            writes = Attributes("create", COMPUTE, "workloads", "", "default")
            grants = Attributes("create", "rbac.authorization.k8s.io", "clusterrolebindings")
            allows = server.api.authorizer.allows
            assert allows(user, name, writes)
            assert allows(user, name, grants) is (plane != "project/demo")


async def test_a_project_admin_may_bind_the_smaller_roles_inside_a_namespace() -> None:
    admin = User(admin_user(PlaneName("project/demo")), (), frozenset({"project/demo"}))
    async with running_server(users={"t": admin}) as server:
        await ensure_first_roles(server, "project/demo")
        path = f"{PROJECT}{RBAC}/namespaces/default/rolebindings"
        for role, expected in (
            ("project-viewer", 201),
            ("project-editor", 201),
            ("project-admin", 201),
            ("platform-admin", 403),
            ("manager", 403),
        ):
            bound = {**cluster_binding(role, role), "kind": "RoleBinding"}
            assert (await server.ask("POST", path, bound, token="t")).status == expected


async def test_authenticated_users_may_discover_and_nothing_else() -> None:
    eve = User("eve", (), frozenset({"project/demo"}))
    async with running_server(users={"t": eve}) as server:
        await ensure_first_roles(server, "project/demo")
        for path in ("/api", "/apis", "/api/v1", "/openapi/v3", "/version"):
            assert (await server.ask("GET", PROJECT + path, token="t")).status == 200
        assert (await server.ask("GET", PROJECT + WORKLOADS, token="t")).status == 403
        assert (await server.ask("GET", "/apis", token="t")).status == 403


async def test_custom_kinds_give_no_access_to_existing_kinds() -> None:
    admin = User(admin_user(PlaneName("project/demo")), (), frozenset({"project/demo"}))
    name = PlaneName("project/demo")

    async with running_server() as server:
        await ensure_first_roles(server, "project/demo")
        for group, plural in (("example.com", "widgets"), (COMPUTE, "instances")):
            await define(server, group, plural)
        allows = server.api.authorizer.allows
        assert allows(admin, name, Attributes("create", "example.com", "widgets"))
        assert allows(admin, name, Attributes("patch", "example.com", "widgets", "status"))
        assert not allows(admin, name, Attributes("create", COMPUTE, "instances"))
        assert not allows(admin, name, Attributes("create", "other.com", "widgets"))


async def define(server: InProcessServer, group: str, plural: str) -> None:
    """Write to the store directly, without validating the definition."""
    body = encode({"metadata": {}, "spec": {"group": group, "names": {"plural": plural}}})
    key = ObjectKey("customresourcedefinitions.apiextensions.k8s.io", "", f"{plural}.{group}")
    await server.store.put("project/demo", key, 0, lambda _: body)


def test_every_initial_binding_names_an_initial_role() -> None:
    for plane in PLANES:
        name = PlaneName(plane)
        assert set(subjects_by_role(name)) <= set(rules_by_role(name))


async def test_objects_survive_with_the_project_token_end_to_end() -> None:
    admin = User(admin_user(PlaneName("project/demo")), (), frozenset({"project/demo"}))
    async with running_server(users={"t": admin}) as server:
        await ensure_first_roles(server, "project/demo")
        path = PROJECT + WORKLOADS
        assert (await server.ask("POST", path, workload(), token="t")).status == 201
        assert (await server.ask("PUT", f"{path}/web/status", workload(), token="t")).status == 403
        assert (await server.ask("DELETE", f"{path}/web", token="t")).status == 200
        assert (await server.ask("GET", WORKLOADS, token="t")).status == 403


@pytest.mark.parametrize("category", ["all", "compute", "networking", "quota", "catalogue"])
def test_a_viewer_of_a_project_may_list_every_kind_of_a_category(category: str) -> None:
    """Otherwise ``kubectl get <category>`` prints the objects and fails."""
    rules = rules_by_role(PlaneName("project/demo"))["project-viewer"]
    kinds = [kind for kind in KINDS if category in kind.categories]
    assert kinds
    for kind in kinds:
        assert rules_allow(rules, Attributes("list", kind.group, kind.plural)), kind.kind
