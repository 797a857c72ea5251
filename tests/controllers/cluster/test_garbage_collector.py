"""Garbage collection of dependents by propagation policy."""

from __future__ import annotations

import asyncio
import logging

import pytest

from datum_compute.api.http import Request, Response
from tests.controllers.cluster_fixture import CORE, ClusterFixture, owner, with_cluster_controllers

FOREGROUND = {"propagationPolicy": "Foreground"}
ORPHAN = {"propagationPolicy": "Orphan"}
HELD = ["example.com/hold"]


def test_dependents_are_deleted_recursively() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        second = await here.config_map("second", owner(first))
        await here.config_map("third", owner(second))
        await here.config_map("other")
        await here.settle()
        assert len(await here.existing_config_maps("first", "second", "third", "other")) == 4
        await here.request("DELETE", f"{CORE}/configmaps/first")
        await here.settle()
        assert await here.existing_config_maps("first", "second", "third", "other") == ["other"]

    with_cluster_controllers(story)


def test_a_dependent_of_an_owner_that_never_existed_is_deleted() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        await here.config_map("lost", owner(first, uid="unknown"))
        await here.config_map("foreign", {**owner(first), "kind": "Unserved", "uid": "x"})
        await here.settle()
        assert await here.existing_config_maps("first", "lost", "foreign") == ["first", "foreign"]

    with_cluster_controllers(story)


def test_an_owner_in_another_namespace_does_not_count() -> None:
    async def story(here: ClusterFixture) -> None:
        for name in ("one", "two"):
            meta = {"metadata": {"name": name}}
            await here.create(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **meta}
            )
        _, namespace = await here.request("GET", "/api/v1/namespaces/one")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        robot = await here.create("/api/v1/namespaces/one/serviceaccounts", account)
        await here.config_map("of-robot", owner(robot))
        await here.config_map("of-namespace", owner(namespace))
        await here.settle()
        assert await here.existing_config_maps("of-robot", "of-namespace") == ["of-namespace"]

    with_cluster_controllers(story)


def test_a_dependent_stays_while_one_owner_exists_and_loses_the_other_references() -> None:
    async def story(here: ClusterFixture) -> None:
        first, second = await here.config_map("first"), await here.config_map("second")
        await here.config_map("child", owner(first), owner(second))
        await here.request("DELETE", f"{CORE}/configmaps/first")
        await here.settle()
        _, child = await here.request("GET", f"{CORE}/configmaps/child")
        assert [o["name"] for o in child["metadata"]["ownerReferences"]] == ["second"]
        await here.request("DELETE", f"{CORE}/configmaps/second")
        await here.settle()
        assert await here.existing_config_maps("child") == []

    with_cluster_controllers(story)


