"""PUT on objects and their status."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.store.journal import ObjectKey
from testkit.api_server.running_server import WORKLOADS, InProcessServer, causes, workload

WEB = f"{WORKLOADS}/web"


@pytest.fixture
async def web(server: InProcessServer) -> JsonObject:
    return await server.json("POST", WORKLOADS, workload())


def with_image(obj: JsonObject, image: str) -> JsonObject:
    return {**obj, "spec": workload(image=image)["spec"]}


async def test_a_changed_spec_raises_version_and_generation(
    server: InProcessServer, web: JsonObject
) -> None:
    updated = await server.json("PUT", WEB, with_image(web, "web:2"))
    assert updated["metadata"]["generation"] == 2
    assert int(updated["metadata"]["resourceVersion"]) > int(web["metadata"]["resourceVersion"])
    for kept in ("uid", "creationTimestamp", "name", "namespace"):
        assert updated["metadata"][kept] == web["metadata"][kept]


async def test_labels_and_annotations_do_not_raise_the_generation(
    server: InProcessServer, web: JsonObject
) -> None:
    metadata = {**web["metadata"], "labels": {"a": "b"}, "annotations": {"c": "d"}}
    updated = await server.json("PUT", WEB, {**web, "metadata": metadata})
    assert updated["metadata"]["labels"] == {"a": "b"}
    assert updated["metadata"]["generation"] == 1


async def test_a_write_without_changes_keeps_the_version_and_sends_no_event(
    server: InProcessServer, web: JsonObject
) -> None:
    before = server.store.version("platform")
    assert await server.json("PUT", WEB, web) == web
    without_defaults = {**web, "spec": workload()["spec"]}
    assert await server.json("PUT", WEB, without_defaults) == web
    assert server.store.version("platform") == before


async def test_one_and_true_are_different_values(server: InProcessServer) -> None:
    path = "/apis/cluster.karmada.io/v1alpha1/clusters"
    sent: JsonObject = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "dfw"},
        "spec": {"other": 1},
    }
    cluster = await server.json("POST", path, sent)
    for value in (True, 1.0):
        cluster = await server.json("PUT", f"{path}/dfw", {**cluster, "spec": {"other": value}})
        assert cluster["spec"]["other"] is value or cluster["spec"]["other"] == value
        assert type(cluster["spec"]["other"]) is type(value)
    assert cluster["metadata"]["generation"] == 3


async def test_a_put_needs_a_version(server: InProcessServer, web: JsonObject) -> None:
    metadata = {k: v for k, v in web["metadata"].items() if k != "resourceVersion"}
    status = await server.status("PUT", WEB, {**web, "metadata": metadata})
    assert status["code"] == 422
    assert causes(status) == {"metadata.resourceVersion": "FieldValueInvalid"}
    assert "must be specified for an update" in status["message"]


async def test_a_stale_version_is_409_and_changes_nothing(
    server: InProcessServer, web: JsonObject
) -> None:
    await server.json("PUT", WEB, with_image(web, "web:2"))
    status = await server.status("PUT", WEB, with_image(web, "web:3"))
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on workloads.compute.datumapis.com "web": the object has '
        "been modified; please apply your changes to the latest version and try again"
    )
    assert "web:2" in str(await server.json("GET", WEB))


async def test_another_uid_is_409(server: InProcessServer, web: JsonObject) -> None:
    metadata = {**web["metadata"], "uid": "another"}
    status = await server.status("PUT", WEB, {**web, "metadata": metadata})
    assert status["reason"] == "Conflict"
    assert "UID in precondition: another" in status["message"]


@pytest.mark.parametrize("change", [{"name": "other"}, {"name": ""}, {"namespace": "other"}])
async def test_name_and_namespace_must_match_the_path(
    server: InProcessServer, web: JsonObject, change: dict[str, Any]
) -> None:
    metadata = {**web["metadata"], **change}
    assert (await server.status("PUT", WEB, {**web, "metadata": metadata}))["code"] == 400


async def test_put_of_a_missing_object_is_404(server: InProcessServer) -> None:
    status = await server.status("PUT", WEB, workload(resourceVersion="1"))
    assert (status["code"], status["details"]["kind"]) == (404, "workloads")


async def test_the_main_endpoint_ignores_status(server: InProcessServer, web: JsonObject) -> None:
    await server.merge(f"{WEB}/status", {"status": {"replicas": 3}})
    current = await server.json("GET", WEB)
    updated = await server.json("PUT", WEB, {**current, "status": {"replicas": 9}})
    assert updated["status"] == {"replicas": 3}
    assert updated["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]
    without = {k: v for k, v in current.items() if k != "status"}
    assert (await server.json("PUT", WEB, without))["status"] == {"replicas": 3}


async def test_the_status_endpoint_changes_nothing_but_status(
    server: InProcessServer, web: JsonObject
) -> None:
    sent = with_image(web, "web:9")
    sent["metadata"] = {**web["metadata"], "labels": {"a": "b"}, "finalizers": ["x.io/y"]}
    sent["status"] = {"replicas": 4}
    updated = await server.json("PUT", f"{WEB}/status", sent)
    assert updated["status"] == {"replicas": 4}
    assert updated["spec"] == web["spec"]
    assert updated["metadata"]["generation"] == 1
    assert not {"labels", "finalizers"} & set(updated["metadata"])


async def test_status_writes_are_validated(server: InProcessServer, web: JsonObject) -> None:
    stale = {**web, "status": {"replicas": 1}}
    await server.json("PUT", f"{WEB}/status", stale)
    assert (await server.status("PUT", f"{WEB}/status", stale))["reason"] == "Conflict"
    current = await server.json("GET", WEB)
    bad = {**current, "status": {"replicas": "many", "conditions": [{"type": "A"}]}}
    status = await server.status("PUT", f"{WEB}/status", bad)
    assert set(causes(status)) == {
        "status.replicas",
        "status.conditions[0].status",
        "status.conditions[0].reason",
    }
    gone = await server.json("PUT", f"{WEB}/status", {**current, "status": None})
    assert "status" not in gone


async def test_status_can_be_read_at_its_own_path(server: InProcessServer, web: JsonObject) -> None:
    assert await server.json("GET", f"{WEB}/status") == web


async def test_kinds_without_status_have_no_status_endpoint(server: InProcessServer) -> None:
    path = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies/x/status"
    assert (await server.ask("GET", path)).status == 404


async def test_admission_runs_on_update(server: InProcessServer, web: JsonObject) -> None:
    sent = with_image(web, "web:1")
    sent["spec"]["placements"][0]["cityCodes"] = ["ord", "ORD"]
    status = await server.status("PUT", WEB, sent)
    assert causes(status) == {"spec.placements[0].cityCodes[1]": "FieldValueDuplicate"}


async def test_a_city_in_lower_case_is_a_noop(server: InProcessServer, web: JsonObject) -> None:
    sent = with_image(web, "web:1")
    sent["spec"]["placements"][0]["cityCodes"] = ["dfw"]
    assert await server.json("PUT", WEB, sent) == web


async def test_a_dry_run_shows_the_update_and_stores_nothing(
    server: InProcessServer, web: JsonObject
) -> None:
    shown = await server.json("PUT", WEB, with_image(web, "web:2"), dryRun="All")
    assert shown["metadata"]["generation"] == 2
    assert await server.json("GET", WEB) == web


async def test_only_metadata_of_an_object_that_a_newer_rule_rejects_can_change(
    server: InProcessServer,
) -> None:
    old = workload(namespace="default", uid="u", finalizers=["x.io/y"])
    old["spec"]["placements"] = []  # an older release may have stored it
    key = ObjectKey("workloads.compute.datumapis.com", "default", "web")
    await server.store.put("platform", key, 0, lambda version: encode_at_version(old, version))
    released = await server.merge(WEB, {"metadata": {"finalizers": None}})
    assert "finalizers" not in released["metadata"]
    patch = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    assert causes(await server.patch_refused(WEB, patch)) == {
        "spec.placements": "FieldValueInvalid"
    }
