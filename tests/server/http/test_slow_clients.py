"""Clients that do not read: the memory that the server uses for them, and closed connections."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.server.http.connection import RESPONSE_S, SEND_S
from datum_compute.server.http.response_writer import (
    STREAM_CHUNKS_BYTES,
    TLS_BUFFER_BYTES,
    WRITE_BYTES_MAX,
)
from datum_compute.server.http.send_budget import PortLimits
from datum_compute.server.http.server import HttpServer
from datum_compute.server.verbs.event_encoder import WatchEventEncoder
from datum_compute.store.records import Record
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import (
    START_S,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)
from testkit.sim.loop import run_virtual
from tests.server.http.wire import Wire, request

NOTE = {"note": "x" * 10_000}
OBJECTS = 20
# Unsent bytes of a connection whose client does not read: watch lines and the TLS buffer.
BLOCKED_BYTES = TLS_BUFFER_BYTES + STREAM_CHUNKS_BYTES + 12_000


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    """A server with some workloads that ann may read."""
    async with server_with_ann() as running:
        await grant(running, rule("get list watch", "workloads"))
        for number in range(OBJECTS):
            await running.json("POST", WORKLOADS, workload(f"w{number}", annotations=NOTE))
        yield running


def of_ann(target: str) -> bytes:
    return request(target=target, headers={"Authorization": f"Bearer {ANN}"})


def front_with(server: InProcessServer, **limits: int) -> HttpServer:
    return HttpServer(server.api.dispatch, lambda: START_S, PortLimits(**limits))


async def unread(front: HttpServer, count: int, data: bytes) -> list[Wire]:
    wires = []
    for _ in range(count):
        wire = Wire(front)
        wire.takes = False
        wire.send(data)
        await wire.settled()
        wires.append(wire)
    return wires


async def test_a_watch_encodes_no_more_events_than_its_client_reads(
    server: InProcessServer,
) -> None:
    front = front_with(server)
    (wire,) = await unread(front, 1, of_ann(f"{WORKLOADS}?watch=1"))
    assert server.api.event_encoder.encoded == 0  # the headers alone fill the buffer
    for _ in range(3):
        before = len(wire.raw)
        wire.take()
        wire.takes = False
        await wire.settled()
        assert len(wire.raw) - before <= STREAM_CHUNKS_BYTES + 12_000
    assert server.api.event_encoder.encoded < OBJECTS
    wire.take()
    assert len(await wire.lines(OBJECTS)) == OBJECTS


async def test_unread_watches_of_a_user_stay_below_its_limit_and_the_slowest_are_closed(
    server: InProcessServer,
) -> None:
    limit = 5 * BLOCKED_BYTES
    front = front_with(server, unsent_bytes_per_user_max=limit)
    highest, wires = 0, []
    for _ in range(20):
        wires += await unread(front, 1, of_ann(f"{WORKLOADS}?watch=1"))
        wires[-1].take()  # the headers
        wires[-1].takes = False
        await wires[-1].settled()
        highest = max(highest, front.budget.user_bytes("ann"))
    assert 0 < highest <= limit
    closed = [wire.aborted for wire in wires]
    assert 0 < closed.count(True) < 20
    assert all(first >= second for first, second in pairwise(closed))  # oldest first
    assert front.metrics.closed_count("watch", "send-buffer-user") == closed.count(True)
    assert front.metrics.limit_count("send-buffer-user") == closed.count(True)
    await wires[-1].settled()
    assert len(server.api.watches) == closed.count(False)


async def test_a_flood_of_one_user_does_not_close_the_watch_of_another(
    server: InProcessServer,
) -> None:
    front = front_with(server, unsent_bytes_max=4 * BLOCKED_BYTES)
    (other,) = await unread(front, 1, request(target=f"{WORKLOADS}?watch=1"))
    await unread(front, 10, of_ann(f"{WORKLOADS}?watch=1"))
    assert not other.aborted
    assert front.budget.total_bytes <= 4 * BLOCKED_BYTES
    assert front.metrics.closed_count("watch", "send-buffer-total") > 0


async def test_an_unread_list_holds_no_copy_of_its_objects(server: InProcessServer) -> None:
    for number in range(OBJECTS, 40):
        await server.json("POST", WORKLOADS, workload(f"w{number}", annotations=NOTE))
    front = front_with(server)
    (wire,) = await unread(front, 1, of_ann(WORKLOADS))
    assert front.budget.user_bytes("ann") < 2 * BLOCKED_BYTES
    wire.take()
    answer = await wire.answer()
    assert len(answer.body) == int(answer.headers["content-length"]) > 400_000
    assert len(decode(answer.body)["items"]) == 40


async def test_a_body_in_one_piece_counts_completely() -> None:
    body = b"x" * 1_000_000

    async def answer(_request: Request) -> Response:
        return Response(200, body)

    front = HttpServer(answer, lambda: START_S)
    (wire,) = await unread(front, 1, request())
    assert len(body) <= front.budget.total_bytes <= len(body) + TLS_BUFFER_BYTES + 1000
    wire.take()
    assert (await wire.answer()).body == body
    await wire.settled()
    assert front.budget.total_bytes == 0


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LARGE_BYTES = 900_000


async def put_large(server: InProcessServer, name: str, size_bytes: int = LARGE_BYTES) -> None:
    body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await server.json("POST", CONFIG_MAPS, body | {"data": {"a": "x" * size_bytes}})


async def open_blocked_watches(front: HttpServer, count: int, target: str) -> list[Wire]:
    """Watches whose clients have read the headers and no event."""
    wires = await unread(front, count, request(target=target))
    for wire in wires:
        wire.take()
        wire.takes = False
        await wire.settled()
    return wires


class LineLog:
    """Keeps the lines that watches request from the encoder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: dict[int, bytes] = {}
        added = WatchEventEncoder.encode_existing

        def record_line(events: WatchEventEncoder, record: Record) -> bytes | None:
            line = added(events, record)
            if line is not None:
                self.lines[id(line)] = line
            return line

        monkeypatch.setattr(WatchEventEncoder, "encode_existing", record_line)


