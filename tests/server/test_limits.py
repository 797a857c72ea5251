"""Limits of requests, objects and users (attack pattern A5)."""

from __future__ import annotations

import gc

import pytest

from datum_compute.admission.rules.workload import TEMPLATE_BYTES_MAX
from datum_compute.api.errors import RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.access.watch_limits import RETRY_AFTER_S
from datum_compute.server.encoding import body as document
from datum_compute.server.encoding.body import decode_json
from datum_compute.server.verbs.commit import (
    CONTENT_BYTES_MAX,
    METADATA_BYTES_MAX,
    OBJECT_BYTES_MAX,
)
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import COMPUTE, PROJECT, WORKLOADS, InProcessServer, workload

DEPLOYMENTS = f"{COMPUTE}/namespaces/default/workloaddeployments"
EVENTS = "/api/v1/namespaces/default/events"
CONDITION = {"type": "Available", "status": "True", "reason": "Fine"}


def with_arguments(obj: JsonObject, size_bytes: int) -> JsonObject:
    container = obj["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    container["args"] = ["x" * size_bytes]
    return obj


def large(name: str, size_bytes: int) -> JsonObject:
    """A deployment whose container has arguments of about this size."""
    spec = workload(name)["spec"]
    placement = spec["placements"][0]
    obj = {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "WorkloadDeployment",
        "metadata": {"name": name},
        "spec": {
            "workloadRef": {"name": "web", "uid": "u"},
            "placementName": placement["name"],
            "cityCode": "DFW",
            "template": spec["template"],
            "scaleSettings": placement["scaleSettings"],
        },
    }
    return with_arguments(obj, size_bytes)


def event(size_bytes: int) -> JsonObject:
    """Return an object of a kind without a status."""
    about = {"kind": "Namespace", "name": "default", "namespace": "default"}
    metadata = {"name": "a", "finalizers": ["example.com/hold"]}
    obj = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}
    return {**obj, "message": "x" * size_bytes}


async def test_an_object_over_the_size_limit_is_rejected(
    server: InProcessServer,
) -> None:
    for query in ({}, {"dryRun": "All"}):
        status = await server.status("POST", DEPLOYMENTS, large("a", OBJECT_BYTES_MAX), **query)
        assert (status["code"], status["reason"]) == (413, "RequestEntityTooLarge")
        assert f"may have {OBJECT_BYTES_MAX}" in status["message"]
    assert (await server.ask("GET", f"{DEPLOYMENTS}/a")).status == 404
    assert (await server.ask("POST", DEPLOYMENTS, large("a", 1_000_000))).status == 201


async def test_patches_cannot_grow_an_object_over_the_limit(server: InProcessServer) -> None:
    await server.json("POST", DEPLOYMENTS, large("a", 1_000_000))
    before = await server.json("GET", f"{DEPLOYMENTS}/a")
    arguments = ["x" * 1_000_000]
    containers = [{"name": "app", "image": "web:1", "args": arguments * 2}]
    runtime = {"sandbox": {"containers": containers}}
    status = await server.patch_refused(
        f"{DEPLOYMENTS}/a", {"spec": {"template": {"spec": {"runtime": runtime}}}}
    )
    assert status["code"] == 413
    assert await server.json("GET", f"{DEPLOYMENTS}/a") == before


async def test_an_object_of_the_largest_size_can_still_be_deleted(server: InProcessServer) -> None:
    base = len((await server.ask("POST", EVENTS, event(0), dryRun="All")).body)
    stored = await server.ask("POST", EVENTS, event(OBJECT_BYTES_MAX - base - 40))
    assert stored.status == 201
    assert OBJECT_BYTES_MAX - 60 < len(stored.body) <= OBJECT_BYTES_MAX
    await server.json("DELETE", f"{EVENTS}/a")
    await server.merge(f"{EVENTS}/a", {"metadata": {"finalizers": None}})
    assert (await server.ask("GET", f"{EVENTS}/a")).status == 404


