"""A client of the HTTP server that is connected without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httptools

from datum_compute.api.meta.codec import decode
from datum_compute.server.http.server import HttpServer
from testkit.api_server.running_server import START_S, TOKEN, WORKLOADS, InProcessServer

ENOUGH_S = 300.0


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    @property
    def reason(self) -> str:
        reason: str = decode(self.body).get("reason", "")
        return reason


class Wire(asyncio.Transport):
    """The client side of one connection. It reads nothing while ``takes`` is false."""

    def __init__(self, front: HttpServer) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.raw = b""
        self.reading = True
        self.closed = False
        self.aborted = False
        self.takes = True
        self.switched = False
        self.unread_bytes = 0  # written while the client does not read
        self.write_sizes: list[int] = []  # bytes of each call of ``write``
        self._waiting = bytearray()
        self._paused = False
        self._news = asyncio.Event()
        self._parser = httptools.HttpResponseParser(self)
        self.connection = front.build_connection()
        self.connection.connection_made(self)

    # --- the client

    def send(self, data: bytes) -> None:
        self._waiting += data
        self._hand_over()

    def take(self) -> None:
        self.takes = True
        self.unread_bytes = 0
        if self._paused:
            self._paused = False
            self.connection.resume_writing()

    async def answer(self, number: int = 0) -> Answer:
        """Wait for the response with this number."""
        await self._until(lambda: len(self.answers) > number and self.answers[number].complete)
        return self.answers[number]

    async def lines(self, count: int) -> list[bytes]:
        await self._until(lambda: self.answers[-1:] and self._body().count(b"\n") >= count)
        return self._body().splitlines()

    def is_reading(self) -> bool:
        return self.reading

    def is_closed(self) -> bool:
        return self.closed

    async def end(self) -> None:
        await self._until(lambda: self.closed)

    def _body(self) -> bytes:
        return self.answers[-1].body

    async def settled(self) -> None:
        """Run callbacks until nothing is left that needs no waiting."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(ENOUGH_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    # --- the transport

    def write(self, data: Any) -> None:
        if self.closed:
            return
        self.raw += bytes(data)
        self.write_sizes.append(len(data))
        if not self.switched:
            try:
                self._parser.feed_data(bytes(data))
            except httptools.HttpParserUpgrade:
                self.switched = True  # what follows is only in ``raw``
        self._news.set()
        if not self.takes:
            self.unread_bytes += len(data)
            if not self._paused:
                self._paused = True
                self.connection.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause writing at the first unread byte."""

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
            self._news.set()

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self.reading and not self.closed and self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self.connection.data_received(data)

    # --- callbacks of the response parser

    def on_message_begin(self) -> None:
        self.answers.append(Answer())

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answers[-1].headers[name.decode()] = value.decode()

    def on_headers_complete(self) -> None:
        self.answers[-1].status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.answers[-1].body += body

    def on_message_complete(self) -> None:
        self.answers[-1].complete = True
        if self.answers[-1].status == 100:
            self.answers.pop()


def front_of(server: InProcessServer) -> HttpServer:
    return HttpServer(server.api.dispatch, lambda: START_S)


def request(
    method: str = "GET",
    target: str = WORKLOADS,
    body: bytes = b"",
    version: str = "1.1",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    sent = {"Host": "x", "Authorization": f"Bearer {TOKEN}", **(headers or {})}
    if body:
        sent.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {target} HTTP/{version}"]
    lines += [f"{name}: {value}" for name, value in sent.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
