"""What one request, one object and one user may take (attack pattern A5)."""

from __future__ import annotations

import gc

import pytest

from datum_compute.api.codec import JsonObject, decode
from datum_compute.server.access.watches import RETRY_AFTER_S
from datum_compute.server.commit import OBJECT_BYTES_MAX
from tests.server.granting import ANN, grant, rule, server_with_ann
from tests.server.running_server import PROJECT, WORKLOADS, Server, workload


def large(name: str, size_bytes: int) -> JsonObject:
    """A workload whose container has arguments of about this size."""
    obj = workload(name)
    container = obj["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    container["args"] = ["x" * size_bytes]
    return obj


async def test_an_object_over_the_limit_is_refused_and_changes_nothing(server: Server) -> None:
    for query in ({}, {"dryRun": "All"}):
        status = await server.status("POST", WORKLOADS, large("a", OBJECT_BYTES_MAX), **query)
        assert (status["code"], status["reason"]) == (413, "RequestEntityTooLarge")
        assert f"may have {OBJECT_BYTES_MAX}" in status["message"]
    assert (await server.ask("GET", f"{WORKLOADS}/a")).status == 404
    assert (await server.ask("POST", WORKLOADS, large("a", 1_000_000))).status == 201


async def test_an_object_does_not_grow_over_the_limit_by_patches(server: Server) -> None:
    await server.json("POST", WORKLOADS, large("a", 1_000_000))
    before = await server.json("GET", f"{WORKLOADS}/a")
    arguments = ["x" * 1_000_000]
    containers = [{"name": "app", "image": "web:1", "args": arguments * 2}]
    runtime = {"sandbox": {"containers": containers}}
    status = await server.patch_refused(
        f"{WORKLOADS}/a", {"spec": {"template": {"spec": {"runtime": runtime}}}}
    )
    assert status["code"] == 413
    assert await server.json("GET", f"{WORKLOADS}/a") == before


async def test_an_object_of_the_largest_size_can_still_be_deleted(server: Server) -> None:
    obj = large("a", 0)
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    base = len((await server.ask("POST", WORKLOADS, obj, dryRun="All")).body)
    obj = large("a", OBJECT_BYTES_MAX - base - 40)
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    stored = await server.ask("POST", WORKLOADS, obj)
    assert stored.status == 201
    assert OBJECT_BYTES_MAX - 60 < len(stored.body) <= OBJECT_BYTES_MAX
    await server.json("DELETE", f"{WORKLOADS}/a")
    await server.merge(f"{WORKLOADS}/a", {"metadata": {"finalizers": None}})
    assert (await server.ask("GET", f"{WORKLOADS}/a")).status == 404


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
async def test_deep_documents_are_refused(server: Server, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    for depth in (100, 100_000):
        body = b'{"spec":' + opening * depth + b"1" + closing * depth + b"}"
        assert (await server.ask("POST", WORKLOADS, body)).status == 400


async def test_a_user_has_only_so_many_watches_open_on_a_plane() -> None:
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
