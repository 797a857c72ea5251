"""Watches: their start, their events and their end. Timeouts are tested in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from testkit.api_server.running_server import (
    COMPUTE,
    WORKLOADS,
    InProcessServer,
    namespace,
    running_server,
    workload,
)
from testkit.sim.loop import run_virtual

WEB = f"{WORKLOADS}/web"
EVERYWHERE = f"{COMPUTE}/workloads"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def in_virtual_time(scenario: Callable[[InProcessServer], Coroutine[Any, Any, None]]) -> None:
    async def main(_: object) -> None:
        async with running_server() as server:
            await scenario(server)

    run_virtual(Random(1), main)


async def test_a_watch_without_a_version_starts_with_existing_objects(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload("a"))
    await server.json("POST", WORKLOADS, workload("b"))
    watch = await server.watch(WORKLOADS)
    await server.json("POST", WORKLOADS, workload("c"))
    assert await watch.names(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_with_a_version_sends_only_later_events(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload("a"))
    listed = await server.json("GET", WORKLOADS)
    await server.merge(f"{WORKLOADS}/a", {"metadata": {"labels": {"x": "y"}}})
    watch = await server.watch(WORKLOADS, resourceVersion=listed["metadata"]["resourceVersion"])
    await server.json("DELETE", f"{WORKLOADS}/a")
    assert await watch.names(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_deleted_event_contains_the_last_state_and_a_new_version(
    server: InProcessServer,
) -> None:
    created = await server.json("POST", WORKLOADS, workload())
    watch = await server.watch(WORKLOADS, resourceVersion=created["metadata"]["resourceVersion"])
    await server.json("DELETE", WEB)
    _, last = await watch.next()
    assert last["spec"] == created["spec"]
    assert last["metadata"]["resourceVersion"] == str(server.store.version("platform"))


@pytest.mark.parametrize("value", ["", "1", "true", "True", "yes"])
async def test_any_watch_parameter_but_false_and_zero_is_a_watch(
    server: InProcessServer, value: str
) -> None:
    assert (await server.ask("GET", WORKLOADS, watch=value)).stream is not None


@pytest.mark.parametrize("value", ["0", "false", "False"])
async def test_a_false_watch_parameter_is_a_list(server: InProcessServer, value: str) -> None:
    response = await server.ask("GET", WORKLOADS, watch=value)
    assert response.stream is None
    assert b"WorkloadList" in response.body


async def test_a_namespace_watch_sees_only_its_namespace(server: InProcessServer) -> None:
    await server.json("POST", "/api/v1/namespaces", namespace("other"))
    watch = await server.watch(WORKLOADS, resourceVersion="0")
    everywhere = await server.watch(EVERYWHERE)
    await server.json("POST", WORKLOADS.replace("default", "other"), workload("far"))
    await server.json("POST", WORKLOADS, workload("near"))
    assert await watch.names(1) == [("ADDED", "near")]
    assert await everywhere.names(2) == [("ADDED", "far"), ("ADDED", "near")]


async def test_objects_that_start_or_stop_matching_are_added_or_deleted(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload(labels={"on": "no"}))
    watch = await server.watch(WORKLOADS, labelSelector="on=yes")
    inside = await server.merge(WEB, {"metadata": {"labels": {"on": "yes"}}})
    changed = await server.merge(WEB, {"metadata": {"labels": {"x": "y"}}})
    outside = await server.merge(WEB, {"metadata": {"labels": {"on": "no"}}})
    await server.json("DELETE", WEB)
    await server.json("POST", WORKLOADS, workload("end", labels={"on": "yes"}))
    events = await watch.take(4)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert [obj for _, obj in events[:2]] == [inside, changed]
    left = events[2][1]
    assert left["metadata"]["labels"] == {"on": "yes", "x": "y"}
    assert left["metadata"]["resourceVersion"] == outside["metadata"]["resourceVersion"]
    assert events[3][1]["metadata"]["name"] == "end"


async def test_a_field_selector_follows_one_object(server: InProcessServer) -> None:
    watch = await server.watch(WORKLOADS, fieldSelector="metadata.name=b")
    for name in ("a", "b", "c"):
        await server.json("POST", WORKLOADS, workload(name))
    await server.json("DELETE", f"{WORKLOADS}/b")
    assert await watch.names(2) == [("ADDED", "b"), ("DELETED", "b")]


async def test_a_version_that_is_too_old_is_an_error_event_with_410() -> None:
    async with running_server(watch_window=2) as server:
        first = await server.json("POST", WORKLOADS, workload())
        for number in range(8):
            await server.merge(WEB, {"metadata": {"labels": {"n": str(number)}}})
        version = first["metadata"]["resourceVersion"]
        watch = await server.watch(WORKLOADS, resourceVersion=version)
        ((kind, status),) = await watch.rest()
    assert kind == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_a_watch_at_a_future_version_gets_410(
    server: InProcessServer,
) -> None:
    watch = await server.watch(WORKLOADS, resourceVersion="99999")
    ((kind, status),) = await watch.rest()
    assert (kind, status["code"]) == ("ERROR", 410)


async def test_a_slow_reader_gets_410_and_never_misses_an_event_silently() -> None:
    async with running_server(watch_window=2) as server:
        await server.json("POST", WORKLOADS, workload())
        watch = await server.watch(WORKLOADS)
        await watch.next()
        for number in range(8):
            await server.merge(WEB, {"metadata": {"labels": {"n": str(number)}}})
        events = await watch.rest()
    assert [(kind, obj.get("code")) for kind, obj in events] == [("ERROR", 410)]


async def test_initial_events_end_with_a_marked_bookmark(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload("a"))
    created = await server.json("POST", WORKLOADS, workload("b"))
    watch = await server.watch(WORKLOADS, allowWatchBookmarks="true", **INITIAL)
    assert await watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]
    kind, mark = await watch.next()
    assert kind == "BOOKMARK"
    assert (mark["kind"], mark["apiVersion"]) == ("Workload", "compute.datumapis.com/v1alpha")
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    await server.json("DELETE", f"{WORKLOADS}/a")
    assert await watch.names(1) == [("DELETED", "a")]


async def test_initial_events_of_an_empty_list_are_just_the_bookmark(
    server: InProcessServer,
) -> None:
    watch = await server.watch(WORKLOADS, allowWatchBookmarks="true", **INITIAL)
    assert (await watch.next())[0] == "BOOKMARK"


async def test_initial_events_can_be_disabled(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload("a"))
    watch = await server.watch(WORKLOADS, **{**INITIAL, "sendInitialEvents": "false"})
    await server.json("POST", WORKLOADS, workload("b"))
    assert await watch.names(1) == [("ADDED", "b")]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"sendInitialEvents": "true"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}, 422),
        ({"resourceVersion": "x"}, 400),
        ({"timeoutSeconds": "soon"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"fieldSelector": "spec.x=y"}, 400),
        ({**INITIAL, "resourceVersion": "99999"}, 504),
    ],
)
async def test_invalid_watch_options_are_rejected(
    server: InProcessServer, query: dict[str, Any], code: int
) -> None:
    response = await server.ask("GET", WORKLOADS, watch="1", **query)
    assert (response.status, response.stream) == (code, None)


async def test_a_write_without_changes_sends_no_event(server: InProcessServer) -> None:
    created = await server.json("POST", WORKLOADS, workload())
    watch = await server.watch(WORKLOADS, resourceVersion=created["metadata"]["resourceVersion"])
    await server.merge(WEB, {"metadata": {}})
    await server.json("PUT", WEB, created)
    await server.json("DELETE", WEB)
    assert await watch.names(1) == [("DELETED", "web")]


async def test_events_of_one_plane_are_not_sent_on_another(server: InProcessServer) -> None:
    watch = await server.watch("/planes/hub" + WORKLOADS)
    await server.json("POST", WORKLOADS, workload("here"))
    await server.json("POST", "/planes/hub" + WORKLOADS, workload("there"))
    assert await watch.names(1) == [("ADDED", "there")]


async def test_a_watch_ends_when_its_plane_is_deleted(server: InProcessServer) -> None:
    watch = await server.watch("/planes/hub" + WORKLOADS)
    await server.json("POST", "/planes/hub" + WORKLOADS, workload())
    await server.store.delete_plane("hub")
    assert [kind for kind, _ in await watch.rest()] in (["ADDED"], [])
    assert (await server.ask("GET", "/planes/hub" + WORKLOADS)).status == 404


async def test_closing_the_streams_ends_every_watch_and_refuses_new_ones(
    server: InProcessServer,
) -> None:
    waiting = [await server.watch(WORKLOADS) for _ in range(3)]
    readers = [asyncio.ensure_future(watch.rest()) for watch in waiting]
    unread = await server.watch("/api/v1/namespaces")
    await asyncio.sleep(0)
    server.api.close_streams()
    assert await asyncio.gather(*readers) == [[], [], []]
    assert [kind for kind, _ in await unread.rest()] == ["ADDED"]
    assert (await server.status("GET", WORKLOADS, watch="1"))["code"] == 503
    assert (await server.ask("GET", WORKLOADS)).status == 200


async def test_a_stopped_stream_ends_for_a_waiting_reader(server: InProcessServer) -> None:
    watch = await server.watch(WORKLOADS)
    reader = asyncio.ensure_future(watch.rest())
    await asyncio.sleep(0)
    watch.stream.stop()
    assert await reader == []


async def test_a_cancelled_reader_is_unregistered(server: InProcessServer) -> None:
    watch = await server.watch(WORKLOADS)
    reader = asyncio.ensure_future(watch.rest())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    assert reader.cancelled()
    assert server.api.long_requests.waiting == 0


async def test_lines_that_are_ready_are_read_together(server: InProcessServer) -> None:
    for number in range(5):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    watch = await server.watch(WORKLOADS)
    first = await anext(watch.stream)
    more = watch.stream.take_ready(2 * len(first) - 1)
    assert (first.count(b"\n"), more.count(b"\n")) == (1, 2)
    assert await watch.names(2) == [("ADDED", "w3"), ("ADDED", "w4")]
    assert watch.stream.take_ready(1000) == b""


def test_a_watch_ends_after_its_timeout() -> None:
    async def scenario(server: InProcessServer) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        watch = await server.watch(WORKLOADS, timeoutSeconds="7")
        assert await watch.rest_in(60) == []
        assert loop.time() - start == pytest.approx(7)

    in_virtual_time(scenario)


def test_a_watch_without_a_timeout_ends_within_the_hour() -> None:
    async def scenario(server: InProcessServer) -> None:
        start = asyncio.get_running_loop().time()
        await (await server.watch(WORKLOADS)).rest_in(100_000)
        assert 1800 <= asyncio.get_running_loop().time() - start <= 3600

    in_virtual_time(scenario)


def test_bookmarks_with_the_newest_version_are_sent_twice_a_minute_and_at_the_end() -> None:
    async def scenario(server: InProcessServer) -> None:
        watch = await server.watch(WORKLOADS, timeoutSeconds="75", allowWatchBookmarks="true")
        kind, mark = await watch.next_in(31)
        assert (kind, mark["metadata"]["resourceVersion"]) == ("BOOKMARK", version(server))
        await server.json("POST", "/api/v1/namespaces", namespace("unrelated"))
        kind, mark = await watch.next_in(31)
        assert (kind, mark["metadata"]["resourceVersion"]) == ("BOOKMARK", version(server))
        ((kind, mark),) = await watch.rest_in(31)
        assert kind == "BOOKMARK"
        assert "annotations" not in mark["metadata"]

    in_virtual_time(scenario)


def test_bookmarks_are_sent_only_on_request() -> None:
    async def scenario(server: InProcessServer) -> None:
        assert await (await server.watch(WORKLOADS, timeoutSeconds="500")).rest_in(600) == []

    in_virtual_time(scenario)


def test_an_event_is_never_behind_a_bookmark_of_its_version() -> None:
    """Writes commit at any time around the bookmark; resuming at it must lose no event."""

    async def scenario(server: InProcessServer) -> None:
        await server.json("POST", WORKLOADS, workload())
        watch = await server.watch(WORKLOADS, timeoutSeconds="200", allowWatchBookmarks="true")
        seen: list[int] = []

        async def read() -> None:
            for kind, obj in await watch.rest_in(300):
                at = int(obj["metadata"]["resourceVersion"])
                assert kind == "BOOKMARK" or at > max(seen, default=0), (kind, at, seen)
                seen.append(at)

        async def write() -> None:
            for number in range(400):
                await asyncio.sleep(0.5)
                await server.merge(WEB, {"metadata": {"labels": {"n": str(number)}}})

        await asyncio.gather(read(), write())
        assert len(seen) > 300

    for seed in range(5):

        async def main(_: object) -> None:
            async with running_server() as server:
                await scenario(server)

        run_virtual(Random(seed), main)


def version(server: InProcessServer) -> str:
    return str(server.store.version("platform"))


async def test_an_idle_watch_survives_the_compaction_of_other_events() -> None:
    async with running_server(watch_window=2) as server:
        watch = await server.watch(WORKLOADS, labelSelector="on=yes")
        nothing_yet = asyncio.create_task(watch.names(1))
        await asyncio.sleep(0)
        for number in range(10):
            await server.json("POST", WORKLOADS, workload(f"other-{number}"))
        await server.json("POST", WORKLOADS, workload("own", labels={"on": "yes"}))
        assert await nothing_yet == [("ADDED", "own")]
