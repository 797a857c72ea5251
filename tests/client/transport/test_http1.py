"""The HTTP/1.1 client against real servers on the loopback address."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request
from datum_compute.api.kinds import NAMESPACE
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import (
    Http1Pool,
    Http1Transport,
    HttpEndpoint,
    fetch,
)
from datum_compute.client.transport.http1_connection import HEAD_BYTES_MAX, Http1Error
from datum_compute.client.transport.interface import Timeouts
from tests.client.authority import Authority, new_authority
from tests.client.serving import server_tls, serving
from tests.stream_servers import LOOPBACK, StreamHandler, serve_tcp, serve_unix

GET = Request("GET", "/")
POST = Request("POST", "/")
TOKEN = "very-secret-token"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
WATCH = Request("GET", "/watch", {"watch": "1", "timeoutSeconds": "60"}, HEADERS)


@asynccontextmanager
async def open_pool(
    server: str, *, idle_max_s: float = 60.0, proxy: str = "", unix_socket: str = ""
) -> AsyncIterator[Http1Pool]:
    pool = Http1Pool(
        HttpEndpoint(server, proxy=proxy, unix_socket=unix_socket), idle_max_s=idle_max_s
    )
    try:
        yield pool
    finally:
        await pool.aclose()


async def fetch_from(pool: Http1Pool, request: Request) -> bytes:
    exchange = await pool.open(request)
    try:
        return await exchange.read()
    finally:
        exchange.close()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    return server_tls(authority)


async def echo(request: web.BaseRequest) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": dict(request.query),
            "token": request.headers.get("authorization"),
            "body": (await request.read()).decode(),
        },
        status=422,
    )


async def test_a_request_arrives_complete_and_the_response_returns_with_any_status(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    async with (
        serving(echo, tls) as server,
        Http1Transport(server, ca_pem=authority.ca_pem) as transport,
    ):
        query = {"labelSelector": "a/b=c,d=e f"}
        answer = await transport.send(Request("POST", "/a/b", query, HEADERS, b"{}"))
    assert answer.status == 422
    assert answer.stream is None
    assert answer.body == (
        b'{"method": "POST", "path": "/a/b", "query": {"labelSelector": "a/b=c,d=e f"}, '
        b'"token": "Bearer very-secret-token", "body": "{}"}'
    )


async def test_a_quoted_path_is_sent_unchanged() -> None:
    async def raw_path(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.rel_url.raw_path)

    async with serving(raw_path) as server, Http1Transport(server) as transport:
        assert (await transport.send(Request("GET", "/a/b%2Fc"))).body == b"/a/b%2Fc"


async def test_requests_share_one_connection(authority: Authority, tls: ssl.SSLContext) -> None:
    peers = set()

    async def record_peer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async with (
        serving(record_peer, tls) as server,
        Http1Transport(server, ca_pem=authority.ca_pem) as transport,
    ):
        for _ in range(3):
            await transport.send(Request("GET", "/"))
    assert len(peers) == 1


async def test_a_watch_yields_chunks_as_they_arrive(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    first_was_read = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await first_was_read.wait()
        await response.write(b"second\n")
        return response

    async with (
        serving(stream, tls) as server,
        Http1Transport(server, ca_pem=authority.ca_pem) as transport,
    ):
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        assert await anext(answer.stream) == b"first\n"
        first_was_read.set()
        assert b"".join([chunk async for chunk in answer.stream]) == b"second\n"


async def test_a_watch_line_may_be_longer_than_the_read_buffer() -> None:
    name = "n" * 3_000_000
    line = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7","name":"%s"}}}\n'

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line % name.encode())
        return response

    async with serving(stream) as server, Http1Transport(server) as transport:
        client = Client(transport, prefix="", token=TOKEN, agent="test")
        events = [event async for event in client.watch(NAMESPACE, "1")]
    assert [event.object.metadata.name for event in events if event.object] == [name]


async def test_a_refused_watch_has_a_body_and_no_stream() -> None:
    async with serving(echo) as server, Http1Transport(server) as transport:
        answer = await transport.send(WATCH)
    assert (answer.status, answer.stream) == (422, None)


async def test_closing_a_watch_closes_its_connection() -> None:
    is_closed = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        try:
            await asyncio.Event().wait()
        finally:
            is_closed.set()
        return response

    async with serving(stream) as server, Http1Transport(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        async for _ in answer.stream:
            break
        await answer.stream.aclose()
        async with asyncio.timeout(10):
            await is_closed.wait()
    assert is_closed.is_set()


async def test_a_watch_raises_unreachable_when_the_connection_is_lost() -> None:
    async def abort(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(abort) as server, Http1Transport(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        with pytest.raises(Unreachable, match="the connection was lost"):
            async for _ in answer.stream:
                pass


async def test_closing_a_transport_ends_its_watches(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.Event().wait()
        return response

    async with serving(stream, tls) as server:
        transport = Http1Transport(server, ca_pem=authority.ca_pem)
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        assert await anext(answer.stream) == b"first\n"
        waiting = asyncio.create_task(anext(answer.stream))
        await asyncio.sleep(0)
        await transport.aclose()
        with pytest.raises(Unreachable, match="the connection was lost"):
            await asyncio.wait_for(waiting, 10)


async def test_a_closed_transport_leaves_no_open_socket(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    """The event loop may end at once; an open socket would then be a ResourceWarning."""
    async with serving(echo, tls) as server:
        before = open_sockets()
        async with Http1Transport(server, ca_pem=authority.ca_pem) as transport:
            await transport.send(GET)
            both_ends = open_sockets() - before
        assert len(both_ends) == 2
        assert len(both_ends & open_sockets()) <= 1, "at most the server's end is still open"


def open_sockets() -> set[str]:
    """Return the sockets of this process, as inodes."""
    links = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return {link for link in links if link.startswith("socket:")}


async def test_a_slow_reader_receives_the_whole_stream() -> None:
    chunk = b"c" * 100_000

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(30):
            await response.write(chunk)
        return response

    async with serving(stream) as server, Http1Transport(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        await asyncio.sleep(0.2)
        assert sum([len(piece) async for piece in answer.stream]) == 30 * len(chunk)


async def test_a_connection_that_was_idle_for_too_long_is_not_reused() -> None:
    peers = set()

    async def record_peer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async with serving(record_peer) as server, open_pool(server, idle_max_s=0.0) as pool:
        for _ in range(2):
            await fetch_from(pool, GET)
    assert len(peers) == 2


async def test_the_read_timeout_starts_again_for_each_response() -> None:
    """One timer serves all reads of a connection. An earlier read must not end a later one."""
    slow_s, requests = 0.15, 0

    async def respond_slowly(_request: web.BaseRequest) -> web.Response:
        nonlocal requests
        requests += 1
        await asyncio.sleep(slow_s if requests < 4 else 60)
        return web.Response()

    timeouts = Timeouts(connect_s=5, read_s=2 * slow_s)
    async with (
        serving(respond_slowly) as server,
        Http1Transport(server, timeouts=timeouts) as transport,
    ):
        for _ in range(3):
            assert (await transport.send(Request("POST", "/"))).status == 200
        with pytest.raises(Unreachable, match="no response in time"):
            await transport.send(Request("POST", "/"))


async def test_a_certificate_of_another_authority_is_refused(tls: ssl.SSLContext) -> None:
    other_ca = new_authority().ca_pem
    async with serving(echo, tls) as server, Http1Transport(server, ca_pem=other_ca) as transport:
        with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert server in str(caught.value)
    assert "certificate authority" in str(caught.value)


async def test_without_an_authority_those_of_the_system_are_trusted(
    tls: ssl.SSLContext,
) -> None:
    async with serving(echo, tls) as server, Http1Transport(server) as transport:
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await transport.send(Request("GET", "/"))


async def test_insecure_disables_verification(tls: ssl.SSLContext) -> None:
    async with serving(echo, tls) as server, Http1Transport(server, insecure=True) as transport:
        assert (await transport.send(Request("GET", "/"))).status == 422


def test_an_invalid_certificate_authority_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not a PEM certificate"):
        Http1Transport("https://127.0.0.1:1", ca_pem=b"nonsense")


async def test_a_refused_connection_is_reported_with_server_and_hint() -> None:
    async with serving(echo) as server:
        pass
    async with Http1Transport(server) as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert str(caught.value).startswith(f"cannot reach {server}: ")
    assert "Check that the server is running" in str(caught.value)


async def test_a_silent_server_is_unreachable_after_the_read_timeout() -> None:
    async def silent(_request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    timeouts = Timeouts(connect_s=5, read_s=0.05)
    async with serving(silent) as server, Http1Transport(server, timeouts=timeouts) as transport:
        with pytest.raises(Unreachable, match="no response in time"):
            await transport.send(Request("GET", "/"))


async def test_a_redirect_is_not_followed() -> None:
    visited = []

    async def redirect(request: web.BaseRequest) -> web.Response:
        visited.append(request.path)
        return web.Response(status=302, headers={"location": "/elsewhere"})

    async with serving(redirect) as server, Http1Transport(server) as transport:
        with pytest.raises(Unreachable, match="redirect"):
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert visited == ["/"]


async def test_no_token_is_in_an_error_or_its_cause() -> None:
    async with serving(echo) as server:
        pass
    async with Http1Transport(server) as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
        shown = repr(transport) + repr(caught.value) + repr(caught.value.__cause__)
    assert TOKEN not in shown
    assert caught.value.__suppress_context__


# --- responses, byte by byte


def respond_with(*parts: bytes) -> StreamHandler:
    """Answer every request of a connection with ``parts``, each in a packet of its own."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)

    return respond


