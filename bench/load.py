"""A load generator that needs little CPU: prepared requests, responses split by their length.

The machine has few cores, and the server cannot use what the generator uses. So it has no HTTP
library, and only the part of HTTP that our servers use.
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
_LAST_CHUNK = b"\r\n0\r\n\r\n"


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


class LoadConnection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = -1  # bytes of the body; see _missing_bytes
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    async def send(self, request: bytes) -> bytes:
        """Send the request and return the response, head and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        if self._missing < 0:
            data = b"".join(self._parts)
            self._parts = [data]
            self._missing = _missing_bytes(data)
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


def _missing_bytes(response: bytes) -> int:
    """Return how many bytes of the response have not arrived; -1 if that is not known yet.

    A kube-apiserver sends responses of more than 2 KB in chunks, without their length.
    """
    end = response.find(b"\r\n\r\n")
    if end < 0:
        return -1
    head = response[: end + 2].lower()
    start = head.find(_LENGTH)
    if start < 0:
        return 0 if response.endswith(_LAST_CHUNK) else -1
    length = int(head[start + len(_LENGTH) : head.index(b"\r\n", start)])
    return length - (len(response) - end - 4)


class Watcher(asyncio.Protocol):
    """A watch that passes on every chunk when it arrives."""

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
async def load_connections(target: Target, count: int) -> AsyncIterator[list[LoadConnection]]:
    loop = asyncio.get_running_loop()
    opened = []
    for _ in range(count):
        _, connection = await loop.create_connection(
            LoadConnection, "127.0.0.1", target.port, ssl=target.tls, server_hostname="127.0.0.1"
        )
        opened.append(connection)
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


@dataclass(frozen=True, slots=True)
class Throughput:
    """``cpu_us`` is the CPU time of the server for one response, also on a busy machine."""

    per_second: float
    cpu_us: float


async def throughput(
    target: Target,
    cpu_s: Callable[[], float],
    next_request: Callable[[], bytes],
    *,
    connections: int,
    seconds: float,
) -> Throughput:
    """Return successful responses per second. Each connection sends without pause."""
    async with load_connections(target, connections) as opened:
        start, cpu_before = time.perf_counter(), cpu_s()

        async def work(connection: LoadConnection) -> int:
            done = 0
            while time.perf_counter() - start < seconds:
                answer = await connection.send(next_request())
                assert answer[9:11] == b"20", answer[:500]
                done += 1
            return done

        done = sum(await asyncio.gather(*(work(connection) for connection in opened)))
        cpu_us = (cpu_s() - cpu_before) / done * 1e6
        return Throughput(done / (time.perf_counter() - start), cpu_us)
