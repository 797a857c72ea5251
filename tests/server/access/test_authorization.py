"""Permissions that the roles and bindings of a plane grant."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.access.authentication import User
from testkit.api_server.granting import (
    ANN,
    DEFAULT,
    GROUP,
    RBAC,
    binding,
    cluster_binding,
    cluster_role,
    grant,
    grant_in,
    paths,
    rule,
    server_with_ann,
    user,
)
from testkit.api_server.running_server import (
    COMPUTE,
    PROJECT,
    WORKLOADS,
    InProcessServer,
    causes,
    namespace,
    running_server,
    workload,
)

NAMESPACES = "/api/v1/namespaces"


async def status_code(server: InProcessServer, method: str, path: str, **query: Any) -> int:
    return (await server.ask(method, path, token=ANN, **query)).status


async def test_the_error_without_a_role_contains_the_requested_permission() -> None:
    async with server_with_ann() as server:
        status = await server.status("GET", f"{WORKLOADS}/web", token=ANN)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'workloads.compute.datumapis.com "web" is forbidden: User "ann" cannot get resource '
        '"workloads" in API group "compute.datumapis.com" in the namespace "default"'
    )
    assert status["details"] == {
        "name": "web",
        "group": "compute.datumapis.com",
        "kind": "workloads",
    }


async def test_a_cluster_role_binding_grants_its_verbs_on_every_namespace_and_no_others() -> None:
    async with server_with_ann() as server:
        await server.json("POST", WORKLOADS, workload())
        await grant(server, rule("get list", "workloads"))
        assert await status_code(server, "GET", WORKLOADS) == 200
        assert await status_code(server, "GET", f"{COMPUTE}/workloads") == 200
        assert await status_code(server, "GET", f"{WORKLOADS}/web") == 200
        assert await status_code(server, "GET", WORKLOADS, watch="1") == 403
        assert await status_code(server, "DELETE", f"{WORKLOADS}/web") == 403
        assert await status_code(server, "DELETE", WORKLOADS) == 403


async def test_a_role_binding_grants_inside_its_namespace_only() -> None:
    async with server_with_ann() as server:
        await server.json("POST", NAMESPACES, namespace("other"))
        await grant_in(server, rule("list", "workloads"))
        assert await status_code(server, "GET", WORKLOADS) == 200
        assert await status_code(server, "GET", f"{COMPUTE}/namespaces/other/workloads") == 403
        assert await status_code(server, "GET", f"{COMPUTE}/workloads") == 403


async def test_a_role_binding_of_a_cluster_role_grants_inside_its_namespace_only() -> None:
    async with server_with_ann() as server:
        lists = cluster_role("lists", rule("list", "workloads"), paths("get", "/secret"))
        await server.json("POST", f"{RBAC}/clusterroles", lists)
        await server.json("POST", f"{RBAC}{DEFAULT}/rolebindings", binding("b", "lists"))
        assert await status_code(server, "GET", WORKLOADS) == 200
        assert await status_code(server, "GET", f"{COMPUTE}/workloads") == 403
        assert await status_code(server, "GET", "/secret") == 403


async def test_a_role_of_the_same_name_in_another_namespace_grants_nothing() -> None:
    async with server_with_ann() as server:
        await server.json("POST", NAMESPACES, namespace("other"))
        await grant_in(server, rule("list", "workloads"))
        path = f"{RBAC}/namespaces/other/rolebindings"
        await server.json("POST", path, binding("b", "held", of="Role"))
        assert await status_code(server, "GET", f"{COMPUTE}/namespaces/other/workloads") == 403


async def test_a_rule_for_a_resource_does_not_cover_subresources_and_vice_versa() -> None:
    async with server_with_ann() as server:
        await server.json("POST", WORKLOADS, workload())
        await grant(server, rule("get", "workloads"))
        assert await status_code(server, "GET", f"{WORKLOADS}/web/status") == 403
        await grant(server, rule("get", "instances/status */status"), name="more")
        assert await status_code(server, "GET", f"{WORKLOADS}/web/status") == 200
        assert await status_code(server, "GET", f"{COMPUTE}/namespaces/default/instances/x") == 403


async def test_resource_names_restrict_a_rule_to_these_objects() -> None:
    async with server_with_ann() as server:
        for name in ("web", "other"):
            await server.json("POST", WORKLOADS, workload(name))
        await grant(server, rule("get list watch create delete", "workloads", names="web"))
        assert await status_code(server, "GET", f"{WORKLOADS}/web") == 200
        assert await status_code(server, "GET", f"{WORKLOADS}/other") == 403
        assert await status_code(server, "GET", WORKLOADS) == 403
        assert await status_code(server, "GET", WORKLOADS, fieldSelector="metadata.name=web") == 200
        assert (
            await status_code(server, "GET", WORKLOADS, fieldSelector="metadata.name!=web") == 403
        )
        assert (
            await status_code(server, "GET", WORKLOADS, fieldSelector="metadata.name=other") == 403
        )
        refused = await server.ask("POST", WORKLOADS, workload("web"), token=ANN)
        assert refused.status == 403


async def test_a_list_by_one_permitted_name_returns_only_that_object() -> None:
    async with server_with_ann() as server:
        for name in ("web", "other"):
            await server.json("POST", WORKLOADS, workload(name))
        await grant(server, rule("list", "workloads", names="web"))
        for selector in ("metadata.name=web,metadata.name=other", "metadata.name==web,"):
            found = await server.json("GET", WORKLOADS, token=ANN, fieldSelector=selector)
            assert {item["metadata"]["name"] for item in found["items"]} <= {"web"}


async def test_stars_match_all_verbs_groups_and_resources() -> None:
    async with server_with_ann() as server:
        await server.json("POST", WORKLOADS, workload())
        await grant(server, rule("*", "*", group="*"))
        for method, path in (
            ("GET", f"{WORKLOADS}/web/status"),
            ("GET", f"{RBAC}/clusterroles"),
            ("DELETE", f"{WORKLOADS}/web"),
        ):
            assert await status_code(server, method, path) == 200
        assert await status_code(server, "GET", "/apis") == 403


async def test_paths_match_exactly_or_by_a_prefix_before_a_star() -> None:
    async with server_with_ann() as server:
        await grant(server, paths("get", "/apis", "/openapi/*"))
        assert await status_code(server, "GET", "/apis") == 200
        assert await status_code(server, "HEAD", "/apis") == 200
        assert await status_code(server, "GET", "/api") == 403
        assert await status_code(server, "GET", "/openapi/v3") == 200
        assert await status_code(server, "GET", "/openapi") == 403
        assert await status_code(server, "POST", "/apis") == 403


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "Group", "name": "devs"},
        {"kind": "Group", "name": "system:authenticated"},
        {"kind": "User", "name": "ann"},
    ],
)
async def test_users_and_groups_are_subjects(subject: JsonObject) -> None:
    async with server_with_ann("devs") as server:
        role = cluster_role("lists", rule("list", "workloads"))
        await server.json("POST", f"{RBAC}/clusterroles", role)
        bound = cluster_binding("lists", "lists", subject)
        await server.json("POST", f"{RBAC}/clusterrolebindings", bound)
        assert await status_code(server, "GET", WORKLOADS) == 200


async def test_a_group_binding_does_not_apply_to_a_user_of_that_name() -> None:
    async with server_with_ann() as server:
        role = cluster_role("lists", rule("list", "workloads"))
        await server.json("POST", f"{RBAC}/clusterroles", role)
        subjects = ({"kind": "Group", "name": "ann"}, user("Ann"))
        bound = cluster_binding("lists", "lists", *subjects)
        await server.json("POST", f"{RBAC}/clusterrolebindings", bound)
        assert await status_code(server, "GET", WORKLOADS) == 403


async def test_changes_of_roles_apply_at_once() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("list", "workloads"))
        assert await status_code(server, "GET", WORKLOADS) == 200
        wider = cluster_role("held", rule("get", "workloads"))
        await server.json("PUT", f"{RBAC}/clusterroles/held", wider)
        assert await status_code(server, "GET", WORKLOADS) == 403
        assert await status_code(server, "GET", f"{WORKLOADS}/web") == 404
        await server.json("DELETE", f"{RBAC}/clusterrolebindings/held")
        assert await status_code(server, "GET", f"{WORKLOADS}/web") == 403


async def test_roles_of_one_plane_grant_nothing_on_another() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("*", "*", group="*"), prefix=PROJECT)
        assert await status_code(server, "GET", PROJECT + WORKLOADS) == 200
        assert await status_code(server, "GET", WORKLOADS) == 403
        assert await status_code(server, "GET", "/planes/hub" + WORKLOADS) == 403


async def test_the_errors_of_a_missing_plane_and_of_one_without_grants_are_equal() -> None:
    async with server_with_ann() as server:
        known = await server.ask("GET", f"/planes/cells/dfw{WORKLOADS}", token=ANN)
        unknown = await server.ask("GET", f"/planes/cells/none{WORKLOADS}", token=ANN)
        assert known.status == 403
        assert known.body == unknown.body
        healths = [
            await server.ask("GET", f"/planes/cells/{cell}/readyz", token=ANN)
            for cell in ("dfw", "none")
        ]
        assert [(h.status, h.body) for h in healths] == [(200, b"ok")] * 2


async def test_a_recreated_plane_has_none_of_the_old_grants() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("*", "*", group="*"), prefix=PROJECT)
        assert await status_code(server, "GET", PROJECT + WORKLOADS) == 200
        await server.store.delete_plane("project/demo")
        assert await status_code(server, "GET", PROJECT + WORKLOADS) == 403
        await server.store.create_plane("project/demo")
        assert await status_code(server, "GET", PROJECT + WORKLOADS) == 403
        await grant(server, rule("list", "workloads"), prefix=PROJECT)
        assert await status_code(server, "GET", PROJECT + WORKLOADS) == 200


async def test_an_aggregated_role_has_the_rules_of_selected_roles() -> None:
    async with server_with_ann() as server:
        selector = {"matchLabels": {"part": "lists"}}
        whole = cluster_role("whole", aggregationRule={"clusterRoleSelectors": [selector]})
        await server.json("POST", f"{RBAC}/clusterroles", whole)
        await server.json("POST", f"{RBAC}/clusterrolebindings", cluster_binding("b", "whole"))
        assert await status_code(server, "GET", WORKLOADS) == 403
        part = cluster_role("part", rule("list", "workloads"), labels={"part": "lists"})
        await server.json("POST", f"{RBAC}/clusterroles", part)
        assert await status_code(server, "GET", WORKLOADS) == 200
        await server.merge(f"{RBAC}/clusterroles/part", {"metadata": {"labels": {"part": "no"}}})
        assert await status_code(server, "GET", WORKLOADS) == 403


async def test_masters_need_no_role() -> None:
    users = {"m": User("boss", ("system:masters",), frozenset({"hub"}))}
    async with running_server(users=users) as server:
        assert (await server.ask("GET", "/planes/hub" + WORKLOADS, token="m")).status == 200
        assert (await server.ask("GET", WORKLOADS, token="m")).status == 403


async def test_names_of_roles_can_contain_colons(server: InProcessServer) -> None:
    await server.json("POST", f"{RBAC}/clusterroles", cluster_role("system:x:Y"))
    found = await server.json("GET", f"{RBAC}/clusterroles/system:x:Y")
    assert found["metadata"]["name"] == "system:x:Y"
    for name in ("..", "a/b", "a%b", "a b"):
        status = await server.status("POST", f"{RBAC}/clusterroles", cluster_role(name))
        assert causes(status) == {"metadata.name": "FieldValueInvalid"}


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"verbs": [], "apiGroups": [""], "resources": ["x"]}, "rules[0].verbs"),
        ({"verbs": ["get"], "apiGroups": [""]}, "rules[0].resources"),
        ({"verbs": ["get"], "resources": ["x"]}, "rules[0].apiGroups"),
        ({"verbs": ["get"], "nonResourceURLs": ["x"]}, "rules[0].nonResourceURLs[0]"),
        ({"verbs": ["get"], "nonResourceURLs": ["/a*b"]}, "rules[0].nonResourceURLs[0]"),
        (
            {
                "verbs": ["get"],
                "nonResourceURLs": ["/a"],
                "apiGroups": [""],
                "resources": ["x"],
            },
            "rules[0].nonResourceURLs",
        ),
    ],
)
async def test_an_incomplete_rule_is_rejected_with_its_field(
    server: InProcessServer, bad: JsonObject, field: str
) -> None:
    status = await server.status("POST", f"{RBAC}/clusterroles", cluster_role("r", bad))
    assert status["code"] == 422
    assert field in causes(status)


async def test_a_namespaced_role_has_no_paths(server: InProcessServer) -> None:
    role = {**cluster_role("r", paths("get", "/a")), "kind": "Role"}
    status = await server.status("POST", f"{RBAC}{DEFAULT}/roles", role)
    assert causes(status) == {"rules[0].nonResourceURLs": "FieldValueInvalid"}


async def test_the_role_of_a_binding_is_immutable_and_subjects_are_validated(
    server: InProcessServer,
) -> None:
    path = f"{RBAC}{DEFAULT}/rolebindings"
    created = await server.json("POST", path, binding("b", "one"))
    assert created["subjects"] == [{"kind": "User", "name": "ann", "apiGroup": GROUP}]
    status = await server.status("PUT", f"{path}/b", binding("b", "two"))
    assert causes(status) == {"roleRef": "FieldValueInvalid"}
    wrong = binding("c", "one", {"kind": "Robot", "name": "r"})
    status = await server.status("POST", path, wrong)
    assert causes(status) == {"subjects[0].kind": "FieldValueNotSupported"}
    homeless = binding("c", "one", {"kind": "ServiceAccount", "name": "r"})
    status = await server.status("POST", path, homeless)
    assert causes(status) == {"subjects[0].namespace": "FieldValueRequired"}
    of_role = {**cluster_binding("c", "one"), "roleRef": {"kind": "Role", "name": "one"}}
    status = await server.status("POST", f"{RBAC}/clusterrolebindings", of_role)
    assert causes(status) == {"roleRef.kind": "FieldValueNotSupported"}


LEASES = "coordination.k8s.io"
LEASE = f"/apis/{LEASES}/v1/namespaces/default/leases/one"
APPLY = {"content-type": "application/apply-patch+yaml"}


async def test_a_put_that_creates_needs_the_verb_create() -> None:
    lease: JsonObject = {"metadata": {"name": "one"}, "spec": {}}
    async with server_with_ann() as server:
        await grant(server, rule("update", "leases", group=LEASES))
        refused = await server.status("PUT", LEASE, lease, token=ANN)
        assert 'cannot create resource "leases"' in refused["message"]
        await grant(server, rule("create", "leases", group=LEASES), name="more")
        assert (await server.ask("PUT", LEASE, lease, token=ANN)).status == 201


async def test_an_apply_that_creates_needs_the_verb_create() -> None:
    web = f"{WORKLOADS}/web"
    async with server_with_ann() as server:
        await grant(server, rule("patch", "workloads"))
        options = {"token": ANN, "fieldManager": "ann"}
        refused = await server.status("PATCH", web, workload(), headers=APPLY, **options)
        assert 'cannot create resource "workloads"' in refused["message"]
        await grant(server, rule("create", "workloads"), name="more")
        await grant(
            server, rule("use", "networks", group="networking.datumapis.com"), name="network"
        )
        made = await server.ask("PATCH", web, workload(), headers=APPLY, **options)
        assert made.status == 201
