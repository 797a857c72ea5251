"""Connections that leave HTTP: bytes both ways, and every way in which that ends."""

from __future__ import annotations

import asyncio
from random import Random

from datum_compute.api.http import Duplex, Request, Response
from datum_compute.server.http.connection import SEND_S
from datum_compute.server.http.response_writer import BUFFER_BYTES_MAX, WRITE_BYTES_MAX
from datum_compute.server.http.server import HttpServer
from testkit.sim.loop import run_virtual
from tests.server.http.wire import Wire

UPGRADE = b"GET /talk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
PLAIN = b"GET /talk HTTP/1.1\r\nhost: x\r\n\r\n"


class Echo:
    """Agrees to every upgrade, and says everything again until the word ``end``."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.has_ended = False

    async def dispatch(self, request: Request) -> Response:
        if "upgrade" not in request.headers:
            return Response(200, b"{}")
        return Response(101, headers={"upgrade": "echo"}, switched=self.talk)

    async def talk(self, duplex: Duplex) -> None:
        while data := await duplex.read():
            self.heard.append(data)
            await duplex.write(data)
            if b"end" in data:
                break
        self.has_ended = True


def echoing() -> tuple[Echo, Wire]:
    echo = Echo()
    return echo, Wire(HttpServer(echo.dispatch, lambda: 0.0))


async def test_bytes_go_both_ways_also_those_sent_with_the_question() -> None:
    _, wire = echoing()
    wire.send(UPGRADE + b"first ")
    await wire.settled()
    wire.send(b"second ")
    await wire.settled()
    head, _, rest = wire.raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"connection: upgrade" in head
    assert rest == b"first second "
    assert not wire.closed


async def test_the_connection_closes_when_the_talk_ends() -> None:
    echo, wire = echoing()
    wire.send(UPGRADE + b"the end")
    await wire.end()
    assert echo.has_ended
    assert wire.raw.endswith(b"the end")


async def test_a_client_that_goes_ends_the_talk() -> None:
    echo, wire = echoing()
    wire.send(UPGRADE)
    await wire.settled()
    wire.connection.connection_lost(None)
    await wire.settled()
    assert echo.has_ended
    assert echo.heard == []


async def test_a_client_that_goes_before_the_answer_is_noticed_by_who_talks() -> None:
    echo, wire = echoing()
    wire.send(UPGRADE)
    wire.connection.connection_lost(None)
    await wire.settled()
    assert echo.heard == []


async def test_a_port_that_stops_ends_the_talk() -> None:
    echo = Echo()
    front = HttpServer(echo.dispatch, lambda: 0.0)
    wire = Wire(front)
    wire.send(UPGRADE)
    await wire.settled()
    await front.stop()
    assert echo.has_ended


async def test_a_request_before_it_is_answered_first_and_one_after_it_is_no_request() -> None:
    echo, wire = echoing()
    wire.send(PLAIN + UPGRADE)
    await wire.settled()
    wire.send(PLAIN)
    await wire.settled()
    assert wire.raw.count(b"HTTP/1.1 200") == 1
    assert echo.heard == [PLAIN]


async def test_no_more_is_taken_from_a_client_than_somebody_reads() -> None:
    class Deaf(Echo):
        async def talk(self, duplex: Duplex) -> None:
            await duplex.write(b"hello")
            await never

    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wire = Wire(HttpServer(Deaf().dispatch, lambda: 0.0))
    wire.send(UPGRADE)
    await wire.settled()
    wire.send(b"x" * (BUFFER_BYTES_MAX + 1))
    await wire.settled()
    assert not wire.reading
    never.set_result(None)
    await wire.end()


def test_a_client_that_does_not_read_cannot_keep_a_talk_open_that_has_ended() -> None:
    async def scenario(_: object) -> None:
        _, wire = echoing()
        wire.send(UPGRADE)
        await wire.settled()
        wire.takes = False
        wire.send(b"x" * (3 * WRITE_BYTES_MAX) + b"end")
        await wire.settled()
        assert not wire.closed  # the client has time to read the rest
        await asyncio.sleep(SEND_S + 2)
        assert wire.aborted

    run_virtual(Random(3), scenario)


async def test_the_rest_of_a_talk_that_has_ended_arrives() -> None:
    _, wire = echoing()
    wire.send(UPGRADE)
    await wire.settled()
    wire.takes = False
    sent = b"x" * (3 * WRITE_BYTES_MAX) + b"end"
    wire.send(sent)
    await wire.settled()
    wire.take()
    await wire.end()
    assert wire.raw.endswith(b"\r\n\r\n" + sent)
    assert not wire.aborted
