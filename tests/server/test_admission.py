"""Admission over the real server, with users of different roles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Response
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, decode, deep_copy
from datum_compute.api.meta.objects import KindInfo
from datum_compute.planes.roles import MANAGER_USER
from datum_compute.server.access.authentication import User
from testkit.api_server.granting import RBAC, cluster_binding, ensure_first_roles, grant, rule, user
from testkit.api_server.running_server import (
    LOCATION_BINDINGS,
    PROJECT,
    InProcessServer,
    causes,
    namespace,
    running_server,
    workload,
)

ROLES = ("project-admin", "project-editor", "project-viewer")
HERE = f"{PROJECT}/apis/compute.datumapis.com/v1alpha/namespaces/default"
WORKLOADS = f"{HERE}/workloads"
ANN, MANAGER = "token-of-ann", "token-of-the-manager"


def token_with_role(role: str) -> str:
    """Return the token of a user with this role only."""
    return f"token-of-{role}"


@pytest.fixture
async def project() -> AsyncIterator[InProcessServer]:
    """A server where ann has no roles."""
    everywhere = frozenset({"*"})
    users = {token_with_role(role): User(f"holder-{role}", (), everywhere) for role in ROLES}
    users |= {ANN: User("ann", (), everywhere), MANAGER: User(MANAGER_USER, (), everywhere)}
    async with running_server(users=users) as server:
        await ensure_first_roles(server, "project/demo")
        for role in ROLES:
            bound = cluster_binding(f"test-{role}", role, user(f"holder-{role}"))
            await server.json("POST", f"{PROJECT}{RBAC}/clusterrolebindings", bound)
        yield server


async def send_patch(server: InProcessServer, path: str, patch: JsonObject, token: str) -> Response:
    headers = {"content-type": MERGE_PATCH}
    return await server.ask("PATCH", path, patch, token=token, headers=headers)


def in_cities(*cities: str, replicas: int = 1, **more: Any) -> JsonObject:
    made = workload(**more)
    scale = {"minReplicas": replicas}
    made["spec"]["placements"] = [
        {"name": "main", "cityCodes": list(cities), "scaleSettings": scale}
    ]
    return made


def on_network(**network: str) -> JsonObject:
    made = workload()
    made["spec"]["template"]["spec"]["networkInterfaces"] = [{"network": network}]
    return made


def reading_secret(name: str) -> JsonObject:
    made = workload()
    (container,) = made["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["envFrom"] = [{"secretRef": {"name": name}}]
    return made


# --- cities


async def test_a_city_is_normalized_and_the_error_of_an_unknown_one_suggests_another(
    server: InProcessServer,
) -> None:
    made = await server.json("POST", WORKLOADS, in_cities("dfw"))
    assert made["spec"]["placements"][0]["cityCodes"] == ["DFW"]
    refused = await server.status("POST", WORKLOADS, in_cities("ORD", "dwf", name="typo"))
    assert causes(refused) == {"spec.placements[0].cityCodes[1]": "FieldValueNotSupported"}
    assert "did you mean DFW" in refused["message"]


async def test_a_workload_in_a_removed_city_can_be_changed_moved_and_deleted(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, in_cities("DFW", "ORD"))
    await server.json("DELETE", f"{PROJECT}{LOCATION_BINDINGS}/ord")
    path = f"{WORKLOADS}/web"
    scaled = await server.merge(path, {"spec": in_cities("DFW", "ORD", replicas=3)["spec"]})
    assert scaled["spec"]["placements"][0]["scaleSettings"]["minReplicas"] == 3
    await server.merge(path, {"spec": in_cities("dfw", "ord", image="web:2")["spec"]})
    await server.merge(path, {"spec": in_cities("DFW")["spec"]})
    back = await server.patch_refused(path, {"spec": in_cities("DFW", "ORD")["spec"]})
    assert causes(back) == {"spec.placements[0].cityCodes[1]": "FieldValueNotSupported"}
    await server.json("DELETE", path)


async def test_a_dry_run_and_an_apply_are_checked_alike(server: InProcessServer) -> None:
    dry = await server.status("POST", WORKLOADS, in_cities("SYD"), dryRun="All")
    assert dry["code"] == 422
    headers = {"content-type": "application/apply-patch+yaml"}
    query = {"fieldManager": "test"}
    path = f"{WORKLOADS}/web"
    applied = await server.ask("PATCH", path, in_cities("SYD"), headers=headers, **query)
    assert applied.status == 422


# --- networks, ConfigMaps and Secrets


@pytest.mark.parametrize(
    ("role", "code"), [("project-admin", 201), ("project-editor", 201), ("project-viewer", 403)]
)
async def test_admins_and_editors_may_use_networks(
    project: InProcessServer, role: str, code: int
) -> None:
    token = token_with_role(role)
    assert (await project.ask("POST", WORKLOADS, workload(), token=token)).status == code


async def test_viewers_that_may_write_workloads_may_not_use_networks(
    project: InProcessServer,
) -> None:
    await grant(project, rule("create", "workloads"), prefix=PROJECT)
    bound = cluster_binding("also-viewer", "project-viewer")
    await project.json("POST", f"{PROJECT}{RBAC}/clusterrolebindings", bound)
    refused = await project.status("POST", WORKLOADS, workload(), token=ANN)
    assert causes(refused) == {"spec.template.spec.networkInterfaces": "FieldValueForbidden"}
    named = await project.status("POST", WORKLOADS, on_network(name="default"), token=ANN)
    where = "spec.template.spec.networkInterfaces[0].network"
    assert causes(named) == {where: "FieldValueForbidden"}


async def test_a_network_of_another_namespace_needs_permission_there(
    project: InProcessServer,
) -> None:
    await project.json("POST", f"{PROJECT}/api/v1/namespaces", namespace("infra"))
    networks = rule("use", "networks", group="networking.datumapis.com", names="shared")
    await grant(project, rule("create patch", "workloads"), prefix=PROJECT)
    shared = on_network(name="shared", namespace="infra")
    assert (await project.ask("POST", WORKLOADS, shared, token=ANN)).status == 422
    role = {**cluster_role_of(networks), "kind": "Role"}
    await project.json("POST", f"{PROJECT}{RBAC}/namespaces/infra/roles", role)
    bound = {**cluster_binding("users", "users"), "kind": "RoleBinding"}
    bound["roleRef"] = {**bound["roleRef"], "kind": "Role"}
    await project.json("POST", f"{PROJECT}{RBAC}/namespaces/infra/rolebindings", bound)
    assert (await project.ask("POST", WORKLOADS, shared, token=ANN)).status == 201
    other = on_network(name="shared")["spec"]["template"]
    moved = await send_patch(project, f"{WORKLOADS}/web", {"spec": {"template": other}}, ANN)
    assert causes(decode(moved.body)) == {
        "spec.template.spec.networkInterfaces[0].network": "FieldValueForbidden"
    }


async def test_a_terminating_network_accepts_no_new_workloads(
    server: InProcessServer,
) -> None:
    networks = f"{PROJECT}/apis/networking.datumapis.com/v1alpha/namespaces/default/networks"
    held = {"name": "leaving", "finalizers": ["example.com/held"]}
    ipam = {"ipam": {"mode": "Auto"}}
    kind = {"apiVersion": "networking.datumapis.com/v1alpha", "kind": "Network"}
    await server.json("POST", networks, {**kind, "metadata": held, "spec": ipam})
    early = on_network(name="leaving")
    await server.json("POST", WORKLOADS, {**early, "metadata": {"name": "early"}})
    await server.json("DELETE", f"{networks}/leaving")
    refused = await server.status("POST", WORKLOADS, on_network(name="leaving"))
    where = "spec.template.spec.networkInterfaces[0].network"
    assert causes(refused) == {where: "FieldValueForbidden"}
    await server.merge(f"{WORKLOADS}/early", {"spec": {"paused": True}})
    await server.json("POST", WORKLOADS, workload())
    template = {"spec": {"template": on_network(name="leaving")["spec"]["template"]}}
    assert causes(await server.patch_refused(f"{WORKLOADS}/web", template)) == {
        where: "FieldValueForbidden"
    }


def cluster_role_of(*rules: JsonObject) -> JsonObject:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**kind, "metadata": {"name": "users"}, "rules": list(rules)}


async def test_a_workload_can_refer_only_to_secrets_that_its_author_may_read(
    project: InProcessServer,
) -> None:
    use = rule("use", "networks", group="networking.datumapis.com")
    await grant(project, rule("create patch", "workloads"), use, prefix=PROJECT)
    refused = await project.status("POST", WORKLOADS, reading_secret("db"), token=ANN)
    where = "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef"
    assert causes(refused) == {where: "FieldValueForbidden"}
    editor = token_with_role("project-editor")
    await project.json("POST", WORKLOADS, reading_secret("db"), token=editor)
    scaled = {"spec": {"placements": in_cities("DFW", replicas=2)["spec"]["placements"]}}
    assert (await send_patch(project, f"{WORKLOADS}/web", scaled, ANN)).status == 200
    template = {"spec": {"template": reading_secret("other")["spec"]["template"]}}
    assert (await send_patch(project, f"{WORKLOADS}/web", template, ANN)).status == 422


async def test_the_image_of_a_workload_with_a_secret_can_be_changed_only_by_its_readers(
    project: InProcessServer,
) -> None:
    use = rule("use", "networks", group="networking.datumapis.com")
    await grant(project, rule("create update patch", "workloads"), use, prefix=PROJECT)
    editor = token_with_role("project-editor")
    made = await project.json("POST", WORKLOADS, reading_secret("db"), token=editor)
    where = "spec.template.spec.runtime.sandbox.containers[0].envFrom[0].secretRef"
    image = "/spec/template/spec/runtime/sandbox/containers/0/image"
    spying = deep_copy(made)
    (container,) = spying["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["args"] = ["printenv"]
    applied = {**reading_secret("db"), "spec": {"template": spying["spec"]["template"]}}
    tries: list[tuple[str, str, Any, dict[str, str]]] = [
        ("PATCH", JSON_PATCH, [{"op": "replace", "path": image, "value": "spy:1"}], {}),
        ("PATCH", APPLY_PATCH, applied, {"fieldManager": "ann", "force": "true"}),
        ("PUT", "application/json", spying, {}),
    ]
    for method, media_type, body, query in tries:
        headers = {"content-type": media_type}
        path = f"{WORKLOADS}/web"
        answer = await project.ask(method, path, body, token=ANN, headers=headers, **query)
        assert causes(decode(answer.body)) == {where: "FieldValueForbidden"}
    restarted = {"metadata": {"annotations": {RESTARTED_AT: "2026-01-01T00:00:00Z"}}}
    restart = {"spec": {"paused": True, "template": restarted}}
    assert (await send_patch(project, f"{WORKLOADS}/web", restart, ANN)).status == 200
    assert (
        await send_patch(project, f"{WORKLOADS}/web", {"spec": spying["spec"]}, editor)
    ).status == 200


# --- fields of controllers

SPEC = workload()["spec"]["template"]["spec"]


def an_instance() -> JsonObject:
    gates = {"schedulingGates": [{"name": "Quota"}]}
    kind = {"apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance"}
    return {**kind, "metadata": {"name": "web-0"}, "spec": {**SPEC, "controller": gates}}


def a_deployment() -> JsonObject:
    kind = {"apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment"}
    spec = {
        "workloadRef": {"name": "web", "uid": "1"},
        "placementName": "main",
        "cityCode": "DFW",
        "template": {"spec": SPEC},
        "scaleSettings": {"minReplicas": 1},
    }
    return {**kind, "metadata": {"name": "web"}, "spec": spec}


OWNED: list[tuple[KindInfo[Any], JsonObject]] = [
    (INSTANCE, an_instance()),
    (DEPLOYMENT, a_deployment()),
]


@pytest.mark.parametrize("role", ROLES)
async def test_users_cannot_write_objects_of_controllers_or_any_status(
    project: InProcessServer, role: str
) -> None:
    token = token_with_role(role)
    await project.json("POST", WORKLOADS, workload())
    for kind, obj in OWNED:
        path = f"{HERE}/{kind.plural}"
        assert (await project.ask("POST", path, obj, token=token)).status == 403
        await project.json("POST", path, obj, token=MANAGER)
        name = f"{path}/{obj['metadata']['name']}"
        for patch in ({"spec": {"controller": None}}, {"metadata": {"labels": {"a": "b"}}}):
            assert (await send_patch(project, name, patch, token)).status == 403
        assert (await project.ask("DELETE", name, token=token)).status == 403
        assert (await send_patch(project, f"{name}/status", {"status": {}}, token)).status == 403
    status = f"{WORKLOADS}/web/status"
    assert (await send_patch(project, status, {"status": {"replicas": 9}}, token)).status == 403


async def test_permission_to_write_instances_does_not_permit_writes_of_controllers(
    project: InProcessServer,
) -> None:
    """The user has a custom role with too many permissions."""
    everything = rule("create update patch get", "instances workloaddeployments")
    await grant(project, everything, prefix=PROJECT)
    for kind, obj in OWNED:
        path = f"{HERE}/{kind.plural}"
        name = f"{path}/{obj['metadata']['name']}"
        refused = await project.status("POST", path, obj, token=ANN)
        assert causes(refused) == {"spec": "FieldValueForbidden"}
        await project.json("POST", path, obj, token=MANAGER)
        spec: JsonObject = (
            {"paused": True} if kind is DEPLOYMENT else {"controller": {"schedulingGates": []}}
        )
        ours = {"metadata": {"labels": {"compute.datumapis.com/workload-uid": "x"}}}
        for patch in ({"spec": spec}, ours):
            answer = await send_patch(project, name, patch, ANN)
            assert causes(decode(answer.body)) == {"spec": "FieldValueForbidden"}
        mine = {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/mine"]}}
        assert (await send_patch(project, name, mine, ANN)).status == 200
        assert (
            await send_patch(project, name, {"metadata": {"finalizers": []}}, ANN)
        ).status == 200


async def test_a_template_must_not_contain_fields_of_controllers(server: InProcessServer) -> None:
    sent = workload()
    sent["spec"]["template"]["spec"]["controller"] = {"schedulingGates": []}
    refused = await server.status("POST", WORKLOADS, sent)
    assert causes(refused) == {"spec.template.spec.controller": "FieldValueForbidden"}


async def test_virtual_machines_and_disks_are_rejected(
    server: InProcessServer,
) -> None:
    sent = workload()
    sent["spec"]["template"]["spec"]["runtime"]["virtualMachine"] = {"ports": []}
    for mode in ("Warn", "Strict", "Ignore"):
        refused = await server.status("POST", WORKLOADS, sent, fieldValidation=mode)
        field = "spec.template.spec.runtime.virtualMachine"
        assert causes(refused) == {field: "FieldValueForbidden"}
    disk = workload()
    disk["spec"]["template"]["spec"]["volumes"] = [{"name": "d", "disk": {}}]
    refused = await server.status("POST", WORKLOADS, disk)
    assert "spec.template.spec.volumes[0].disk" in causes(refused)


def test_every_guarded_kind_has_an_endpoint() -> None:
    assert all(kind.has_status for kind in (WORKLOAD, DEPLOYMENT, INSTANCE))
