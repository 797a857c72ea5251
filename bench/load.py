"""A load generator that costs little: requests as ready bytes, answers cut by their length.

The machine has few cores, and what the generator burns is missing from the server; so there is no
HTTP library here, and only as much HTTP as our own servers speak.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import httptools

_LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    tls: ssl.SSLContext
    token: str = ""

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", "accept: application/json"]
        if self.token:
            lines.append(f"authorization: Bearer {self.token}")
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Plug(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = -1  # bytes of the body; unknown until the head is there
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by birth

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server hung up"))

    async def ask(self, request: bytes) -> bytes:
        """The whole answer, head and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        if self._missing < 0:
            data = b"".join(self._parts)
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            start = data[:end].lower().index(_LENGTH) + len(_LENGTH)
            length = int(data[start : data.index(b"\r\n", start)])
            self._parts = [data]
            self._missing = length - (len(data) - end - 4)
        else:
            self._missing -= len(data)
        if self._missing == 0:
            whole, self._parts, self._missing = b"".join(self._parts), [], -1
            assert self._answer is not None
            if not self._answer.done():  # the caller was cancelled
                self._answer.set_result(whole)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Watcher(asyncio.Protocol):
    """A watch: every chunk is handed on at the moment it arrives."""

    def __init__(self, request: bytes, on_lines: Callable[[bytes], None]) -> None:
        self._request = request
        self._on_lines = on_lines
        self._parser = httptools.HttpResponseParser(self)
        self.opened = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        assert self._parser.get_status_code() == 200, self._parser.get_status_code()
        self.opened.set()

    def on_body(self, body: bytes) -> None:
        self._on_lines(body)


@asynccontextmanager
async def plugged(target: Target, count: int) -> AsyncIterator[list[Plug]]:
    loop = asyncio.get_running_loop()
    plugs = []
    for _ in range(count):
        _, plug = await loop.create_connection(
            Plug, "127.0.0.1", target.port, ssl=target.tls, server_hostname="127.0.0.1"
        )
        plugs.append(plug)
    try:
        yield plugs
    finally:
        for plug in plugs:
            plug.close()


@dataclass(frozen=True, slots=True)
class Throughput:
    """``cpu_us`` is what one answer cost the server: it does not depend on who else is busy."""

    a_second: float
    cpu_us: float


async def throughput(
    target: Target,
    cpu_s: Callable[[], float],
    next_request: Callable[[], bytes],
    *,
    connections: int,
    seconds: float,
) -> Throughput:
    """Successful answers a second, each connection asking without pause."""
    async with plugged(target, connections) as plugs:
        start, cpu_before = time.perf_counter(), cpu_s()

        async def work(plug: Plug) -> int:
            done = 0
            while time.perf_counter() - start < seconds:
                answer = await plug.ask(next_request())
                assert answer[9:11] == b"20", answer[:500]
                done += 1
            return done

        done = sum(await asyncio.gather(*(work(plug) for plug in plugs)))
        cpu_us = (cpu_s() - cpu_before) / done * 1e6
        return Throughput(done / (time.perf_counter() - start), cpu_us)