@pytest.mark.parametrize("small_first", [False, True])
async def test_unread_watches_share_one_copy_of_a_large_object(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch, small_first: bool
) -> None:
    if small_first:
        await put_large(server, "a", 10)
    await put_large(server, "large")
    log = LineLog(monkeypatch)
    front = front_with(server)
    wires = await open_blocked_watches(front, 50, f"{CONFIG_MAPS}?watch=1")
    if small_first:
        for wire in wires:
            wire.take()
            wire.takes = False
            await wire.settled()
    assert server.api.event_encoder.encoded == (2 if small_first else 1)
    assert max(size for wire in wires for size in wire.write_sizes) <= WRITE_BYTES_MAX
    assert max(wire.unread_bytes for wire in wires) <= WRITE_BYTES_MAX
    large = max(log.lines.values(), key=len)
    assert sys.getrefcount(large) >= 50  # all watches refer to the same line
    # The budget counts the line once, and the buffers of every connection.
    buffers = front.budget.total_bytes - len(large)
    assert 0 < buffers <= 50 * (WRITE_BYTES_MAX + TLS_BUFFER_BYTES)
    for wire in wires:
        wire.take()
    for wire in wires:
        lines = await wire.lines(2 if small_first else 1)
        assert decode(lines[-1])["object"]["data"]["a"] == "x" * LARGE_BYTES
        await wire.settled()
    assert max(size for wire in wires for size in wire.write_sizes) <= WRITE_BYTES_MAX
    assert front.budget.total_bytes == 0


