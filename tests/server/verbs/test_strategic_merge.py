"""Strategic merge patch: lists of built-in kinds and directives."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.errors import BadRequest
from datum_compute.api.http import STRATEGIC_PATCH
from datum_compute.api.kinds import DEFINITION, NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.verbs.strategic_merge import apply_strategic_merge
from testkit.api_server.running_server import WORKLOADS, InProcessServer, namespace, workload

TEAM = "/api/v1/namespaces/team"
HEADERS = {"content-type": STRATEGIC_PATCH}


def owner(uid: str, **more: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": uid, **more}


def owners(*owned: JsonObject) -> JsonObject:
    return {"metadata": {"ownerReferences": list(owned)}}


def apply_patch(old: JsonObject, patch: Any) -> JsonObject:
    return apply_strategic_merge(SERVICE_ACCOUNT, old, patch)


def test_objects_merge_and_null_removes() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "1"}}, "data": {"x": "1"}}
    patch = {"metadata": {"labels": {"a": None, "c": "1"}}, "data": None}
    assert apply_patch(old, patch) == {"metadata": {"labels": {"b": "1", "c": "1"}}}


def test_items_are_merged_by_their_key() -> None:
    old = owners(owner("1"), owner("2"))
    found = apply_patch(old, owners({"uid": "2", "controller": True}, owner("3")))
    assert found == owners(owner("1"), owner("2", controller=True), owner("3"))
    secrets = apply_patch({"secrets": [{"name": "a"}]}, {"secrets": [{"name": "b"}]})
    assert secrets == {"secrets": [{"name": "a"}, {"name": "b"}]}


def test_lists_of_values_are_merged() -> None:
    old = {"metadata": {"finalizers": ["a", "b"]}}
    found = apply_patch(old, {"metadata": {"finalizers": ["b", "c"]}})
    assert found["metadata"]["finalizers"] == ["a", "b", "c"]


def test_all_other_lists_are_replaced() -> None:
    found = apply_patch({"rules": [1, 2]}, {"rules": [3]})
    assert found == {"rules": [3]}
    pulled = apply_patch(
        {"imagePullSecrets": [{"name": "a"}]}, {"imagePullSecrets": [{"name": "b"}]}
    )
    assert pulled == {"imagePullSecrets": [{"name": "b"}]}


def test_conditions_of_a_definition_are_replaced() -> None:
    """They are merged by type in an apply, but Kubernetes marks no merge key for patches."""
    old = {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}}
    patch = {"status": {"conditions": [{"type": "C"}]}}
    assert apply_strategic_merge(DEFINITION, old, patch) == patch


def test_an_item_can_be_deleted_and_a_list_replaced() -> None:
    old = owners(owner("1"), owner("2"))
    assert apply_patch(old, owners({"$patch": "delete", "uid": "1"})) == owners(owner("2"))
    assert apply_patch(old, owners({"$patch": "delete", "uid": "9"})) == old
    assert apply_patch(old, owners({"$patch": "replace"}, owner("3"))) == owners(owner("3"))


def test_an_object_can_be_replaced_emptied_or_kept_in_part() -> None:
    old = {"data": {"a": "1", "b": "2"}}
    assert apply_patch(old, {"data": {"$patch": "replace", "c": "3"}}) == {"data": {"c": "3"}}
    assert apply_patch(old, {"data": {"$patch": "delete"}}) == {"data": {}}
    assert apply_patch(old, {"data": {"$patch": "merge", "c": "3"}})["data"].keys() == set("abc")
    kept = apply_patch(old, {"data": {"$retainKeys": ["b", "c"], "c": "3"}})
    assert kept == {"data": {"b": "2", "c": "3"}}


def test_values_can_be_deleted_from_a_list() -> None:
    old = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"], "finalizers": ["d"]}}
    assert apply_patch(old, patch)["metadata"]["finalizers"] == ["b", "c", "d"]


def test_the_order_of_a_list_can_be_set() -> None:
    old = {"metadata": {"finalizers": ["a", "mine", "b"]}}
    patch = {"metadata": {"$setElementOrder/finalizers": ["b", "a", "gone"]}}
    assert apply_patch(old, patch)["metadata"]["finalizers"] == ["mine", "b", "a"]
    order = [{"uid": "2"}, {"uid": "1"}]
    found = apply_patch(
        owners(owner("1"), owner("2")), {"metadata": {"$setElementOrder/ownerReferences": order}}
    )
    assert found == owners(owner("2"), owner("1"))


@pytest.mark.parametrize(
    "patch",
    [
        [],
        "x",
        None,
        {"$patch": "explode"},
        {"$patch": {}},
        {"$unknown": 1},
        {"metadata": {"$retainKeys": "labels"}},
        {"metadata": {"$retainKeys": [], "labels": {"a": "1"}}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
        {"metadata": {"$setElementOrder/finalizers": {}}},
        {"metadata": {"ownerReferences": [{"name": "without uid"}]}},
        {"metadata": {"ownerReferences": ["text"]}},
        {"rules": [{"$patch": "delete", "name": "x"}]},
    ],
)
def test_an_invalid_patch_is_rejected(patch: Any) -> None:
    with pytest.raises(BadRequest):
        apply_patch({"metadata": {"finalizers": ["a"]}}, patch)


async def test_a_namespace_is_patched(server: InProcessServer) -> None:
    await server.json("POST", "/api/v1/namespaces", namespace("team", finalizers=["example.com/a"]))
    patch = {"metadata": {"finalizers": ["example.com/b"], "labels": {"tier": "gold"}}}
    found = await server.json("PATCH", TEAM, patch, headers=HEADERS)
    assert found["metadata"]["finalizers"] == ["example.com/a", "example.com/b"]
    assert found["metadata"]["labels"]["tier"] == "gold"
    assert await server.json("PATCH", TEAM, patch, headers=HEADERS) == found
    stale = {"metadata": {"resourceVersion": "1"}}
    assert (await server.status("PATCH", TEAM, stale, headers=HEADERS))["code"] == 409


async def test_a_condition_of_a_namespace_is_patched_by_its_type(server: InProcessServer) -> None:
    old = {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}}
    patch = {"status": {"conditions": [{"type": "A", "status": "False"}]}}
    found = apply_strategic_merge(NAMESPACE, old, patch)
    assert found["status"]["conditions"] == [{"type": "A", "status": "False"}, {"type": "B"}]


async def test_our_own_kinds_are_415(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status("PATCH", f"{WORKLOADS}/web", {}, headers=HEADERS)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in status["message"]