def respond_and_close(response: bytes) -> StreamHandler:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)

    return respond


@asynccontextmanager
async def pool_to(handler: StreamHandler) -> AsyncIterator[Http1Pool]:
    async with serve_tcp(handler) as port, open_pool(f"http://{LOOPBACK}:{port}") as pool:
        yield pool


RESPONSES = {
    "content-length": (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",),
    "split head": (b"HTTP/1.1 200 OK\r\nconte", b"nt-length: 4\r", b"\n\r\nbo", b"dy"),
    "chunked": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\nbo\r\n2\r",
        b"\ndy\r\n0\r\ntrailer: x\r\n\r\n",
    ),
    "after an interim response": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody",
    ),
}


@pytest.mark.parametrize("parts", RESPONSES.values(), ids=RESPONSES.keys())
async def test_a_response_is_read_from_packets_of_any_size(parts: tuple[bytes, ...]) -> None:
    async with pool_to(respond_with(*parts)) as pool:
        for _ in range(2):  # the second response arrives on the same connection
            exchange = await pool.open(GET)
            assert (exchange.status, await exchange.read()) == (200, b"body")
            exchange.close()


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with pool_to(respond_and_close(b"HTTP/1.1 200 OK\r\n\r\nbody")) as pool:
        assert await fetch_from(pool, GET) == b"body"


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nbody",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    ],
)
async def test_an_incomplete_or_invalid_response_is_an_error(response: bytes) -> None:
    async with pool_to(respond_and_close(response)) as pool:
        with pytest.raises((Http1Error, OSError)):
            await fetch_from(pool, GET)