async def test_a_watch_keeps_no_line_that_its_client_has_read(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LineLog(monkeypatch)
    await put_large(server, "large")
    front = front_with(server)
    wires = []
    for _ in range(3):
        wires.append(Wire(front))
        wires[-1].send(request(target=f"{CONFIG_MAPS}?watch=1"))
        await wires[-1].lines(1)
        await wires[-1].settled()
    (line,) = log.lines.values()
    log.lines.clear()
    assert sys.getrefcount(line) == 3  # this variable, the call and the cache of the encoder


async def test_old_versions_of_a_large_object_count_for_the_watches_that_hold_them(
    server: InProcessServer,
) -> None:
    await put_large(server, "large")
    limit = 4 * (LARGE_BYTES + BLOCKED_BYTES)
    front = front_with(server, unsent_bytes_max=limit)
    wires = []
    for number in range(8):
        patch = {"data": {"b": str(number)}}
        changed = await server.merge(f"{CONFIG_MAPS}/large", patch)
        since = int(changed["metadata"]["resourceVersion"]) - 1
        target = f"{CONFIG_MAPS}?watch=1&resourceVersion={since}"
        wires += await open_blocked_watches(front, 1, target)
        assert front.budget.total_bytes <= limit
    assert [wire.aborted for wire in wires] == [True] * 4 + [False] * 4
    assert front.budget.total_bytes > 4 * LARGE_BYTES


async def test_the_line_of_a_closed_watch_counts_for_another_that_holds_it(
    server: InProcessServer,
) -> None:
    await put_large(server, "large")
    front = front_with(server)
    wires = await open_blocked_watches(front, 3, f"{CONFIG_MAPS}?watch=1")
    for left, wire in zip((2, 1), wires, strict=False):
        wire.abort()
        await wire.settled()
        assert LARGE_BYTES < front.budget.total_bytes <= LARGE_BYTES + left * BLOCKED_BYTES + 200
    wires[-1].abort()
    await wires[-1].settled()
    assert front.budget.total_bytes == 0


@pytest.mark.parametrize("size_bytes", [20_000, 40_000, 200_000, 1_000_000])
async def test_a_body_is_written_in_pieces_and_arrives_whole(size_bytes: int) -> None:
    body = bytes(number % 251 for number in range(size_bytes))

    async def answer(_request: Request) -> Response:
        return Response(200, body)

    front = HttpServer(answer, lambda: START_S)
    wires = [Wire(front), *await unread(front, 1, request() + request())]
    wires[0].send(request() + request())
    assert wires[1].unread_bytes <= WRITE_BYTES_MAX
    assert front.budget.total_bytes >= size_bytes
    wires[1].take()
    for wire in wires:
        for number in range(2):
            assert (await wire.answer(number)).body == body
        assert max(wire.write_sizes) <= WRITE_BYTES_MAX
        await wire.settled()
    assert front.budget.total_bytes == 0


@pytest.mark.parametrize("size_bytes", [200_000, 1_000_000])
async def test_a_connection_with_unanswered_requests_is_freed_without_the_garbage_collector(
    size_bytes: int,
) -> None:
    async def answer(_request: Request) -> Response:
        return Response(200, b"x" * size_bytes)

    (wire,) = await unread(HttpServer(answer, lambda: START_S), 1, request() * 20)
    gc.disable()
    try:
        wire.abort()
        await wire.settled()
        parts: list[weakref.ref[object]] = [
            weakref.ref(wire.connection),
            weakref.ref(wire.connection._parser),
        ]
        del wire.connection
        await wire.settled()
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


async def test_a_connection_closes_after_its_client_has_read_the_whole_body() -> None:
    body = b"x" * 200_000

    async def answer(_request: Request) -> Response:
        return Response(200, body)

    (wire,) = await unread(HttpServer(answer, lambda: START_S), 1, request(version="1.0"))
    assert not wire.closed
    wire.take()
    await wire.end()
    assert (wire.answers[0].body, wire.aborted) == (body, False)


async def test_an_unread_list_of_large_objects_holds_no_copy_of_them(
    server: InProcessServer,
) -> None:
    for number in range(3):
        await put_large(server, f"large-{number}")
    front = front_with(server)
    (wire,) = await unread(front, 1, request(target=CONFIG_MAPS))
    for _ in range(5):
        assert front.budget.total_bytes < 2 * BLOCKED_BYTES
        wire.take()
        wire.takes = False
        await wire.settled()
    wire.take()
    assert len(decode((await wire.answer()).body)["items"]) == 3
    assert max(wire.write_sizes) <= WRITE_BYTES_MAX


class SlowBody:
    """A body of many pieces."""

    size_bytes = 100 * 20_000

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"x" * 20_000] * 100)


def test_a_response_must_be_read_completely_before_its_deadline() -> None:
    async def scenario(_: object) -> None:
        async def answer(_request: Request) -> Response:
            return Response(200, pieces=SlowBody())

        wire = Wire(HttpServer(answer, lambda: START_S))
        wire.takes = False
        wire.send(request())
        await wire.settled()
        for _ in range(int(RESPONSE_S / (SEND_S / 2)) - 1):
            await asyncio.sleep(SEND_S / 2)
            assert not wire.closed
            wire.take()
            wire.takes = False
            await wire.settled()
        await asyncio.sleep(SEND_S / 2 + 2)
        assert wire.aborted

    run_virtual(Random(3), scenario)


def test_a_watch_that_is_read_after_its_initial_events_has_no_deadline() -> None:
    async def scenario(_: object) -> None:
        async with running_server() as server:
            await server.json("POST", WORKLOADS, workload("web"))
            wire = Wire(HttpServer(server.api.dispatch, lambda: START_S))
            wire.send(request(target=f"{WORKLOADS}?watch=1"))
            await wire.lines(1)
            await asyncio.sleep(2 * RESPONSE_S)
            assert not wire.closed
            wire.takes = False
            await server.json("POST", WORKLOADS, workload("new"))
            await asyncio.sleep(SEND_S / 2)
            wire.take()
            await asyncio.sleep(2 * RESPONSE_S)
            assert not wire.closed

    run_virtual(Random(3), scenario)
