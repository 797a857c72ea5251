"""The ASGI adapter, spoken to without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from datum_compute.api.codec import decode, encode
from datum_compute.server.asgi import BODY_BYTES_MAX, AsgiApp
from datum_compute.testing.virtual_loop import run_virtual
from tests.server.running_server import TOKEN, WORKLOADS, Server, running_server, workload

Message = dict[str, Any]


class Client:
    """One request to the application, and what it sent back."""

    def __init__(self, *messages: Message) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.sent: list[Message] = []
        self.arrived = asyncio.Event()
        self.blocked = False

    async def receive(self) -> Message:
        return await self.incoming.get()

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))
        self.arrived.set()
        if self.blocked:
            await asyncio.Event().wait()
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.incoming.put_nowait({"type": "http.disconnect"})  # as uvicorn does

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    async def lines(self, count: int) -> list[bytes]:
        while self.body.count(b"\n") < count:
            self.arrived.clear()
            await self.arrived.wait()
        return self.body.splitlines()


def part(body: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(method: str = "GET", path: str = WORKLOADS, query: str = "", **headers: str) -> Message:
    sent = {"Authorization": f"Bearer {TOKEN}", **headers}
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(n.encode(), v.encode()) for n, v in sent.items()],
    }


async def call(server: Server, request: Message, *messages: Message) -> Client:
    client = Client(*(messages or (part(),)))
    async with asyncio.timeout(30):
        await AsgiApp(server.api)(request, client.receive, client.send)
    return client


async def test_a_request_and_its_answer(server: Server) -> None:
    body = encode(workload())
    created = await call(server, scope("POST"), part(body[:10], more=True), part(body[10:]))
    assert created.status == 201
    assert created.headers[b"content-type"] == b"application/json"
    assert created.headers[b"content-length"] == str(len(created.body)).encode()
    assert decode(created.body)["metadata"]["name"] == "web"


async def test_a_body_over_the_limit_is_413_whether_declared_or_not(server: Server) -> None:
    declared = scope("POST", **{"Content-Length": str(BODY_BYTES_MAX + 1)})
    honest = await call(server, declared, part(b"x", more=True))
    half = part(b"x" * (BODY_BYTES_MAX // 2 + 1), more=True)
    hidden = await call(server, scope("POST"), half, half)
    for client in (honest, hidden):
        status = decode(client.body)
        assert (client.status, status["reason"]) == (413, "RequestEntityTooLarge")
        assert client.headers[b"connection"] == b"close"


async def test_a_body_at_the_limit_is_read(server: Server) -> None:
    body = encode(workload()).ljust(BODY_BYTES_MAX)
    assert (await call(server, scope("POST"), part(body))).status == 201


@pytest.mark.parametrize("length", ["", "x", "-1", "\u00b2", "9" * 5000])
async def test_an_odd_content_length_does_no_harm(server: Server, length: str) -> None:
    request = scope("POST")
    request["headers"].append((b"content-length", length.encode("utf-8")))
    assert (await call(server, request, part(encode(workload())))).status in (201, 413)


async def test_a_client_that_leaves_in_the_middle_gets_no_answer(server: Server) -> None:
    gone = {"type": "http.disconnect"}
    client = await call(server, scope("POST"), part(b"{", more=True), gone)
    assert client.sent == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("watch", 200),
        ("labelSelector=a%3Db&labelSelector=%28", 200),
        ("labelSelector=%ff%fe", 400),
        ("limit=%31", 200),
        ("&&&==&%", 200),
        ("&".join(["a=b"] * 200), 400),
    ],
)
async def test_odd_queries_are_answered(server: Server, query: str, status: int) -> None:
    server.api.close_streams()
    client = await call(server, scope(query=query))
    assert client.status == (503 if query == "watch" else status)


async def test_a_watch_sends_its_headers_at_once_and_ends_when_the_client_goes(
    server: Server,
) -> None:
    await server.json("POST", WORKLOADS, workload("first"))
    client = Client(part())
    watching = asyncio.ensure_future(
        AsgiApp(server.api)(scope(query="watch=1"), client.receive, client.send)
    )
    assert len(await client.lines(1)) == 1
    assert set(client.headers) == {b"content-type", b"audit-id"}
    await server.json("POST", WORKLOADS, workload("second"))
    lines = await client.lines(2)
    assert [decode(line)["object"]["metadata"]["name"] for line in lines] == ["first", "second"]
    client.incoming.put_nowait({"type": "http.disconnect"})
    async with asyncio.timeout(30):
        await watching
    assert server.api.streams.waiting == 0


async def test_many_first_events_go_out_in_few_chunks(server: Server) -> None:
    for number in range(100):
        await server.json("POST", WORKLOADS, workload(f"w{number}"))
    server_end = asyncio.get_running_loop().call_later(0.2, server.api.close_streams)
    client = await call(server, scope(query="watch=1"))
    server_end.cancel()
    assert client.body.count(b"\n") == 100
    assert len(client.sent) < 12


async def test_closing_the_streams_completes_open_responses(server: Server) -> None:
    client = Client(part())
    watching = asyncio.ensure_future(
        AsgiApp(server.api)(scope(query="watch=1"), client.receive, client.send)
    )
    await client.arrived.wait()
    await asyncio.sleep(0)
    server.api.close_streams()
    async with asyncio.timeout(30):
        await watching
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_closing_the_streams_frees_a_watch_whose_client_does_not_read(
    server: Server,
) -> None:
    client = Client(part())
    client.blocked = True
    watching = asyncio.ensure_future(
        AsgiApp(server.api)(scope(query="watch=1"), client.receive, client.send)
    )
    await client.arrived.wait()
    server.api.close_streams()
    async with asyncio.timeout(30):
        await watching
    assert len(client.sent) == 1


def virtual(scenario: Callable[[Server], Any]) -> None:
    async def main(_: object) -> None:
        async with running_server() as server:
            await scenario(server)

    run_virtual(Random(3), main)


def test_a_body_that_never_comes_is_given_up() -> None:
    async def scenario(server: Server) -> None:
        client = Client(part(b"{", more=True))
        async with asyncio.timeout(100):
            await AsgiApp(server.api)(scope("POST"), client.receive, client.send)
        assert client.status == 400

    virtual(scenario)


def test_a_client_that_takes_nothing_is_given_up() -> None:
    async def scenario(server: Server) -> None:
        client = Client(part())
        client.blocked = True
        async with asyncio.timeout(100):
            await AsgiApp(server.api)(scope(query="watch=1"), client.receive, client.send)
        assert len(client.sent) == 1

    virtual(scenario)


async def test_lifespan_and_websockets_are_answered(server: Server) -> None:
    client = Client({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    await AsgiApp(server.api)({"type": "lifespan"}, client.receive, client.send)
    assert [message["type"] for message in client.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert server.api.streams.closed
    socket = Client()
    await AsgiApp(server.api)({"type": "websocket"}, socket.receive, socket.send)
    assert socket.sent[0]["type"] == "websocket.close"
