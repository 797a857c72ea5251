"""The HTTP server on a real socket, with and without TLS, with aiohttp as the client."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.app.certificates import ensure_certificate
from datum_compute.server.http.listen import api_tls_context, bind_listener
from datum_compute.server.http.server import HttpServer
from testkit.api_server.running_server import (
    TOKEN,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)
from tests.server.http.wire import front_of

ENOUGH_S = 30


@dataclass
class Port:
    server: InProcessServer
    session: aiohttp.ClientSession
    front: HttpServer
    address: str


@asynccontextmanager
async def serve(folder: Path | None) -> AsyncIterator[Port]:
    """Serve with TLS and the certificate of a folder, or without TLS."""
    tls, connector = None, aiohttp.TCPConnector()
    if folder is not None:
        files = ensure_certificate(folder, datetime.now(UTC))
        trusted = ssl.create_default_context(cafile=str(files.authority))
        tls, connector = api_tls_context(files), aiohttp.TCPConnector(ssl=trusted)
    with bind_listener(0) as bound:
        scheme = "https" if tls else "http"
        address = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with running_server() as server:
            front = front_of(server)
            await front.start(bound, tls)
            async with aiohttp.ClientSession(
                address, headers=headers, connector=connector
            ) as session:
                yield Port(server, session, front, address)
            server.api.close_streams()
            await front.stop()
            assert front.connections == 0


@pytest.fixture(params=["plain", "TLS"])
async def port(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Port]:
    async with serve(tmp_path if request.param == "TLS" else None) as found:
        yield found


async def next_event(response: aiohttp.ClientResponse) -> JsonObject:
    async with asyncio.timeout(ENOUGH_S):
        event: JsonObject = decode(await response.content.readline())
    return event


async def test_create_list_and_watch_over_one_server(port: Port) -> None:
    async with port.session.post(WORKLOADS, json=workload()) as created:
        assert created.status == 201
        assert created.headers["Content-Type"] == "application/json"
    async with port.session.get(WORKLOADS) as listed:
        version = (await listed.json())["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version}
    async with port.session.get(WORKLOADS, params=query) as watch:
        assert watch.headers["Transfer-Encoding"] == "chunked"
        async with port.session.delete(f"{WORKLOADS}/web") as deleted:
            assert (await deleted.json())["status"] == "Success"
        assert (await next_event(watch))["type"] == "DELETED"
        assert port.server.api.long_requests.waiting == 1
        watch.close()
    async with asyncio.timeout(ENOUGH_S):
        while port.server.api.long_requests.waiting:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    assert port.server.api.long_requests.waiting == 0


async def test_an_open_watch_does_not_delay_the_shutdown(port: Port) -> None:
    async with port.session.get(WORKLOADS, params={"watch": "1"}) as watch:
        assert watch.status == 200
        port.server.api.close_streams()
        async with asyncio.timeout(ENOUGH_S):
            await port.front.stop()
            assert await watch.content.read() == b""


async def test_head_has_the_headers_of_get_and_no_body(port: Port) -> None:
    async with port.session.get("/version") as got:
        body = await got.read()
    async with port.session.head("/version") as head:
        assert (head.status, await head.read()) == (200, b"")
        assert head.headers["Content-Length"] == str(len(body))


async def test_options_lists_the_allowed_methods(port: Port) -> None:
    async with port.session.options(WORKLOADS) as options:
        assert (options.status, options.headers["Allow"]) == (200, "GET, POST, DELETE")


async def test_a_body_over_the_limit_gets_a_response(port: Port) -> None:
    too_much = io.BytesIO(b"x" * (4 * 1024 * 1024))
    async with port.session.post(WORKLOADS, data=too_much, expect100=True) as refused:
        assert refused.status == 413
        assert (await refused.json())["reason"] == "RequestEntityTooLarge"


async def test_percent_encoding_is_decoded_once(port: Port) -> None:
    for path, status in ((f"{WORKLOADS}/%2561", 404), ("/%61pi", 200), ("/api%00", 404)):
        async with port.session.get(URL(port.address + path, encoded=True)) as response:
            assert response.status == status


async def test_a_client_that_sends_a_whole_rejected_body_reads_the_response(port: Port) -> None:
    too_much = io.BytesIO(b"x" * (8 * 1024 * 1024))
    async with port.session.post(WORKLOADS, data=too_much) as refused:
        assert refused.status == 413


async def test_a_large_list_is_received_completely(port: Port) -> None:
    note = {"note": "x" * 200_000}
    for number in range(30):
        await port.server.json("POST", WORKLOADS, workload(f"w{number}", annotations=note))
    async with port.session.get(WORKLOADS) as listed:
        assert len((await listed.json())["items"]) == 30


async def test_large_events_of_a_watch_are_received_completely(port: Port) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    sizes = [900_000, 10, 40_000, 1_000_000, 500]
    for number, size_bytes in enumerate(sizes):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
        await port.server.json("POST", path, {**body, "data": {"a": "x" * size_bytes}})
    received = b""
    async with asyncio.timeout(ENOUGH_S), port.session.get(path, params={"watch": "1"}) as watch:
        while received.count(b"\n") < len(sizes):
            received += await watch.content.readany()
        watch.close()
    found = [decode(line)["object"] for line in received.splitlines()]
    assert [len(each["data"]["a"]) for each in found] == sizes
    assert [each["metadata"]["name"] for each in found] == [f"c{n}" for n in range(len(sizes))]
