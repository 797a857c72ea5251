"""The scale subresource reads and writes the replicas of an object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from datum_compute.api.http import APPLY_PATCH, MERGE_PATCH
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import WIDGETS, define, definition, objects, version, widget
from testkit.api_server.running_server import InProcessServer, causes, running_server

SCALE = f"{WIDGETS}/w/scale"
NUMBER = {"type": "integer", "minimum": 0, "maximum": 50}


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    spec = objects(pool=objects(replicas=NUMBER), note={"type": "string"})
    status = objects(replicas=NUMBER, selector={"type": "string"})
    paths = {
        "specReplicasPath": ".spec.pool.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    scaled = version(
        schema=objects(spec=spec, status=status), subresources={"status": {}, "scale": paths}
    )
    async with running_server() as running:
        await define(running, definition(scaled))
        await running.json("POST", WIDGETS, widget(spec={"pool": {"replicas": 2}, "note": "n"}))
        reached = {"status": {"replicas": 1, "selector": "app=w"}}
        await running.merge(f"{WIDGETS}/w/status", reached)
        yield running


async def test_a_scale_shows_replicas_and_selector(server: InProcessServer) -> None:
    scale = await server.json("GET", SCALE)
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=w"}
    assert scale["metadata"]["name"] == "w"


async def test_a_scale_is_put_and_patched_and_changes_nothing_else(server: InProcessServer) -> None:
    scale = await server.json("GET", SCALE)
    scale["spec"]["replicas"] = 5
    scale["status"]["replicas"] = 9
    put = await server.json("PUT", SCALE, scale)
    assert (put["spec"], put["status"]["replicas"]) == ({"replicas": 5}, 1)
    stored = await server.json("GET", f"{WIDGETS}/w")
    assert stored["spec"] == {"pool": {"replicas": 5}, "note": "n"}
    assert stored["metadata"]["generation"] == 2
    patched = await server.merge(SCALE, {"spec": {"replicas": 0}})
    assert patched["spec"] == {"replicas": 0}
    unchanged = await server.merge(SCALE, {"spec": {"replicas": 0}})
    assert unchanged["metadata"] == patched["metadata"]


async def test_a_stale_scale_conflicts(server: InProcessServer) -> None:
    scale = await server.json("GET", SCALE)
    await server.merge(SCALE, {"spec": {"replicas": 3}})
    assert (await server.status("PUT", SCALE, scale))["code"] == 409
    del scale["metadata"]["resourceVersion"]
    assert (await server.json("PUT", SCALE, scale))["spec"] == {"replicas": 2}


@pytest.mark.parametrize("replicas", [-1, "3", 1.5, True, 2**31])
async def test_invalid_replicas_are_rejected(server: InProcessServer, replicas: Any) -> None:
    status = await server.patch_refused(SCALE, {"spec": {"replicas": replicas}})
    assert (status["code"], status["details"]["kind"]) == (422, "Scale")
    assert causes(status) == {"spec.replicas": "FieldValueInvalid"}


async def test_the_schema_of_the_object_is_checked_for_its_scale(server: InProcessServer) -> None:
    status = await server.patch_refused(SCALE, {"spec": {"replicas": 51}})
    assert causes(status) == {"spec.pool.replicas": "FieldValueInvalid"}


@pytest.mark.parametrize(
    "body",
    [
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}},
        {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": 1},
    ],
)
async def test_a_body_that_is_not_a_scale_of_this_object_is_400(
    server: InProcessServer, body: JsonObject
) -> None:
    assert (await server.status("PUT", SCALE, body))["code"] == 400


async def test_a_scale_without_replicas_in_the_object_has_zero_replicas(
    server: InProcessServer,
) -> None:
    await server.json("POST", WIDGETS, widget("bare"))
    scale = await server.json("GET", f"{WIDGETS}/bare/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 0}, {"replicas": 0})
    patched = await server.merge(f"{WIDGETS}/bare/scale", {"spec": {"replicas": 3}})
    assert patched["spec"] == {"replicas": 3}
    assert (await server.json("GET", f"{WIDGETS}/bare"))["spec"] == {"pool": {"replicas": 3}}


async def test_the_default_of_the_schema_is_used_for_missing_replicas() -> None:
    counted = objects(pool=objects(replicas={"type": "integer", "default": 3}))
    paths = {"specReplicasPath": ".spec.pool.replicas", "statusReplicasPath": ".status.replicas"}
    schema = objects(spec=counted, status=objects(replicas=NUMBER))
    scaled = version(schema=schema, subresources={"status": {}, "scale": paths})
    async with running_server() as server:
        await define(server, definition(scaled))
        await server.json("POST", WIDGETS, widget())
        assert (await server.json("GET", SCALE))["spec"] == {"replicas": 3}


async def test_a_scale_cannot_be_deleted(server: InProcessServer) -> None:
    assert (await server.ask("DELETE", SCALE)).status == 405


async def apply(
    server: InProcessServer, config: JsonObject, manager: str, **query: str
) -> JsonObject:
    headers = {"content-type": APPLY_PATCH}
    return await server.json("PATCH", SCALE, config, headers=headers, fieldManager=manager, **query)


def scale_config(replicas: int, **metadata: str) -> JsonObject:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "w", **metadata},
        "spec": {"replicas": replicas},
    }


def owner_of(obj: JsonObject, manager: str) -> JsonObject:
    entries = obj["metadata"]["managedFields"]
    (entry,) = [entry for entry in entries if entry["manager"] == manager]
    return dict(entry)


async def test_a_scale_is_applied_and_its_manager_owns_the_replicas(
    server: InProcessServer,
) -> None:
    labelled = {"metadata": {"labels": {"a": "1"}}}
    await server.merge(f"{WIDGETS}/w", labelled)
    conflict = await server.status(
        "PATCH",
        SCALE,
        scale_config(5),
        headers={"content-type": APPLY_PATCH},
        fieldManager="scaler",
    )
    assert causes(conflict) == {".spec.pool.replicas": "FieldManagerConflict"}
    applied = await apply(server, scale_config(5), "scaler", force="true")
    assert (applied["kind"], applied["spec"]) == ("Scale", {"replicas": 5})
    stored = await server.json("GET", f"{WIDGETS}/w")
    assert (stored["spec"], stored["metadata"]["labels"]) == (
        {"pool": {"replicas": 5}, "note": "n"},
        {"a": "1"},
    )
    entry = owner_of(stored, "scaler")
    assert (entry["operation"], entry["subresource"]) == ("Apply", "scale")
    assert entry["apiVersion"] == "example.com/v1"
    assert entry["fieldsV1"] == {"f:spec": {"f:pool": {"f:replicas": {}}}}
    again = await apply(server, scale_config(5), "scaler")
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


async def test_an_applied_scale_can_have_preconditions(server: InProcessServer) -> None:
    stale = scale_config(5, resourceVersion="1")
    headers = {"content-type": APPLY_PATCH}
    refused = await server.status("PATCH", SCALE, stale, headers=headers, fieldManager="x")
    assert refused["code"] == 409


async def test_the_kind_of_an_applied_scale_is_scale(server: InProcessServer) -> None:
    headers = {"content-type": APPLY_PATCH}
    config = widget(spec={"pool": {"replicas": 5}})
    refused = await server.status("PATCH", SCALE, config, headers=headers, fieldManager="x")
    assert (refused["code"], "Scale" in refused["message"]) == (400, True)


async def test_a_patched_scale_owns_the_replicas(server: InProcessServer) -> None:
    headers = {"content-type": MERGE_PATCH, "user-agent": "scaler/1"}
    await server.json("PATCH", SCALE, {"spec": {"replicas": 7}}, headers=headers)
    entry = owner_of(await server.json("GET", f"{WIDGETS}/w"), "scaler")
    assert entry["subresource"] == "scale"
    assert entry["fieldsV1"] == {"f:spec": {"f:pool": {"f:replicas": {}}}}
