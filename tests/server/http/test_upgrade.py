"""Upgraded connections carry bytes in both directions and end in defined ways."""

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


class EchoServer:
    """Accepts every upgrade, and returns all received bytes until it receives ``end``."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.has_ended = False

    async def dispatch(self, request: Request) -> Response:
        if "upgrade" not in request.headers:
            return Response(200, b"{}")
        return Response(101, headers={"upgrade": "echo"}, switched=self.talk)

    async def talk(self, duplex: Duplex) -> None:
        while data := await duplex.read():
            self.received.append(data)
            await duplex.write(data)
            if b"end" in data:
                break
        self.has_ended = True


def connect_to_echo() -> tuple[EchoServer, Wire]:
    echo = EchoServer()
    return echo, Wire(HttpServer(echo.dispatch, lambda: 0.0))


async def test_bytes_are_sent_in_both_directions_including_those_after_the_request() -> None:
    _, wire = connect_to_echo()
    wire.send(UPGRADE + b"first ")
    await wire.settled()
    wire.send(b"second ")
    await wire.settled()
    head, _, rest = wire.raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"connection: upgrade" in head
    assert rest == b"first second "
    assert not wire.closed


async def test_the_connection_closes_when_the_handler_ends() -> None:
    echo, wire = connect_to_echo()
    wire.send(UPGRADE + b"the end")
    await wire.end()
    assert echo.has_ended
    assert wire.raw.endswith(b"the end")


async def test_the_handler_ends_when_the_client_disconnects() -> None:
    echo, wire = connect_to_echo()
    wire.send(UPGRADE)
    await wire.settled()
    wire.connection.connection_lost(None)
    await wire.settled()
    assert echo.has_ended
    assert echo.received == []


async def test_the_handler_ends_when_the_client_disconnects_before_the_response() -> None:
    echo, wire = connect_to_echo()
    wire.send(UPGRADE)
    wire.connection.connection_lost(None)
    await wire.settled()
    assert echo.received == []


async def test_the_handler_ends_when_the_server_stops() -> None:
    echo = EchoServer()
    front = HttpServer(echo.dispatch, lambda: 0.0)
    wire = Wire(front)
    wire.send(UPGRADE)
    await wire.settled()
    await front.stop()
    assert echo.has_ended


async def test_an_earlier_request_is_answered_first_and_later_bytes_are_not_http() -> None:
    echo, wire = connect_to_echo()
    wire.send(PLAIN + UPGRADE)
    await wire.settled()
    wire.send(PLAIN)
    await wire.settled()
    assert wire.raw.count(b"HTTP/1.1 200") == 1
    assert echo.received == [PLAIN]


async def test_reading_is_paused_while_the_handler_does_not_read() -> None:
    class NonReadingServer(EchoServer):
        async def talk(self, duplex: Duplex) -> None:
            await duplex.write(b"hello")
            await never

    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wire = Wire(HttpServer(NonReadingServer().dispatch, lambda: 0.0))
    wire.send(UPGRADE)
    await wire.settled()
    wire.send(b"x" * (BUFFER_BYTES_MAX + 1))
    await wire.settled()
    assert not wire.reading
    never.set_result(None)
    await wire.end()


def test_a_client_that_does_not_read_cannot_keep_an_ended_connection_open() -> None:
    async def scenario(_: object) -> None:
        _, wire = connect_to_echo()
        wire.send(UPGRADE)
        await wire.settled()
        wire.takes = False
        wire.send(b"x" * (3 * WRITE_BYTES_MAX) + b"end")
        await wire.settled()
        assert not wire.closed  # the client has time to read the rest
        await asyncio.sleep(SEND_S + 2)
        assert wire.aborted

    run_virtual(Random(3), scenario)


async def test_bytes_written_before_the_handler_ends_are_received() -> None:
    _, wire = connect_to_echo()
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
