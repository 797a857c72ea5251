"""Users can grant only permissions that they have."""

from __future__ import annotations

from datum_compute.api.meta.codec import JsonObject
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
    role,
    rule,
    server_with_ann,
    user,
)
from testkit.api_server.running_server import InProcessServer

EDITS_ROLES = rule("*", "roles clusterroles rolebindings clusterrolebindings", group=GROUP)
WRITES_ROLES = rule(
    "get list watch create update patch delete",
    "roles clusterroles rolebindings clusterrolebindings",
    group=GROUP,
)
ROLES = f"{RBAC}/clusterroles"
BINDINGS = f"{RBAC}/clusterrolebindings"


async def create_status(server: InProcessServer, path: str, obj: JsonObject) -> int:
    return (await server.ask("POST", path, obj, token=ANN)).status


async def test_a_role_can_contain_only_permissions_of_its_author() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES, rule("get list", "workloads"), paths("get", "/a/*"))
        fine = cluster_role("fine", rule("get", "workloads"), paths("get", "/a/b", "/a/b/*"))
        assert await create_status(server, ROLES, fine) == 201
        for wide in (
            rule("delete", "workloads"),
            rule("*", "workloads"),
            rule("get", "instances"),
            rule("get", "*"),
            rule("get", "workloads/status"),
            rule("get", "workloads", group="other"),
            rule("get", "workloads", group="*"),
            paths("get", "/b"),
            paths("get", "/*"),
        ):
            status = await server.status("POST", ROLES, cluster_role("wide", wide), token=ANN)
            assert status["reason"] == "Forbidden"
            assert "attempting to grant RBAC permissions not currently held" in status["message"]


async def test_several_rules_of_the_author_can_cover_one_rule_together() -> None:
    async with server_with_ann() as server:
        await grant(
            server,
            WRITES_ROLES,
            rule("get", "workloads instances"),
            rule("list", "workloads"),
            rule("list", "instances", names="a b"),
        )
        fine = rule("get list", "workloads")
        assert await create_status(server, ROLES, cluster_role("fine", fine)) == 201
        named = rule("get list", "workloads instances", names="a")
        assert await create_status(server, ROLES, cluster_role("named", named)) == 201
        unnamed = rule("get list", "workloads instances")
        assert await create_status(server, ROLES, cluster_role("unnamed", unnamed)) == 403


async def test_an_update_or_patch_cannot_add_permissions_to_a_role() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES, rule("get", "workloads"))
        await server.json("POST", ROLES, cluster_role("r", rule("delete", "workloads")))
        wider = cluster_role("r", rule("delete get", "workloads"))
        assert (await server.ask("PUT", f"{ROLES}/r", wider, token=ANN)).status == 403
        headers = {"content-type": "application/merge-patch+json"}
        wider_patch = {"rules": [rule("*", "*", group="*")]}
        refused = await server.ask(
            "PATCH", f"{ROLES}/held", wider_patch, token=ANN, headers=headers, dryRun="All"
        )
        assert refused.status == 403
        narrower = cluster_role("r", rule("get", "workloads"))
        assert (await server.ask("PUT", f"{ROLES}/r", narrower, token=ANN)).status == 200
        annotate = {"metadata": {"annotations": {"a": "b"}}}
        kept = await server.ask("PATCH", f"{ROLES}/r", annotate, token=ANN, headers=headers)
        assert kept.status == 200


async def test_the_verb_escalate_permits_any_rule() -> None:
    async with server_with_ann() as server:
        await grant(server, EDITS_ROLES)
        assert (
            await create_status(server, ROLES, cluster_role("r", rule("*", "*", group="*"))) == 201
        )


async def test_a_namespaced_role_is_compared_with_permissions_in_its_namespace() -> None:
    async with server_with_ann() as server:
        await grant_in(server, WRITES_ROLES, rule("get", "workloads"))
        path = f"{RBAC}{DEFAULT}/roles"
        assert await create_status(server, path, role("fine", rule("get", "workloads"))) == 201
        assert await create_status(server, path, role("wide", rule("list", "workloads"))) == 403


async def test_binding_a_role_needs_all_its_permissions_or_the_verb_bind() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES, rule("get", "workloads"))
        await server.json("POST", ROLES, cluster_role("small", rule("get", "workloads")))
        await server.json("POST", ROLES, cluster_role("large", rule("*", "workloads")))
        assert (
            await create_status(server, BINDINGS, cluster_binding("a", "small", user("bob"))) == 201
        )
        assert (
            await create_status(server, BINDINGS, cluster_binding("b", "large", user("bob"))) == 403
        )
        in_default = f"{RBAC}{DEFAULT}/rolebindings"
        assert await create_status(server, in_default, binding("b", "large")) == 403
        bind = rule("bind", "clusterroles", group=GROUP, names="large")
        await grant(server, bind, name="binder")
        assert (
            await create_status(server, BINDINGS, cluster_binding("b", "large", user("bob"))) == 201
        )


async def test_another_subject_is_a_new_grant() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES)
        await server.json("POST", ROLES, cluster_role("large", rule("*", "workloads")))
        await server.json("POST", BINDINGS, cluster_binding("b", "large", user("bob")))
        more = cluster_binding("b", "large", user("bob"), user("ann"))
        assert (await server.ask("PUT", f"{BINDINGS}/b", more, token=ANN)).status == 403


async def test_a_missing_role_cannot_be_bound() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES)
        status = await server.status("POST", BINDINGS, cluster_binding("b", "later"), token=ANN)
        assert (status["code"], status["details"]["kind"]) == (404, "clusterroles")


async def test_an_aggregation_rule_needs_all_permissions() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES, rule("*", "*", group="compute.datumapis.com"))
        selector = {"matchLabels": {"part": "x"}}
        whole = cluster_role("whole", aggregationRule={"clusterRoleSelectors": [selector]})
        assert await create_status(server, ROLES, whole) == 403


async def test_a_label_that_makes_a_role_part_of_another_is_checked_like_rules() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES)
        await server.json("POST", ROLES, cluster_role("strong", rule("*", "*", group="*")))
        patch = {"metadata": {"labels": {"part": "x"}}}
        headers = {"content-type": "application/merge-patch+json"}
        refused = await server.ask("PATCH", f"{ROLES}/strong", patch, token=ANN, headers=headers)
        assert refused.status == 403


async def test_a_role_with_too_many_permissions_to_compare_is_rejected() -> None:
    async with server_with_ann() as server:
        many = [f"v{number}" for number in range(100)]
        halves = [
            {"verbs": verbs, "apiGroups": many, "resources": many}
            for verbs in (many[:50], many[50:])
        ]
        await grant(server, WRITES_ROLES, *halves)
        wide = {"verbs": many, "apiGroups": many, "resources": many}
        status = await server.status("POST", ROLES, cluster_role("wide", wide), token=ANN)
        assert status["reason"] == "Forbidden"
        assert "too many permissions to compare; split the role" in status["message"]
        assert await create_status(server, ROLES, cluster_role("halves", *halves)) == 201


async def test_an_error_names_five_of_many_permissions() -> None:
    async with server_with_ann() as server:
        await grant(server, WRITES_ROLES)
        many = [f"v{number}" for number in range(1000)]
        wide = {"verbs": many, "apiGroups": many, "resources": many}
        status = await server.status("POST", ROLES, cluster_role("wide", wide), token=ANN)
        _, _, listed = status["message"].partition("not currently held: ")
        assert listed == "v0 v0.v0, v0 v1.v0, v0 v10.v0, v0 v100.v0, v0 v101.v0, ..."
