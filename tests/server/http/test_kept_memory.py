"""A connection that is idle or has an open watch keeps no large request in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from datum_compute.server.http.request_parser import BODY_BYTES_MAX, HEADERS_MAX, RequestParser
from testkit.api_server.running_server import WORKLOADS, InProcessServer
from tests.server.http.wire import Wire, front_of, request

KEPT_BYTES_MAX = 32 * 1024


@contextmanager
def kept_bytes() -> Iterator[list[int]]:
    """Yield a list that receives the bytes that the block has allocated and not freed."""
    found: list[int] = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield found
        found.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()


def read_one(reader: RequestParser, data: bytes) -> None:
    reader.feed(data)
    assert reader.error is None
    reader.requests.popleft()


@pytest.mark.parametrize(
    "large",
    [
        request("POST", body=b"x" * BODY_BYTES_MAX),
        request(headers={"X-Long": "x" * 60_000}),
        request(headers={f"X-{number}": "x" * 600 for number in range(90)}),
        request(target=f"/version?a={'x' * 60_000}"),
        request(target="/version?" + "&".join(f"{n}={'x' * 600}" for n in range(90))),
    ],
    ids=["body", "header", "headers", "query", "query fields"],
)
def test_an_idle_connection_keeps_no_large_request(large: bytes) -> None:
    reader = RequestParser("")
    read_one(reader, request())
    with kept_bytes() as found:
        read_one(reader, large)
    assert found[0] <= KEPT_BYTES_MAX


def test_a_small_head_is_parsed_once() -> None:
    reader = RequestParser("")
    for _ in range(2):
        reader.feed(request())
    first, second = (arrived.request for arrived in reader.requests)
    assert first.headers is second.headers
    assert first.query is second.query


def test_a_request_after_a_large_head_has_its_own_head() -> None:
    reader = RequestParser("")
    reader.feed(request(target=f"/a?b={'x' * 5000}", headers={"X-Long": "x" * 5000}))
    reader.feed(request(target="/c"))
    first, second = (arrived.request for arrived in reader.requests)
    assert (first.path, len(first.query["b"]), len(first.headers["x-long"])) == ("/a", 5000, 5000)
    assert (second.path, second.query, "x-long" in second.headers) == ("/c", {}, False)


def test_a_missing_host_is_found_after_a_large_head() -> None:
    reader = RequestParser("")
    reader.feed(request(headers={"X-Long": "x" * 5000}))
    reader.feed(b"GET /version HTTP/1.1\r\n\r\n")
    assert reader.error is not None
    assert "Host is missing" in reader.error.message


def test_a_request_has_a_limited_number_of_headers() -> None:
    reader = RequestParser("")
    read_one(reader, request(headers={f"X-{number}": "x" for number in range(HEADERS_MAX - 2)}))
    reader.feed(request(headers={f"X-{number}": "x" for number in range(HEADERS_MAX - 1)}))
    assert reader.error is not None
    assert reader.error.code == 431
    assert f"more than {HEADERS_MAX} headers" in reader.error.message


def test_headers_above_the_limit_are_not_kept() -> None:
    reader = RequestParser("")
    many = request(headers={f"X-{number}": "x" for number in range(5_000)})
    with kept_bytes() as found:
        reader.feed(many)
    assert found[0] <= KEPT_BYTES_MAX


async def test_a_request_with_too_many_headers_gets_431(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request(headers={f"X-{number}": "x" for number in range(HEADERS_MAX)}))
    answer = await wire.answer()
    assert (answer.status, answer.reason) == (431, "RequestHeaderFieldsTooLarge")


async def test_a_watch_reads_no_body_of_the_next_request(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request(target=f"{WORKLOADS}?watch=1"))
    await wire.settled()
    body = b"{}".ljust(BODY_BYTES_MAX)
    wire.send(request("POST", body=body)[:1000])
    await wire.settled()
    assert not wire.reading
    wire.send(request("POST", body=body)[1000:])
    server.api.close_streams()
    assert (await wire.answer(1)).status == 400
