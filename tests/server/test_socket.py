"""The whole front over a real socket: uvicorn on loopback, aiohttp as the client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import uvicorn
from yarl import URL

from datum_compute.api.codec import JsonObject, decode
from datum_compute.server.asgi import AsgiApp
from tests.server.running_server import TOKEN, WORKLOADS, Server, running_server, workload

ENOUGH_S = 30


class QuietServer(uvicorn.Server):
    """Leaves the signals of the test process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Front:
    server: Server
    session: aiohttp.ClientSession
    uvicorn: QuietServer
    serving: asyncio.Task[None]
    address: str
    ended: asyncio.Queue[str]  # requests that are over, in order


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    ended: asyncio.Queue[str] = asyncio.Queue()
    async with running_server() as server:
        app = AsgiApp(server.api)

        async def followed(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            watches = b"watch" in scope["query_string"]
            ended.put_nowait(f"{scope['method']} watch" if watches else scope["method"])

        config = uvicorn.Config(
            followed, http="httptools", ws="none", log_level="warning", lifespan="off"
        )
        web = QuietServer(config)
        serving = asyncio.create_task(web.serve(sockets=[bound]))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(address, headers=headers) as session:
            yield Front(server, session, web, serving, address, ended)
        server.api.close_streams()
        web.should_exit = True
        await serving


async def next_event(response: aiohttp.ClientResponse) -> JsonObject:
    async with asyncio.timeout(ENOUGH_S):
        event: JsonObject = decode(await response.content.readline())
    return event


async def test_create_list_watch_and_leave(front: Front) -> None:
    async with front.session.post(WORKLOADS, json=workload()) as created:
        assert created.status == 201
        assert created.headers["Content-Type"] == "application/json"
    async with front.session.get(WORKLOADS) as listed:
        version = (await listed.json())["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}
    async with front.session.get(WORKLOADS, params=query) as watch:
        assert watch.headers["Transfer-Encoding"] == "chunked"
        async with front.session.delete(f"{WORKLOADS}/web") as deleted:
            assert (await deleted.json())["status"] == "Success"
        assert (await next_event(watch))["type"] == "DELETED"
        assert front.server.api.streams.waiting == 1
        watch.close()
    async with asyncio.timeout(ENOUGH_S):
        assert [await front.ended.get() for _ in range(4)][-1] == "GET watch"
    assert front.server.api.streams.waiting == 0


async def test_shutdown_is_not_held_up_by_an_open_watch(front: Front) -> None:
    async with front.session.get(WORKLOADS, params={"watch": "1"}) as watch:
        assert watch.status == 200
        front.server.api.close_streams()
        front.uvicorn.should_exit = True
        async with asyncio.timeout(ENOUGH_S):
            await front.serving
            assert await watch.content.read() == b""


async def test_head_has_the_headers_of_get_and_no_body(front: Front) -> None:
    async with front.session.get("/version") as got:
        body = await got.read()
    async with front.session.head("/version") as head:
        assert (head.status, await head.read()) == (200, b"")
        assert head.headers["Content-Length"] == str(len(body))


async def test_options_says_what_is_allowed(front: Front) -> None:
    async with front.session.options(WORKLOADS) as options:
        assert (options.status, options.headers["Allow"]) == (200, "GET, POST, DELETE")


async def test_a_body_over_the_limit_is_answered(front: Front) -> None:
    too_much = io.BytesIO(b"x" * (4 * 1024 * 1024))
    async with front.session.post(WORKLOADS, data=too_much, expect100=True) as refused:
        assert refused.status == 413
        assert (await refused.json())["reason"] == "RequestEntityTooLarge"


async def test_percent_encoding_is_decoded_once(front: Front) -> None:
    for path, status in ((f"{WORKLOADS}/%2561", 404), ("/%61pi", 200), ("/api%00", 404)):
        async with front.session.get(URL(front.address + path, encoded=True)) as response:
            assert response.status == status