def test_a_foreground_deletion_waits_for_blocking_dependents() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        blocking = owner(first, blockOwnerDeletion=True)
        await here.config_map("blocks", blocking, finalizers=HELD)
        await here.config_map("loose", owner(first), finalizers=HELD)
        status, marked = await here.request("DELETE", f"{CORE}/configmaps/first", FOREGROUND)
        assert (status, marked["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        await here.settle()
        assert len(await here.existing_config_maps("first", "blocks", "loose")) == 3
        for name in ("blocks", "loose"):
            _, child = await here.request("GET", f"{CORE}/configmaps/{name}")
            assert child["metadata"]["deletionTimestamp"]
        await here.request("PATCH", f"{CORE}/configmaps/blocks", {"metadata": {"finalizers": None}})
        await here.settle()
        assert await here.existing_config_maps("first", "blocks", "loose") == ["loose"]

    with_cluster_controllers(story)


def test_a_foreground_deletion_deletes_a_tree_from_its_leaves() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        second = await here.config_map("second", owner(first, blockOwnerDeletion=True))
        leaf = owner(second, blockOwnerDeletion=True)
        await here.config_map("third", leaf, finalizers=HELD)
        await here.request("DELETE", f"{CORE}/configmaps/first", FOREGROUND)
        await here.settle()
        assert len(await here.existing_config_maps("first", "second", "third")) == 3
        await here.request("PATCH", f"{CORE}/configmaps/third", {"metadata": {"finalizers": None}})
        await here.settle()
        assert await here.existing_config_maps("first", "second", "third") == []

    with_cluster_controllers(story)


def test_orphans_lose_their_owner_and_stay() -> None:
    async def story(here: ClusterFixture) -> None:
        first, second = await here.config_map("first"), await here.config_map("second")
        await here.config_map("child", owner(first))
        await here.config_map("shared", owner(first), owner(second))
        await here.request("DELETE", f"{CORE}/configmaps/first", ORPHAN)
        await here.settle()
        assert await here.existing_config_maps("first", "child", "shared") == ["child", "shared"]
        _, child = await here.request("GET", f"{CORE}/configmaps/child")
        assert "ownerReferences" not in child["metadata"]
        _, shared = await here.request("GET", f"{CORE}/configmaps/shared")
        assert [o["name"] for o in shared["metadata"]["ownerReferences"]] == ["second"]

    with_cluster_controllers(story)


@pytest.mark.parametrize("policy", [ORPHAN, FOREGROUND])
def test_a_repeated_delete_of_a_terminating_object_leaves_no_finalizer(
    policy: dict[str, str],
) -> None:
    """A client repeats its delete after it lost the response."""

    async def story(here: ClusterFixture) -> None:
        await here.config_map("first", finalizers=HELD)
        for _ in range(2):
            await here.request("DELETE", f"{CORE}/configmaps/first", policy)
            await here.settle()
            _, left = await here.request("GET", f"{CORE}/configmaps/first")
            assert left["metadata"]["finalizers"] == HELD

    with_cluster_controllers(story)


def test_an_owner_that_is_recreated_is_another_owner() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        await here.config_map("child", owner(first), finalizers=HELD)
        await here.request("DELETE", f"{CORE}/configmaps/first")
        await here.config_map("first")
        await here.settle()
        _, child = await here.request("GET", f"{CORE}/configmaps/child")
        assert child["metadata"]["deletionTimestamp"]

    with_cluster_controllers(story)


def test_a_settled_plane_causes_no_requests() -> None:
    async def story(here: ClusterFixture) -> None:
        first = await here.config_map("first")
        await here.config_map("child", owner(first))
        await here.settle()
        seen: list[Request] = []

        async def note(request: Request) -> Response | None:
            seen.append(request)
            return None

        here.planes.intercept = note
        version = here.planes.store.version("hub")
        for _ in range(10):
            await here.settle()
        assert here.planes.store.version("hub") == version
        assert [r.path for r in seen if "watch" not in r.query] == []

    with_cluster_controllers(story)


ODD_OWNERS = [
    {"apiVersion": "v1", "kind": "Namespace", "name": "never-was", "uid": "u"},
    {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "another"},
    {"apiVersion": "v1", "kind": "ConfigMap", "name": "inside", "uid": "u"},
    {"apiVersion": "v2", "kind": "Namespace", "name": "never-was", "uid": "u"},
    {"apiVersion": "a/b/c", "kind": "Unserved", "name": "x", "uid": "u"},
]


@pytest.mark.parametrize("odd", ODD_OWNERS, ids=lambda odd: f"{odd['apiVersion']}-{odd['kind']}")
def test_an_object_that_may_not_be_deleted_stays_without_events(
    odd: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def story(here: ClusterFixture) -> None:
        owned = {"metadata": {"ownerReferences": [odd]}}
        status, _ = await here.request("PATCH", CORE, owned)
        assert status == 200
        await asyncio.sleep(3600)
        status, kept = await here.request("GET", CORE)
        assert (status, kept["status"]["phase"]) == (200, "Active")

    with_cluster_controllers(story)
    loud = [r for r in caplog.records if r.exc_info or r.levelno > logging.WARNING]
    assert [record.getMessage() for record in loud] == []
    assert len(caplog.records) <= 6, "a line every ten minutes is enough"


def test_an_unresolvable_owner_is_reported_as_an_event() -> None:
    async def story(here: ClusterFixture) -> None:
        inside = await here.config_map("inside")
        meta = {"name": "outside", "ownerReferences": [owner(inside)]}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        await here.create(path, {**role, "metadata": meta})
        await here.settle()
        await here.request("DELETE", f"{CORE}/configmaps/inside")
        await here.settle()
        assert (await here.request("GET", f"{path}/outside"))[0] == 200
        (events,) = set(here.events)  # equal messages are one Event
        assert (events.reason, events.object.name) == ("OwnerRefInvalidNamespace", "outside")
        assert "metadata.ownerReferences" in events.message

    with_cluster_controllers(story)
