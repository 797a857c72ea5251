"""Watch events are encoded once per representation and cached."""

from __future__ import annotations

import pytest

from datum_compute.api.meta.codec import decode
from datum_compute.server.verbs.commit import OBJECT_BYTES_MAX
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from testkit.api_server.running_server import WORKLOADS, Events, InProcessServer, workload

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
PARTIAL = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}


async def watches(server: InProcessServer, count: int, **query: object) -> list[Events]:
    return [await server.watch(WORKLOADS, **query) for _ in range(count)]


@pytest.mark.parametrize("headers", [{}, TABLE, PARTIAL])
async def test_an_event_is_encoded_once_for_all_watches_of_a_representation(
    server: InProcessServer, headers: dict[str, str]
) -> None:
    opened = await watches(server, 20, headers=headers)
    await server.json("POST", WORKLOADS, workload("web"))
    lines = [await anext(watch.stream) for watch in opened]
    encoder = server.api.event_encoder
    assert (encoder.encoded, encoder.shared) == (1, 19)
    assert all(line is lines[0] for line in lines)


async def test_initial_events_are_shared_as_well(server: InProcessServer) -> None:
    for number in range(5):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    for watch in await watches(server, 10):
        assert [name for _, name in await watch.names(5)] == [f"w{number}" for number in range(5)]
    assert server.api.event_encoder.encoded == 5


async def test_representations_do_not_share_events(server: InProcessServer) -> None:
    opened = [
        await server.watch(WORKLOADS, headers=headers) for headers in ({}, TABLE, PARTIAL, TABLE)
    ]
    await server.json("POST", WORKLOADS, workload("web"))
    kinds = [(await watch.next())[1]["kind"] for watch in opened]
    assert kinds == ["Workload", "Table", "PartialObjectMetadata", "Table"]
    assert server.api.event_encoder.encoded == 3


async def test_a_table_is_encoded_again_when_ages_have_changed(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload("web"))
    first = await (await server.watch(WORKLOADS, headers=TABLE)).next()
    server.clock.now_s += 90
    second = await (await server.watch(WORKLOADS, headers=TABLE)).next()
    assert first != second
    assert server.api.event_encoder.encoded == 2


async def test_a_watch_that_an_object_leaves_gets_its_own_event(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload("web", labels={"tier": "a"}))
    everything = await server.watch(WORKLOADS)
    selected = [await server.watch(WORKLOADS, labelSelector="tier=a") for _ in range(2)]
    for watch in (everything, *selected):
        await watch.next()
    await server.merge(f"{WORKLOADS}/web", {"metadata": {"labels": {"tier": "b"}}})
    changed = await everything.next()
    left = [await watch.next() for watch in selected]
    assert changed[0] == "MODIFIED"
    assert [event_type for event_type, _ in left] == ["DELETED", "DELETED"]
    assert left[0][1]["metadata"]["labels"] == {"tier": "a"}
    versions = {obj["metadata"]["resourceVersion"] for _, obj in (changed, *left)}
    assert len(versions) == 1
    assert server.api.event_encoder.encoded == 3


def record(number: int, size_bytes: int) -> Record:
    return Record(ObjectKey("things", "", f"t{number}"), number, b"x" * size_bytes, "", {})


def test_lines_are_kept_up_to_a_number_of_bytes() -> None:
    encoder = EventEncoder(cache_bytes_max=10_000)
    records = [record(number, 500) for number in range(100)]
    for one in records:
        encoder.line(one, one.version, b"ADDED", (0, None), lambda one=one: one.body)  # type: ignore[misc]
        assert encoder.cached_bytes <= 10_000
    newest, oldest = records[-1], records[0]
    encoder.line(newest, newest.version, b"ADDED", (0, None), lambda: newest.body)
    assert (encoder.encoded, encoder.shared) == (100, 1)
    encoder.line(oldest, oldest.version, b"ADDED", (0, None), lambda: oldest.body)
    assert (encoder.encoded, encoder.shared) == (101, 1)


def test_a_large_line_does_not_evict_the_others() -> None:
    encoder = EventEncoder(cache_bytes_max=10_000)
    small, large = record(1, 100), record(2, 9000)
    for one in (small, large, small):
        encoder.line(one, one.version, b"ADDED", (0, None), lambda one=one: one.body)  # type: ignore[misc]
    assert (encoder.encoded, encoder.shared) == (2, 1)


def test_the_line_of_an_object_of_the_largest_size_is_shared() -> None:
    encoder = EventEncoder()
    one = record(1, OBJECT_BYTES_MAX + 200 * 1024)
    first, second = (
        encoder.line(one, one.version, b"ADDED", (0, None), lambda: one.body) for _ in range(2)
    )
    assert first is second


async def test_cached_lines_equal_encoded_lines(server: InProcessServer) -> None:
    created = await server.json("POST", WORKLOADS, workload("web"))
    watch = await server.watch(WORKLOADS)
    assert decode(await anext(watch.stream)) == {"type": "ADDED", "object": created}
