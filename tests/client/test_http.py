"""Both transports against a real TLS server on loopback."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from aiohttp import web

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request
from datum_compute.api.kinds import NAMESPACE
from datum_compute.client.client import Client
from datum_compute.client.transport import http1 as lean
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.interface import Timeouts
from datum_compute.client.transport.proxied import HttpTransport
from tests.client.authority import Authority, new_authority
from tests.client.serving import server_tls, serving

TOKEN = "very-secret-token"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
WATCH = Request("GET", "/watch", {"watch": "1", "timeoutSeconds": "60"}, HEADERS)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    return server_tls(authority)


Make = type[HttpTransport] | type[Http1Transport]


@pytest.fixture(params=[HttpTransport, Http1Transport], ids=["aiohttp", "lean"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


async def told(request: web.BaseRequest) -> web.Response:
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


async def test_a_request_arrives_whole_and_its_answer_comes_back_whatever_its_status(
    make: Make, authority: Authority, tls: ssl.SSLContext
) -> None:
    async with (
        serving(told, tls) as server,
        make(server, ca_pem=authority.ca_pem) as transport,
    ):
        query = {"labelSelector": "a/b=c,d=e f"}
        answer = await transport.send(Request("POST", "/a/b", query, HEADERS, b"{}"))
    assert answer.status == 422
    assert answer.stream is None
    assert answer.body == (
        b'{"method": "POST", "path": "/a/b", "query": {"labelSelector": "a/b=c,d=e f"}, '
        b'"token": "Bearer very-secret-token", "body": "{}"}'
    )


async def test_a_path_is_sent_as_it_is_written(make: Make) -> None:
    async def raw_path(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.rel_url.raw_path)

    async with serving(raw_path) as server, make(server) as transport:
        assert (await transport.send(Request("GET", "/a/b%2Fc"))).body == b"/a/b%2Fc"


async def test_requests_share_one_connection(
    make: Make, authority: Authority, tls: ssl.SSLContext
) -> None:
    peers = set()

    async def note_peer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async with (
        serving(note_peer, tls) as server,
        make(server, ca_pem=authority.ca_pem) as transport,
    ):
        for _ in range(3):
            await transport.send(Request("GET", "/"))
    assert len(peers) == 1


async def test_a_watch_is_handed_on_as_it_arrives(
    make: Make, authority: Authority, tls: ssl.SSLContext
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
        make(server, ca_pem=authority.ca_pem) as transport,
    ):
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        assert await anext(answer.stream) == b"first\n"
        first_was_read.set()
        assert b"".join([chunk async for chunk in answer.stream]) == b"second\n"


async def test_a_watch_line_may_be_longer_than_any_buffer(make: Make) -> None:
    name = "n" * 3_000_000
    line = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7","name":"%s"}}}\n'

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line % name.encode())
        return response

    async with serving(stream) as server, make(server) as transport:
        client = Client(transport, prefix="", token=TOKEN, agent="test")
        events = [event async for event in client.watch(NAMESPACE, "1")]
    assert [event.object.metadata.name for event in events if event.object] == [name]


async def test_a_refused_watch_is_an_answer_not_a_stream(make: Make) -> None:
    async with serving(told) as server, make(server) as transport:
        answer = await transport.send(WATCH)
    assert (answer.status, answer.stream) == (422, None)


async def test_closing_a_watch_hangs_up(make: Make) -> None:
    hung_up = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        try:
            await asyncio.Event().wait()
        finally:
            hung_up.set()
        return response

    async with serving(stream) as server, make(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        async for _ in answer.stream:
            break
        await answer.stream.aclose()
        async with asyncio.timeout(10):
            await hung_up.wait()
    assert hung_up.is_set()


async def test_a_watch_that_breaks_off_is_unreachable(make: Make) -> None:
    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(broken) as server, make(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        with pytest.raises(Unreachable, match="the connection was lost"):
            async for _ in answer.stream:
                pass


async def test_closing_a_transport_ends_the_watches_that_go_over_it(
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


async def test_a_reader_that_pauses_gets_everything_all_the_same(make: Make) -> None:
    chunk = b"c" * 100_000

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(30):
            await response.write(chunk)
        return response

    async with serving(stream) as server, make(server) as transport:
        answer = await transport.send(WATCH)
        assert answer.stream is not None
        await asyncio.sleep(0.2)
        assert sum([len(piece) async for piece in answer.stream]) == 30 * len(chunk)


async def test_a_connection_that_lay_idle_for_long_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers = set()

    async def note_peer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    monkeypatch.setattr(lean, "KEPT_IDLE_S", 0.0)
    async with serving(note_peer) as server, Http1Transport(server) as transport:
        await transport.send(Request("GET", "/"))
        await transport.send(Request("GET", "/"))
    assert len(peers) == 2


async def test_each_answer_may_take_its_time_and_one_that_does_not_come_is_given_up() -> None:
    """One timer stands for all waits of a connection: that of an earlier one ends no later one."""
    slow_s, asked = 0.15, 0

    async def slowly(_request: web.BaseRequest) -> web.Response:
        nonlocal asked
        asked += 1
        await asyncio.sleep(slow_s if asked < 4 else 60)
        return web.Response()

    timeouts = Timeouts(connect_s=5, read_s=2 * slow_s)
    async with serving(slowly) as server, Http1Transport(server, timeouts=timeouts) as transport:
        for _ in range(3):
            assert (await transport.send(Request("POST", "/"))).status == 200
        with pytest.raises(Unreachable, match="no answer in time"):
            await transport.send(Request("POST", "/"))


async def test_a_foreign_certificate_is_refused(make: Make, tls: ssl.SSLContext) -> None:
    stranger = new_authority().ca_pem
    async with serving(told, tls) as server, make(server, ca_pem=stranger) as transport:
        with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert server in str(caught.value)
    assert "certificate authority" in str(caught.value)


async def test_without_a_ca_the_machine_decides_and_knows_no_test_server(
    make: Make,
    tls: ssl.SSLContext,
) -> None:
    async with serving(told, tls) as server, make(server) as transport:
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await transport.send(Request("GET", "/"))


async def test_verification_is_off_only_when_asked_for(make: Make, tls: ssl.SSLContext) -> None:
    async with serving(told, tls) as server, make(server, insecure=True) as transport:
        assert (await transport.send(Request("GET", "/"))).status == 422


def test_a_certificate_authority_that_is_none_is_refused_at_once(make: Make) -> None:
    with pytest.raises(ValueError, match="not a PEM certificate"):
        make("https://127.0.0.1:1", ca_pem=b"nonsense")


async def test_nobody_listening_is_unreachable_with_host_and_advice(make: Make) -> None:
    async with serving(told) as server:
        pass
    async with make(server) as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert str(caught.value).startswith(f"{server} does not answer: ")
    assert "Check that it is running" in str(caught.value)


async def test_silence_ends_in_unreachable(make: Make) -> None:
    async def silent(_request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    timeouts = Timeouts(connect_s=5, read_s=0.05)
    async with serving(silent) as server, make(server, timeouts=timeouts) as transport:
        with pytest.raises(Unreachable, match="no answer in time"):
            await transport.send(Request("GET", "/"))


async def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else(make: Make) -> None:
    visited = []

    async def redirect(request: web.BaseRequest) -> web.Response:
        visited.append(request.path)
        return web.Response(status=302, headers={"location": "/elsewhere"})

    async with serving(redirect) as server, make(server) as transport:
        with pytest.raises(Unreachable, match="redirect"):
            await transport.send(Request("GET", "/", headers=HEADERS))
    assert visited == ["/"]


async def test_no_token_shows_in_an_error_or_in_what_it_came_from(make: Make) -> None:
    async with serving(told) as server:
        pass
    async with make(server) as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.send(Request("GET", "/", headers=HEADERS))
        shown = repr(transport) + repr(caught.value) + repr(caught.value.__cause__)
    assert TOKEN not in shown
    assert caught.value.__suppress_context__
