"""Namespaces are active, then terminating until they are empty and finalized."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import COMPUTE, InProcessServer, causes, namespace, workload

NAMESPACES = "/api/v1/namespaces"
TEAM = f"{NAMESPACES}/team"
TEAM_WORKLOADS = f"{COMPUTE}/namespaces/team/workloads"


@pytest.fixture
async def team(server: InProcessServer) -> JsonObject:
    return await server.json("POST", NAMESPACES, namespace("team"))


def without_spec_finalizers(obj: JsonObject) -> JsonObject:
    return {**obj, "spec": {"finalizers": []}}


async def test_a_new_namespace_is_active_with_a_finalizer_and_no_generation(
    team: JsonObject,
) -> None:
    assert team["spec"] == {"finalizers": ["kubernetes"]}
    assert team["status"] == {"phase": "Active"}
    assert "generation" not in team["metadata"]
    assert team["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}


@pytest.mark.parametrize("name", ["a.b", "a" * 64, "A"])
async def test_the_name_of_a_namespace_is_a_dns_label(server: InProcessServer, name: str) -> None:
    status = await server.status("POST", NAMESPACES, namespace(name))
    assert causes(status) == {"metadata.name": "FieldValueInvalid"}
    assert status["message"].startswith(f'Namespace "{name}" is invalid')


async def test_no_object_can_be_created_in_a_terminating_namespace(
    server: InProcessServer, team: JsonObject
) -> None:
    await server.json("POST", TEAM_WORKLOADS, workload())
    deleted = await server.json("DELETE", TEAM)
    assert deleted["status"] == {"phase": "Terminating"}
    assert deleted["metadata"]["deletionTimestamp"]
    assert "generation" not in deleted["metadata"]
    status = await server.status("POST", TEAM_WORKLOADS, workload("late"))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert causes(status) == {"metadata.namespace": "NamespaceTerminating"}
    assert "because it is being terminated" in status["message"]
    changed = await server.merge(f"{TEAM_WORKLOADS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert changed["metadata"]["labels"] == {"a": "b"}


async def test_finalize_removes_an_empty_terminating_namespace(
    server: InProcessServer, team: JsonObject
) -> None:
    watch = await server.watch(NAMESPACES, resourceVersion=team["metadata"]["resourceVersion"])
    deleted = await server.json("DELETE", TEAM)
    gone = await server.json("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert gone["spec"]["finalizers"] == []
    assert (await server.ask("GET", TEAM)).status == 404
    assert [kind for kind, _ in await watch.take(2)] == ["MODIFIED", "DELETED"]
    again = await server.json("POST", NAMESPACES, namespace("team"))
    assert again["metadata"]["uid"] != team["metadata"]["uid"]


async def test_a_namespace_with_objects_is_not_finalized(
    server: InProcessServer, team: JsonObject
) -> None:
    await server.json("POST", TEAM_WORKLOADS, workload())
    deleted = await server.json("DELETE", TEAM)
    status = await server.status("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert status["reason"] == "Conflict"
    assert "workloads.compute.datumapis.com/web" in status["message"]
    await server.json("DELETE", f"{TEAM_WORKLOADS}/web")
    await server.json("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert (await server.ask("GET", TEAM)).status == 404


async def test_a_pending_create_keeps_the_namespace(
    server: InProcessServer, team: JsonObject
) -> None:
    """The create was checked while the namespace was active, and commits while it terminates."""
    server.journal.held = True
    async with asyncio.TaskGroup() as group:
        watch = await server.watch(NAMESPACES, resourceVersion=team["metadata"]["resourceVersion"])
        deleting = group.create_task(server.json("DELETE", TEAM))
        await server.journal.waiting.wait()
        creating = group.create_task(server.ask("POST", TEAM_WORKLOADS, workload()))
        await asyncio.sleep(0)  # the create waits for the commit of the delete
        server.journal.permit()
        deleted = await deleting
        assert (await watch.next())[1]["status"]["phase"] == "Terminating"
        assert (await server.json("GET", TEAM_WORKLOADS))["items"] == []
        refused = await server.status("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
        assert "is being created" in refused["message"]
        server.journal.permit()
        assert (await creating).status == 201
    refused = await server.status("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert "still holds 1 objects" in refused["message"]


async def test_finalizers_of_metadata_keep_a_finalized_namespace(server: InProcessServer) -> None:
    await server.json("POST", NAMESPACES, namespace("team", finalizers=["example.com/hold"]))
    deleted = await server.json("DELETE", TEAM)
    held = await server.json("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert held["spec"]["finalizers"] == []
    assert (await server.json("GET", TEAM))["status"]["phase"] == "Terminating"
    await server.merge(TEAM, {"metadata": {"finalizers": None}})
    assert (await server.ask("GET", TEAM)).status == 404


async def test_finalizers_of_the_spec_change_only_through_finalize(
    server: InProcessServer, team: JsonObject
) -> None:
    assert await server.json("PUT", TEAM, without_spec_finalizers(team)) == team
    assert await server.merge(TEAM, {"spec": {"finalizers": ["a"]}, "status": {}}) == team
    changed = {
        **without_spec_finalizers(team),
        "metadata": {**team["metadata"], "labels": {"x": "y"}},
    }
    released = await server.json("PUT", f"{TEAM}/finalize", changed)
    assert released["spec"]["finalizers"] == []
    assert released["metadata"]["labels"] == team["metadata"]["labels"]
    assert released["status"] == {"phase": "Active"}
    assert (await server.json("DELETE", TEAM))["status"] == "Success"


async def test_a_terminating_namespace_accepts_no_new_spec_finalizers(
    server: InProcessServer, team: JsonObject
) -> None:
    deleted = await server.json("DELETE", TEAM)
    sent = {**deleted, "spec": {"finalizers": ["kubernetes", "example.com/more"]}}
    status = await server.status("PUT", f"{TEAM}/finalize", sent)
    assert causes(status) == {"spec.finalizers": "FieldValueForbidden"}


@pytest.mark.parametrize("spec", [{"finalizers": "kubernetes"}, {"finalizers": [1]}])
async def test_finalize_rejects_values_of_the_wrong_type(
    server: InProcessServer, team: JsonObject, spec: JsonObject
) -> None:
    assert (await server.status("PUT", f"{TEAM}/finalize", {**team, "spec": spec}))["code"] == 422


async def test_a_namespace_can_be_put_without_a_version(
    server: InProcessServer, team: JsonObject
) -> None:
    sent = namespace("team", labels={"a": "b"})
    updated = await server.json("PUT", TEAM, sent)
    assert updated["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "team"}
    assert updated["metadata"]["uid"] == team["metadata"]["uid"]
    assert updated["status"] == {"phase": "Active"}


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "milo-system"])
async def test_required_namespaces_cannot_be_deleted(server: InProcessServer, name: str) -> None:
    status = await server.status("DELETE", f"{NAMESPACES}/{name}")
    assert (status["code"], status["reason"]) == (403, "Forbidden")


ACCOUNTS = f"{NAMESPACES}/team/serviceaccounts"
ACCOUNT: JsonObject = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default"},
}


async def test_finalize_removes_the_objects_that_the_server_creates(
    server: InProcessServer, team: JsonObject
) -> None:
    await server.json("POST", ACCOUNTS, ACCOUNT)
    authority = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}
    await server.json("POST", f"{TEAM}/configmaps", authority)
    watch = await server.watch(ACCOUNTS)
    deleted = await server.json("DELETE", TEAM)
    await server.json("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert [kind for kind, _ in await watch.take(2)] == ["ADDED", "DELETED"]
    await server.json("POST", NAMESPACES, namespace("team"))
    assert (await server.json("GET", ACCOUNTS))["items"] == []
    assert (await server.json("GET", f"{TEAM}/configmaps"))["items"] == []


async def test_finalize_keeps_an_object_of_the_server_that_has_finalizers(
    server: InProcessServer, team: JsonObject
) -> None:
    held = {**ACCOUNT, "metadata": {"name": "default", "finalizers": ["example.com/hold"]}}
    await server.json("POST", ACCOUNTS, held)
    deleted = await server.json("DELETE", TEAM)
    status = await server.status("PUT", f"{TEAM}/finalize", without_spec_finalizers(deleted))
    assert "serviceaccounts/default" in status["message"]