async def test_the_head_of_a_response_is_bounded() -> None:
    head = b"HTTP/1.1 200 OK\r\nx: " + b"x" * (HEAD_BYTES_MAX + 1)
    async with pool_to(respond_with(head)) as pool:
        with pytest.raises(Http1Error, match="too large"):
            await pool.open(GET)


async def test_the_response_to_head_has_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nx-stat: y\r\n\r\n"
    async with pool_to(respond_with(head)) as pool:
        exchange = await pool.open(Request("HEAD", "/"))
        assert (exchange.headers["x-stat"], await exchange.read()) == ("y", b"")
        exchange.close()
        exchange = await pool.open(Request("HEAD", "/"))
        assert exchange.status == 200
        exchange.close()


async def test_a_body_is_cut_off_at_the_limit_and_its_connection_closed() -> None:
    response = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000
    async with serve_tcp(respond_with(response)) as port:
        found = await fetch("GET", f"http://{LOOPBACK}:{port}/a?b=c", bytes_max=10)
    assert (found.status, found.body) == (200, b"x" * 10)


async def test_a_response_that_was_not_read_does_not_reach_the_next_request() -> None:
    response = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
    async with pool_to(respond_with(response)) as pool:
        exchange = await pool.open(GET)
        await asyncio.sleep(0.05)  # the whole body has arrived
        exchange.close()
        assert await fetch_from(pool, GET) == b"body"


