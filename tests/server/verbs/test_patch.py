"""PATCH: merge patch, JSON patch, and rejected media types."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from datum_compute.api.http import MERGE_PATCH
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload

WEB = f"{WORKLOADS}/web"


@pytest.fixture
async def web(server: InProcessServer) -> JsonObject:
    return await server.json("POST", WORKLOADS, workload(labels={"a": "1", "b": "2"}))


async def test_merge_patch_changes_adds_and_removes(
    server: InProcessServer, web: JsonObject
) -> None:
    patched = await server.merge(WEB, {"metadata": {"labels": {"a": None, "b": "3", "c": "4"}}})
    assert patched["metadata"]["labels"] == {"b": "3", "c": "4"}
    assert patched["spec"] == web["spec"]


async def test_merge_patch_of_the_status_endpoint(server: InProcessServer, web: JsonObject) -> None:
    patched = await server.merge(f"{WEB}/status", {"status": {"replicas": 2}, "spec": {}})
    assert patched["status"] == {"replicas": 2}
    patched = await server.merge(f"{WEB}/status", {"status": {"readyReplicas": 1}})
    assert patched["status"] == {"replicas": 2, "readyReplicas": 1}


async def test_a_version_inside_a_merge_patch_is_a_precondition(
    server: InProcessServer, web: JsonObject
) -> None:
    version = web["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"a": "9"}}}
    await server.merge(WEB, patch)
    status = await server.patch_refused(WEB, patch)
    assert (status["code"], status["reason"]) == (409, "Conflict")


async def test_a_patch_without_changes_sends_no_event(
    server: InProcessServer, web: JsonObject
) -> None:
    assert await server.merge(WEB, {"metadata": {"labels": {"a": "1"}}}) == web
    assert await server.merge(WEB, {}) == web
    assert server.store.version("platform") == int(web["metadata"]["resourceVersion"])


async def test_concurrent_patches_all_succeed(server: InProcessServer, web: JsonObject) -> None:
    await asyncio.gather(
        *(server.merge(WEB, {"metadata": {"labels": {f"w{n}": "x"}}}) for n in range(20))
    )
    labels = (await server.json("GET", WEB))["metadata"]["labels"]
    assert {f"w{n}" for n in range(20)} <= set(labels)


async def test_a_retried_json_patch_is_applied_unchanged(
    server: InProcessServer, web: JsonObject
) -> None:
    arguments = "/spec/template/spec/runtime/sandbox/containers/0/args"
    operations = (
        {"op": "add", "path": arguments, "value": []},
        {"op": "add", "path": f"{arguments}/-", "value": "--once"},
    )
    await asyncio.gather(
        server.merge(WEB, {"metadata": {"labels": {"a": "9"}}}),
        server.operations(WEB, *operations),
    )
    current = await server.json("GET", WEB)
    assert current["metadata"]["labels"]["a"] == "9"
    containers = current["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    assert containers[0]["args"] == ["--once"]


async def test_json_patch_with_a_failed_test_is_422(
    server: InProcessServer, web: JsonObject
) -> None:
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/metadata/labels/c", "value": "3"},
    ]
    status = await server.patch_refused(WEB, operations)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    operations[0]["value"] = web["metadata"]["resourceVersion"]
    patched = await server.operations(WEB, *operations)
    assert patched["metadata"]["labels"]["c"] == "3"


@pytest.mark.parametrize("patch", [{"metadata": {"name": "other"}}, {"kind": "Instance"}])
async def test_a_patch_cannot_change_the_identity_of_the_object(
    server: InProcessServer, web: JsonObject, patch: JsonObject
) -> None:
    assert (await server.patch_refused(WEB, patch))["code"] == 400


async def test_the_patched_object_is_validated(server: InProcessServer, web: JsonObject) -> None:
    status = await server.patch_refused(WEB, {"spec": {"placements": []}})
    assert status["code"] == 422


async def test_patch_of_a_missing_object_is_404(server: InProcessServer) -> None:
    assert (await server.patch_refused(WEB, {}))["code"] == 404


@pytest.mark.parametrize(
    "content_type",
    [
        "application/apply-patch+cbor",
        "application/strategic-merge-patch+json",
        "application/json",
        "",
    ],
)
async def test_the_error_of_an_unsupported_patch_type_lists_the_supported_ones(
    server: InProcessServer, web: JsonObject, content_type: str
) -> None:
    headers = {"content-type": content_type}
    status = await server.status("PATCH", WEB, {"metadata": {}}, headers=headers)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json, application/json-patch+json" in status["message"]
    assert await server.json("GET", WEB) == web


@pytest.mark.parametrize("patch", [[], [1], "x", None, 5])
async def test_a_merge_patch_must_be_an_object(
    server: InProcessServer, web: JsonObject, patch: Any
) -> None:
    headers = {"content-type": MERGE_PATCH}
    body = b"null" if patch is None else patch
    assert (await server.status("PATCH", WEB, body, headers=headers))["code"] == 400


async def test_a_json_patch_cannot_replace_the_object_by_another_type(
    server: InProcessServer, web: JsonObject
) -> None:
    status = await server.patch_refused(WEB, [{"op": "replace", "path": "", "value": [1]}])
    assert status["code"] == 400


async def test_a_dry_run_patch_stores_nothing(server: InProcessServer, web: JsonObject) -> None:
    shown = await server.merge(WEB, {"metadata": {"labels": {"a": "9"}}}, dryRun="All")
    assert shown["metadata"]["labels"]["a"] == "9"
    assert await server.json("GET", WEB) == web


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("creationTimestamp", "x"),
        ("creationTimestamp", ""),
        ("creationTimestamp", 5),
        ("deletionTimestamp", "2026-13-01T00:00:00Z"),
        ("deletionGracePeriodSeconds", "soon"),
        ("selfLink", 1),
    ],
)
async def test_invalid_metadata_is_400_with_its_field(
    server: InProcessServer, field: str, value: Any
) -> None:
    made = await server.json("POST", WORKLOADS, workload())
    refused = await server.patch_refused(f"{WORKLOADS}/web", {"metadata": {field: value}})
    assert refused["code"] == 400
    assert f"metadata.{field}" in refused["message"]
    assert await server.json("GET", f"{WORKLOADS}/web") == made


async def test_valid_metadata_fields_of_the_server_are_ignored(
    server: InProcessServer,
) -> None:
    made = await server.json("POST", WORKLOADS, workload())
    sent = {"creationTimestamp": "2001-01-01T00:00:00+01:00", "generation": 7, "selfLink": "/x"}
    patched = await server.merge(f"{WORKLOADS}/web", {"metadata": sent})
    for name in ("creationTimestamp", "generation"):
        assert patched["metadata"][name] == made["metadata"][name]