async def test_the_spec_leaves_room_for_metadata_and_status(
    server: InProcessServer,
) -> None:
    base = len((await server.ask("POST", DEPLOYMENTS, large("a", 0), dryRun="All")).body)
    over = large("a", CONTENT_BYTES_MAX - base + 40)
    status = await server.status("POST", DEPLOYMENTS, over)
    assert status["code"] == 413
    assert (
        f"without its status, which needs room too; it may have {CONTENT_BYTES_MAX}"
        in (status["message"])
    )
    await server.json("POST", DEPLOYMENTS, large("a", CONTENT_BYTES_MAX - base - 40))
    path = f"{DEPLOYMENTS}/a"
    mark = {"finalizers": ["compute.datumapis.com/federator"], "labels": {"a": "b"}}
    await server.merge(path, {"metadata": mark})
    conditions = [{**CONDITION, "message": "x" * (OBJECT_BYTES_MAX - METADATA_BYTES_MAX)}]
    await server.merge(f"{path}/status", {"status": {"conditions": conditions}})
    await server.merge(path, {"metadata": {"annotations": {"note": "later"}}})
    smaller = with_arguments(await server.json("GET", path), 10)
    await server.json("PUT", path, smaller)


async def test_the_metadata_leaves_room_for_the_status(server: InProcessServer) -> None:
    await server.json("POST", DEPLOYMENTS, large("a", 1_000_000))
    note = {"metadata": {"annotations": {"note": "x" * 200_000}}}
    status = await server.patch_refused(f"{DEPLOYMENTS}/a", note)
    assert (status["code"], f"may have {METADATA_BYTES_MAX}" in status["message"]) == (413, True)


async def test_the_error_of_a_large_template_contains_the_next_action(
    server: InProcessServer,
) -> None:
    empty = await server.json("POST", WORKLOADS, with_arguments(workload("a"), 0), dryRun="All")
    base = len(encode(empty["spec"]["template"]))  # including its defaults
    fits = with_arguments(workload("a"), TEMPLATE_BYTES_MAX - base)
    await server.json("POST", WORKLOADS, fits)
    for method, path in (("POST", WORKLOADS), ("PUT", f"{WORKLOADS}/a")):
        body = with_arguments(workload("b" if method == "POST" else "a"), TEMPLATE_BYTES_MAX)
        if method == "PUT":
            body["metadata"] = (await server.json("GET", path))["metadata"]
        status = await server.status(method, path, body)
        (cause,) = status["details"]["causes"]
        assert (status["code"], cause["field"]) == (422, "spec.template")
        assert "Put large data into the image" in cause["message"]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
async def test_deeply_nested_documents_are_rejected(
    server: InProcessServer, opening: bytes
) -> None:
    closing = b"]" if opening == b"[" else b"}"
    for depth in (100, 50_000):
        body = b'{"spec":' + opening * depth + b"1" + closing * depth + b"}"
        assert (await server.ask("POST", WORKLOADS, body)).status == 400


async def test_the_open_watches_of_a_user_on_a_plane_are_limited() -> None:
    async with server_with_ann(watches_per_user_max=3) as server:
        await grant(server, rule("list watch", "workloads"))
        await grant(server, rule("list watch", "workloads"), prefix=PROJECT)
        watches = [await server.watch(WORKLOADS, token=ANN) for _ in range(3)]
        response = await server.ask("GET", WORKLOADS, token=ANN, watch="1")
        assert response.status == 429
        assert response.headers["retry-after"] == str(RETRY_AFTER_S)
        assert decode(response.body)["reason"] == "TooManyRequests"
        assert (await server.ask("GET", WORKLOADS, token=ANN)).status == 200
        await server.watch(WORKLOADS)  # of another user
        await server.watch(PROJECT + WORKLOADS, token=ANN)  # on another plane
        await watches.pop().stream.aclose()
        gc.collect()
        await server.watch(WORKLOADS, token=ANN)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 60_000 + b"0]",
        b"[" + b"1," * 200_000 + b"0]",
        b'{"a":"\\"' + b'","b":"' * 150_000 + b'"}',
        b"[" + b'"\\\\",' * 150_000 + b"0]",
    ],
    ids=["containers", "numbers", "fields", "strings"],
)
def test_too_many_values_are_rejected_before_decoding(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "decode", lambda body: pytest.fail("it was decoded"))
    with pytest.raises(RequestEntityTooLarge, match="values and containers, it may have 60000"):
        decode_json(body)


@pytest.mark.parametrize(
    "text", [",[{" * 200_000, '",[{' * 100_000, "\\" * 300_001 + '",' * 99_999]
)
def test_separators_inside_of_a_text_do_not_count_as_values(text: str) -> None:
    assert decode_json(encode({"data": {"a": text}})) == {"data": {"a": text}}
