"""Responses to valid and invalid HTTP requests."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.api.meta.codec import decode, encode
from datum_compute.server.http.request_parser import BODY_BYTES_MAX, HEAD_BYTES_MAX
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload
from tests.server.http.wire import Answer, Wire, chunked, front_of, request

pytestmark = pytest.mark.usefixtures("short_linger")


async def response_status(server: InProcessServer, *sent: bytes) -> Answer:
    wire = Wire(front_of(server))
    for part in sent:
        wire.send(part)
    return await wire.answer()


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"


async def test_a_request_gets_a_response(server: InProcessServer) -> None:
    sent = request("POST", body=encode(workload()))
    created = await response_status(server, *(sent[i : i + 7] for i in range(0, len(sent), 7)))
    assert created.status == 201
    assert created.headers["content-type"] == "application/json"
    assert created.headers["content-length"] == str(len(created.body))
    assert created.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert created.headers["audit-id"]
    assert decode(created.body)["metadata"]["name"] == "web"


async def test_a_body_in_chunks_with_trailers_is_read(server: InProcessServer) -> None:
    body = encode(workload())
    sent = chunked(body[:10], body[10:])[:-2] + b"Authorization: Bearer other\r\n\r\n"
    head = request("POST", headers={"Transfer-Encoding": "chunked"})
    created = await response_status(
        server, head, *(sent[i : i + 5] for i in range(0, len(sent), 5))
    )
    assert created.status == 201


async def test_requests_that_are_sent_together_are_answered_in_order(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    posts = [request("POST", body=encode(workload(f"w{number}"))) for number in range(20)]
    reads = [request(target=f"{WORKLOADS}/w{number}") for number in range(20)]
    sent = [part for pair in zip(posts, reads, strict=True) for part in pair]
    wire.send(b"".join(sent))
    await wire.answer(39)
    found = [(a.status, decode(a.body)["metadata"]["name"]) for a in wire.answers]
    expected = [(status, f"w{n}") for n in range(20) for status in (201, 200)]
    assert found == expected
    assert not wire.is_closed()


async def test_no_more_is_read_while_a_request_waits_for_the_one_before(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    server.journal.held = True
    wire.send(request("POST", body=encode(workload())))
    await wire.settled()
    assert wire.is_reading()
    wire.send(request())
    await wire.settled()
    assert not wire.is_reading()
    server.journal.held = False
    server.journal.permit()
    assert (await wire.answer(1)).status == 200
    await wire.settled()
    assert wire.is_reading()


async def test_no_request_is_processed_while_the_client_reads_no_responses(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    wire.takes = False
    wire.send(request(target="/version") * 3)
    await wire.settled()
    assert len(wire.answers) == 1
    wire.take()
    assert (await wire.answer(2)).status == 200


async def test_a_large_response_is_sent_in_pieces_as_the_client_reads(
    server: InProcessServer,
) -> None:
    note = {"note": "x" * 200_000}
    for number in range(5):
        await server.json("POST", WORKLOADS, workload(f"w{number}", annotations=note))
    wire = Wire(front_of(server))
    wire.takes = False
    wire.send(request() + request(target="/version"))
    await wire.settled()
    assert len(wire.raw) < 2000  # no more than the head
    wire.take()
    listed = await wire.answer()
    assert len(decode(listed.body)["items"]) == 5
    assert (await wire.answer(1)).status == 200


async def test_head_has_no_body_and_keeps_the_connection(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request(target="/version"))
    body = (await wire.answer()).body
    before = len(wire.raw)
    wire.send(request("HEAD", target="/version"))
    await wire.settled()
    head = wire.raw[before:]
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: %d\r\n" % len(body) in head
    assert head.endswith(b"\r\n\r\n")
    assert not wire.is_closed()


@pytest.mark.parametrize(
    ("version", "headers", "closes"),
    [
        ("1.1", {}, False),
        ("1.1", {"Connection": "close"}, True),
        ("1.0", {}, True),
        ("1.1", {"Connection": "upgrade", "Upgrade": "websocket"}, True),
    ],
)
async def test_the_connection_header_decides_whether_the_connection_is_kept(
    server: InProcessServer, version: str, headers: dict[str, str], closes: bool
) -> None:
    wire = Wire(front_of(server))
    wire.send(request(target="/version", version=version, headers=headers))
    answer = await wire.answer()
    assert answer.status == 200
    assert (answer.headers.get("connection"), wire.closed) == ("close" if closes else None, closes)


async def test_100_continue_is_sent_only_if_the_client_expects_it(server: InProcessServer) -> None:
    body = encode(workload())
    wire = Wire(front_of(server))
    head = request("POST", headers={"Content-Length": str(len(body)), "Expect": "100-continue"})
    wire.send(head)
    await wire.settled()
    assert wire.raw == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(body)
    assert (await wire.answer()).status == 201
    eager = Wire(front_of(server))
    eager.send(head + body)
    assert (await eager.answer()).status == 409
    assert not eager.raw.startswith(b"HTTP/1.1 100")
    refused = Wire(front_of(server))
    size = str(BODY_BYTES_MAX + 1)
    refused.send(request("POST", headers={"Content-Length": size, "Expect": "100-continue"}))
    assert (await refused.answer()).status == 413
    assert not refused.raw.startswith(b"HTTP/1.1 100")


async def test_a_body_over_the_limit_is_413_whether_declared_or_not(
    server: InProcessServer,
) -> None:
    declared = request("POST", headers={"Content-Length": str(BODY_BYTES_MAX + 1)})
    half = b"x" * (BODY_BYTES_MAX // 2 + 1)
    framed = b"%x\r\n%b\r\n" % (len(half), half)
    hidden = request("POST", headers={"Transfer-Encoding": "chunked"})
    for sent in ((declared, b"x"), (hidden, framed, framed)):
        answer = await response_status(server, *sent)
        assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")
        assert answer.headers["connection"] == "close"


async def test_a_body_at_the_limit_is_read(server: InProcessServer) -> None:
    body = encode(workload()).ljust(BODY_BYTES_MAX)
    assert (await response_status(server, request("POST", body=body))).status == 201


async def test_a_body_in_very_many_chunks_is_read(server: InProcessServer) -> None:
    body = encode(workload())
    parts = [body[i : i + 1] for i in range(len(body))]
    head = request("POST", headers={"Transfer-Encoding": "chunked"})
    assert (await response_status(server, head + chunked(*parts))).status == 201


async def test_trailers_beyond_the_limit_end_the_connection(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request("POST", headers={"Transfer-Encoding": "chunked"}) + b"1\r\n{\r\n0\r\n")
    for _ in range(500):
        wire.send(b"a: b\r\n" * 10_000)
    assert (await wire.answer()).status == 413


async def test_the_overhead_of_chunks_is_limited(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(request("POST", headers={"Transfer-Encoding": "chunked"}) + b"1;x=")
    for _ in range(500):
        wire.send(b"y" * 65536)
    assert (await wire.answer()).status == 413


@pytest.mark.parametrize("length", ["x", "-1", "\u00b2", "9" * 5000, "1, 2", "0x1"])
async def test_an_invalid_content_length_is_rejected(server: InProcessServer, length: str) -> None:
    assert (
        await response_status(server, request("POST", headers={"Content-Length": length}))
    ).status in (
        400,
        413,
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\r\r\n\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nName : space\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT a:b:c HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, nonsense\r\n\r\n0\r\n\r\n",
        b"GET /version HTTP/1.1\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n",
        b"GET /version HTTP/1.1\nHost: x\n\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\n\n",
        b"GET /version HTTP/1.1\r\nHost: x\rX-A: a\r\n\r\n",
        b"GET /version HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n",
        CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nab",
        CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_an_invalid_request_gets_400_and_the_connection_is_closed(
    server: InProcessServer, sent: bytes
) -> None:
    wire = Wire(front_of(server))
    wire.send(request(target="/version"))
    wire.send(sent)
    wire.send(request(target="/version"))
    answer = await wire.answer(1)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert answer.reason == "BadRequest"
    await wire.end()
    assert len(wire.answers) == 2


@pytest.mark.parametrize("encoding", ["gzip, chunked", "chunked;q=1, chunked", "deflate,chunked"])
async def test_an_unknown_transfer_encoding_gets_501_and_the_connection_is_closed(
    server: InProcessServer, encoding: str
) -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {encoding}\r\n\r\n"
    wire = Wire(front_of(server))
    wire.send(head.encode() + b"0\r\n\r\n" + request(target="/version"))
    answer = await wire.answer(0)
    assert (answer.status, answer.reason) == (501, "UnsupportedFeature")
    await wire.end()
    assert len(wire.answers) == 1


async def test_a_client_of_http_1_0_needs_no_host(server: InProcessServer) -> None:
    assert (await response_status(server, b"GET /version HTTP/1.0\r\n\r\n")).status == 200


async def test_the_response_to_an_invalid_request_follows_earlier_responses(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    wire.send(request("POST", body=encode(workload())) + request() + b"nonsense\r\n\r\n")
    await wire.answer(2)
    assert [answer.status for answer in wire.answers] == [201, 200, 400]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("labelSelector=a%3Db&labelSelector=%28", 200),
        ("labelSelector=%ff%fe", 400),
        ("limit=%31", 200),
        ("&&&==&%", 200),
        ("&".join(["a=b"] * 200), 400),
    ],
)
async def test_unusual_queries_get_a_response(
    server: InProcessServer, query: str, status: int
) -> None:
    assert (await response_status(server, request(target=f"{WORKLOADS}?{query}"))).status == status


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (f"{WORKLOADS}/%2561", 404),
        ("/%61pi", 200),
        ("/api%00", 404),
        ("http://elsewhere:1/version?a=b", 200),
        ("/version?a=b#part", 200),
        ("*", 404),
        ("//version", 404),
    ],
)
async def test_unusual_paths_get_a_response(
    server: InProcessServer, target: str, status: int
) -> None:
    assert (await response_status(server, request(target=target))).status == status


async def test_headers_are_limited_and_some_must_not_be_repeated(server: InProcessServer) -> None:
    refused = await response_status(server, request(headers={"X-Long": "x" * HEAD_BYTES_MAX}))
    assert refused.status == 431
    assert b"headers are larger" in refused.body
    for name in ("Authorization", "Content-Type", "Host", "Impersonate-User"):
        twice = (
            request(headers={name: "Bearer wrong"})[:-2]
            + name.lower().encode()
            + b": other\r\n\r\n"
        )
        refused = await response_status(server, twice)
        assert refused.status == 400
        assert b"more than once" in refused.body


async def test_headers_beyond_the_limit_end_the_connection(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
    for _ in range(9):
        wire.send(b"x" * 16384)
    assert (await wire.answer()).status == 431
    await wire.end()


async def test_repeated_impersonate_group_headers_are_all_used(server: InProcessServer) -> None:
    one = request(headers={"Impersonate-User": "ann", "Impersonate-Group": "a,b"})
    both = one[:-2] + b"impersonate-group: system:masters\r\n\r\n"
    assert (await response_status(server, both)).status == 200
    assert (await response_status(server, one)).status == 403


async def test_headers_of_an_earlier_request_are_not_reused(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    wire.send(request())
    wire.send(request(headers={"Authorization": "Bearer wrong"}))
    wire.send(request(target=f"{WORKLOADS}/none"))
    await wire.answer(2)
    assert [answer.status for answer in wire.answers] == [200, 401, 404]


async def test_an_incomplete_request_of_a_closed_connection_gets_no_response(
    server: InProcessServer,
) -> None:
    wire = Wire(front_of(server))
    wire.send(request("POST", headers={"Content-Length": "10"}) + b"{")
    wire.connection.connection_lost(None)
    await wire.settled()
    assert wire.raw == b""


async def test_a_write_continues_after_its_client_disconnects(server: InProcessServer) -> None:
    wire = Wire(front_of(server))
    server.journal.held = True
    wire.send(request("POST", body=encode(workload())))
    await server.journal.waiting.wait()
    wire.connection.connection_lost(None)
    server.journal.held = False
    server.journal.permit()
    other = await response_status(server, request(target=f"{WORKLOADS}/web"))
    for _ in range(20):
        if other.status == 200:
            break
        await asyncio.sleep(0)
        other = await response_status(server, request(target=f"{WORKLOADS}/web"))
    assert other.status == 200
    assert wire.raw == b""


async def test_damaged_requests_get_at_most_one_response_each_and_no_5xx(
    server: InProcessServer,
) -> None:
    """Except for 501, no request gets a 5xx response, and none raises an exception."""
    random = Random(7)
    body = encode(workload())
    good = [
        request(),
        request("POST", body=body, headers={"Content-Type": "application/json"}),
        request("POST", headers={"Transfer-Encoding": "chunked"}) + chunked(body[:50], body[50:]),
    ]
    for _ in range(1500):
        sent = bytearray(random.choice(good))
        for _ in range(random.randint(1, 6)):
            place = random.randrange(len(sent))
            match random.randrange(3):
                case 0:
                    sent[place] = random.randrange(256)
                case 1:
                    del sent[place : place + random.randint(1, 20)]
                case _:
                    sent[place:place] = random.randbytes(random.randint(1, 5))
        wire = Wire(front_of(server))
        cut = random.randrange(len(sent))
        wire.send(bytes(sent[:cut]))
        if not wire.closed:
            wire.send(bytes(sent[cut:]))
        await wire.settled()
        assert all(answer.status < 500 or answer.status == 501 for answer in wire.answers), bytes(
            sent
        )
        wire.connection.connection_lost(None)