@pytest.mark.parametrize("header", ["a\r\nx: y", "a\nb"])
async def test_a_header_with_a_line_break_is_not_sent(header: str) -> None:
    async with pool_to(respond_with(b"")) as pool:
        with pytest.raises(ValueError, match="line break"):
            await pool.open(Request("GET", "/", headers={"x": header}))


def close_after_one_response(accepted: list[int]) -> StreamHandler:
    """Close each connection when its second request arrives, except for the last connection."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(1)
        is_last = len(accepted) > 1
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            if not is_last:
                await reader.readuntil(b"\r\n\r\n")
                return

    return respond


async def test_a_get_is_sent_again_when_the_server_closed_the_idle_connection() -> None:
    accepted: list[int] = []
    async with pool_to(close_after_one_response(accepted)) as pool:
        await fetch_from(pool, GET)
        await fetch_from(pool, GET)
    assert len(accepted) == 2


async def test_a_post_is_not_sent_again() -> None:
    accepted: list[int] = []
    async with pool_to(close_after_one_response(accepted)) as pool:
        await fetch_from(pool, GET)
        with pytest.raises((Http1Error, OSError)):
            await fetch_from(pool, POST)
    assert len(accepted) == 1


# --- unix sockets, upgrades and proxies

UPGRADE = Request("POST", "/", headers={"connection": "Upgrade", "upgrade": "tcp"}, body=b"{}")


async def upgrade_and_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    head = b"HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\n"
    writer.write(head + b"ready ")  # raw bytes may arrive together with the head
    while data := await reader.read(100):
        writer.write(data)
    writer.write(b" end")


async def test_an_upgraded_connection_carries_raw_bytes_in_both_directions(tmp_path: Path) -> None:
    socket = str(tmp_path / "server.sock")
    async with (
        serve_unix(upgrade_and_echo, socket),
        open_pool("http://engine", unix_socket=socket) as pool,
    ):
        connection = (await pool.open(UPGRADE)).upgrade()
        await connection.write(b"hello")
        connection.close_input()
        received = b""
        while data := await connection.read():
            received += data
        connection.close()
    assert received == b"ready hello end"


async def test_a_response_without_upgrade_keeps_the_connection_in_http(tmp_path: Path) -> None:
    socket = str(tmp_path / "server.sock")
    refused = b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone"
    async with (
        serve_unix(respond_and_close(refused), socket),
        open_pool("http://engine", unix_socket=socket) as pool,
    ):
        exchange = await pool.open(UPGRADE)
        assert (exchange.status, await exchange.read()) == (404, b"gone")
        exchange.close()


async def test_a_proxy_receives_plain_http_with_the_whole_address() -> None:
    received: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with (
        serve_tcp(proxy) as port,
        open_pool("http://127.0.0.2:81", proxy=f"http://user:pa%40ss@{LOOPBACK}:{port}") as pool,
    ):
        await fetch_from(pool, Request("GET", "/a"))
    lines = received[0].decode().split("\r\n")
    assert lines[0] == "GET http://127.0.0.2:81/a HTTP/1.1"
    assert "proxy-authorization: Basic dXNlcjpwYUBzcw==" in lines  # user:pa@ss
