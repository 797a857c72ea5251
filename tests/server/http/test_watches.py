"""Watches on a connection: lines are sent as they arrive, and watches end in defined ways."""

from __future__ import annotations

import asyncio

from datum_compute.api.meta.codec import decode
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload
from tests.server.http.wire import Wire, front_of, request

WATCH = request(target=f"{WORKLOADS}?watch=1")


async def test_a_watch_sends_headers_at_once_and_ends_when_the_client_disconnects(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload("first"))
    wire = Wire(front_of(server))
    wire.send(WATCH)
    assert len(await wire.lines(1)) == 1
    found = wire.answers[0].headers
    assert set(found) == {"content-type", "audit-id", "date", "transfer-encoding"}
    await server.json("POST", WORKLOADS, workload("second"))
    lines = await wire.lines(2)
    assert [decode(line)["object"]["metadata"]["name"] for line in lines] == ["first", "second"]
    assert server.api.long_requests.waiting == 1
    wire.connection.connection_lost(None)
    await wire.settled()
    assert server.api.long_requests.waiting == 0


async def test_a_client_of_http_1_0_gets_lines_until_the_connection_ends(
    server: InProcessServer,
) -> None:
    await server.json("POST", WORKLOADS, workload("first"))
    wire = Wire(front_of(server))
    wire.send(request(target=f"{WORKLOADS}?watch=1", version="1.0"))
    assert decode((await wire.lines(1))[0])["type"] == "ADDED"
    assert "transfer-encoding" not in wire.answers[0].headers
    server.api.close_streams()
    await wire.end()


async def test_many_initial_events_are_sent_in_few_chunks(server: InProcessServer) -> None:
    for number in range(100):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    wire = Wire(front_of(server))
    wire.send(WATCH)
    await wire.lines(100)
    assert wire.raw.count(b"}\n\r\n") < 12


async def test_closing_the_streams_completes_open_responses(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(WATCH)
    await wire.settled()
    server.api.close_streams()
    assert (await wire.answer()).body == b""
    assert not wire.closed
    wire.send(WATCH)
    assert (await wire.answer(1)).status == 503


async def test_a_request_behind_a_watch_is_answered_after_it(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request(target=f"{WORKLOADS}?watch=1&timeoutSeconds=1") + request(target="/version"))
    assert (await wire.answer(1)).status == 200


async def test_a_watch_waits_for_a_slow_client_and_loses_no_event(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    wire.takes = False
    wire.send(WATCH)
    await wire.settled()
    for number in range(5):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    await wire.settled()
    assert wire.answers[0].body == b""
    wire.take()
    names = [decode(line)["object"]["metadata"]["name"] for line in await wire.lines(5)]
    assert names == [f"w{number}" for number in range(5)]


async def test_stopping_frees_a_watch_whose_client_does_not_read(server: InProcessServer) -> None:
    front = front_of(server)
    wire = Wire(front)
    wire.takes = False
    wire.send(WATCH)
    await wire.settled()
    server.api.close_streams()
    async with asyncio.timeout(30):
        await front.stop()
    assert wire.aborted
    assert front.connections == 0
