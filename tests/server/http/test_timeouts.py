"""Timeouts of connections, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from datum_compute.api.meta.codec import encode
from datum_compute.server.http.connection import BODY_S, HEAD_S, IDLE_S, SEND_S
from datum_compute.server.http.server import STOP_S
from testkit.api_server.running_server import WORKLOADS, InProcessServer, running_server, workload
from testkit.sim.loop import run_virtual
from tests.server.http.wire import Wire, front_of, request

MARGIN_S = 2.5


def virtual(scenario: Callable[[InProcessServer], Coroutine[Any, Any, None]]) -> None:
    async def main(_: object) -> None:
        async with running_server() as server:
            await scenario(server)

    run_virtual(Random(3), main)


async def is_closed_after(wire: Wire, seconds: float) -> bool:
    """Return whether the connection is closed after this time and not before."""
    await asyncio.sleep(seconds - MARGIN_S)
    was_open = not wire.is_closed()
    await asyncio.sleep(2 * MARGIN_S)
    return was_open and wire.is_closed()


def test_a_connection_without_a_request_is_closed() -> None:
    async def scenario(server: InProcessServer) -> None:
        assert await is_closed_after(Wire(front_of(server)), HEAD_S)

    virtual(scenario)


def test_partial_headers_do_not_extend_the_deadline() -> None:
    async def scenario(server: InProcessServer) -> None:
        wire = Wire(front_of(server))
        wire.send(b"GET /version HTTP/1.1\r\n")
        for _ in range(10):
            await asyncio.sleep(HEAD_S / 10)
            wire.send(b"X-Drip: x\r\n")
        await asyncio.sleep(MARGIN_S)
        assert wire.is_closed()

    virtual(scenario)


def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    async def scenario(server: InProcessServer) -> None:
        wire = Wire(front_of(server))
        for number in range(2):
            wire.send(request(target="/version"))
            await wire.answer(number)
            await asyncio.sleep(IDLE_S - MARGIN_S)
        assert not wire.is_closed()
        wire.send(request(target="/version"))
        assert await is_closed_after(wire, IDLE_S)

    virtual(scenario)


def test_a_connection_whose_body_does_not_arrive_is_closed() -> None:
    async def scenario(server: InProcessServer) -> None:
        wire = Wire(front_of(server))
        wire.send(request("POST", headers={"Content-Length": "1000"}) + b"{")
        for _ in range(10):
            await asyncio.sleep(BODY_S / 10)
            wire.send(b" ")
        answer = await wire.answer()
        assert (answer.status, answer.reason) == (400, "BadRequest")
        await asyncio.sleep(MARGIN_S)
        assert wire.is_closed()

    virtual(scenario)


def test_a_connection_whose_client_does_not_read_is_closed() -> None:
    async def scenario(server: InProcessServer) -> None:
        for target in ("/version", f"{WORKLOADS}?watch=1"):
            wire = Wire(front_of(server))
            wire.takes = False
            wire.send(request(target=target))
            assert await is_closed_after(wire, SEND_S)
            assert wire.aborted
        assert server.api.long_requests.waiting == 0

    virtual(scenario)


def test_a_watch_and_a_slow_write_have_no_deadline() -> None:
    async def scenario(server: InProcessServer) -> None:
        front = front_of(server)
        watching, writing = Wire(front), Wire(front)
        watching.send(request(target=f"{WORKLOADS}?watch=1"))
        server.journal.held = True
        writing.send(request("POST", body=encode(workload())))
        await asyncio.sleep(1000)
        assert not watching.closed
        assert not writing.closed
        server.journal.held = False
        server.journal.permit()
        assert (await writing.answer()).status == 201
        assert len(await watching.lines(1)) == 1

    virtual(scenario)


def test_a_client_may_finish_sending_a_rejected_request() -> None:
    async def scenario(server: InProcessServer) -> None:
        wire = Wire(front_of(server))
        wire.send(b"nonsense\r\n\r\n")
        assert (await wire.answer()).status == 400
        assert not wire.is_closed()
        wire.send(b"more nonsense")
        await asyncio.sleep(MARGIN_S)
        assert wire.is_closed()
        assert len(wire.answers) == 1

    virtual(scenario)


def test_stop_completes_open_requests_and_closes_idle_connections() -> None:
    async def scenario(server: InProcessServer) -> None:
        front = front_of(server)
        idle, writing, hanging = Wire(front), Wire(front), Wire(front)
        hanging.takes = False
        idle.send(request(target="/version"))
        server.journal.held = True
        writing.send(request("POST", body=encode(workload())))
        stopping = asyncio.ensure_future(front.stop())
        await asyncio.sleep(STOP_S / 2)
        assert idle.is_closed()
        assert not stopping.done()
        server.journal.held = False
        server.journal.permit()
        answer = await writing.answer()
        assert (answer.status, answer.headers["connection"]) == (201, "close")
        await stopping
        assert front.connections == 0

    virtual(scenario)


def test_stop_ends_within_its_timeout_if_clients_do_not_read() -> None:
    async def scenario(server: InProcessServer) -> None:
        front = front_of(server)
        wire = Wire(front)
        server.journal.held = True
        wire.send(request("POST", body=encode(workload())))
        begun_s = asyncio.get_running_loop().time()
        await front.stop()
        assert asyncio.get_running_loop().time() - begun_s <= STOP_S
        assert wire.aborted
        server.journal.held = False
        server.journal.permit()
        await asyncio.sleep(1)

    virtual(scenario)
