"""DELETE with finalizers, preconditions and policies, and of collections."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.verbs import delete
from testkit.api_server.running_server import (
    WORKLOADS,
    InProcessServer,
    causes,
    namespace,
    workload,
)

WEB = f"{WORKLOADS}/web"
HELD = ["example.com/hold"]


async def test_an_object_without_finalizers_is_deleted_at_once(server: InProcessServer) -> None:
    created = await server.json("POST", WORKLOADS, workload())
    status = await server.json("DELETE", WEB)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"] == {
        "name": "web",
        "group": "compute.datumapis.com",
        "kind": "workloads",
        "uid": created["metadata"]["uid"],
    }
    assert (await server.status("DELETE", WEB))["reason"] == "NotFound"


async def test_an_object_with_finalizers_becomes_terminating(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload(finalizers=HELD))
    marked = await server.json("DELETE", WEB)
    assert marked["kind"] == "Workload"
    metadata = marked["metadata"]
    assert metadata["deletionTimestamp"] == "2023-11-14T22:13:20Z"
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (0, 2)
    server.clock.now_s += 60
    assert await server.json("DELETE", WEB) == marked


async def test_removing_the_last_finalizer_deletes_the_object(
    server: InProcessServer,
) -> None:
    created = await server.json("POST", WORKLOADS, workload(finalizers=[*HELD, "example.com/b"]))
    watch = await server.watch(WORKLOADS, resourceVersion=created["metadata"]["resourceVersion"])
    await server.json("DELETE", WEB)
    await server.merge(WEB, {"metadata": {"finalizers": HELD}})
    last = await server.merge(WEB, {"metadata": {"finalizers": []}})
    assert "finalizers" not in last["metadata"]
    assert (await server.ask("GET", WEB)).status == 404
    events = await watch.take(3)
    assert [kind for kind, _ in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert events[-1][1] == last
    assert int(last["metadata"]["resourceVersion"]) == server.store.version("platform")


async def test_a_terminating_object_accepts_no_new_finalizers(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload(finalizers=HELD))
    marked = await server.json("DELETE", WEB)
    status = await server.patch_refused(WEB, {"metadata": {"finalizers": [*HELD, "a.io/new"]}})
    assert causes(status) == {"metadata.finalizers": "FieldValueForbidden"}
    assert "a.io/new" in status["message"]
    assert await server.json("GET", WEB) == marked


async def test_a_terminating_object_can_be_changed_but_not_restored(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload(finalizers=HELD))
    marked = await server.json("DELETE", WEB)
    revived = {**marked, "metadata": {**marked["metadata"], "deletionTimestamp": None}}
    del revived["metadata"]["deletionGracePeriodSeconds"]
    assert await server.json("PUT", WEB, revived) == marked
    patched = await server.merge(f"{WEB}/status", {"status": {"replicas": 1}})
    assert patched["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_preconditions_that_do_not_hold_are_409(
    server: InProcessServer, precondition: JsonObject
) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status("DELETE", WEB, {"preconditions": precondition})
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert "Precondition failed" in status["message"]
    assert (await server.ask("GET", WEB)).status == 200


async def test_a_delete_succeeds_if_its_preconditions_hold(server: InProcessServer) -> None:
    metadata = (await server.json("POST", WORKLOADS, workload()))["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted}
    assert (await server.ask("DELETE", WEB, options)).status == 200


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({"propagationPolicy": "Sideways"}, {}),
        ({"propagationPolicy": "Background", "orphanDependents": True}, {}),
        ({"propagationPolicy": "Background"}, {"orphanDependents": "false"}),
        (None, {"propagationPolicy": "Sideways"}),
    ],
)
async def test_unknown_policies_are_rejected(
    server: InProcessServer, options: Any, query: dict[str, str]
) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status("DELETE", WEB, options, **query)
    assert status["code"] == 422
    assert "propagationPolicy" in status["message"]
    assert (await server.ask("GET", WEB)).status == 200


@pytest.mark.parametrize(
    ("options", "query", "finalizer"),
    [
        ({"propagationPolicy": "Foreground"}, {}, "foregroundDeletion"),
        ({"propagationPolicy": "Orphan"}, {}, "orphan"),
        ({"orphanDependents": True}, {}, "orphan"),
        (None, {"propagationPolicy": "Foreground"}, "foregroundDeletion"),
        (None, {"orphanDependents": "true"}, "orphan"),
    ],
)
async def test_a_policy_sets_the_finalizer_of_the_garbage_collector(
    server: InProcessServer, options: Any, query: dict[str, str], finalizer: str
) -> None:
    await server.json("POST", WORKLOADS, workload(finalizers=HELD))
    marked = await server.json("DELETE", WEB, options, **query)
    assert marked["metadata"]["finalizers"] == [*HELD, finalizer]
    assert marked["metadata"]["deletionTimestamp"]
    again = await server.json("DELETE", WEB)
    assert again == marked
    back = await server.json("DELETE", WEB, {"propagationPolicy": "Background"})
    assert back["metadata"]["finalizers"] == HELD


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Background"},
        {"orphanDependents": False},
        {"gracePeriodSeconds": 0},
        {"propagationPolicy": None, "preconditions": None, "somethingNew": 1},
    ],
)
async def test_background_sets_no_finalizer(server: InProcessServer, options: Any) -> None:
    await server.json("POST", WORKLOADS, workload())
    assert (await server.ask("DELETE", WEB, options)).status == 200
    assert (await server.ask("GET", WEB)).status == 404


@pytest.mark.parametrize(
    "options",
    [
        {"preconditions": 5},
        {"preconditions": {"uid": 5}},
        {"gracePeriodSeconds": "x"},
        {"kind": "Workload"},
        {"dryRun": "All"},
        [],
        b"{",
    ],
)
async def test_invalid_options_delete_nothing(server: InProcessServer, options: Any) -> None:
    await server.json("POST", WORKLOADS, workload())
    assert (await server.status("DELETE", WEB, options))["code"] == 400
    assert (await server.ask("GET", WEB)).status == 200


@pytest.mark.parametrize(
    ("options", "query"), [({"dryRun": ["All"]}, {}), (None, {"dryRun": "All"})]
)
async def test_a_dry_run_deletes_nothing(
    server: InProcessServer, options: Any, query: dict[str, str]
) -> None:
    await server.json("POST", WORKLOADS, workload())
    await server.json("POST", WORKLOADS, workload("held", finalizers=HELD))
    before = await server.json("GET", WORKLOADS)
    assert (await server.json("DELETE", WEB, options, **query))["status"] == "Success"
    held = await server.json("DELETE", f"{WORKLOADS}/held", options, **query)
    assert "deletionTimestamp" in held["metadata"]
    assert await server.json("GET", WORKLOADS) == before


async def test_a_collection_delete_removes_only_selected_objects(server: InProcessServer) -> None:
    await server.json("POST", "/api/v1/namespaces", namespace("other"))
    elsewhere = WORKLOADS.replace("default", "other")
    await server.json("POST", elsewhere, workload("far", labels={"a": "1"}))
    for number in range(150):
        await server.json("POST", WORKLOADS, workload(f"w{number}", labels={"a": str(number % 2)}))
    await server.json("POST", WORKLOADS, workload("held", labels={"a": "1"}, finalizers=HELD))
    deleted = await server.json("DELETE", WORKLOADS, labelSelector="a=1")
    assert (deleted["kind"], len(deleted["items"])) == ("WorkloadList", 76)
    left = (await server.json("GET", WORKLOADS))["items"]
    assert len(left) == 76
    held = next(item for item in left if item["metadata"]["name"] == "held")
    assert "deletionTimestamp" in held["metadata"]
    assert len((await server.json("GET", elsewhere))["items"]) == 1


async def test_a_large_collection_is_deleted_in_batches_with_a_status_response(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "ENCODED_BYTES_MAX", 1)
    monkeypatch.setattr(delete, "_BATCH_BYTES_MAX", 1)
    for number in range(3):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    answer = await server.json("DELETE", WORKLOADS)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"group": "compute.datumapis.com", "kind": "workloads"}
    assert (await server.json("GET", WORKLOADS))["items"] == []
