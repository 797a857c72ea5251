"""Transport over HTTP/1.1 and TLS, on nothing but asyncio: for commands, which live shortly.

``http.py`` does the same on aiohttp, whose import alone takes longer than a whole command should.
The same rules hold, and the same tests run over both: certificates are verified unless the caller
says otherwise in so many words; redirects are not followed; what goes wrong on the network becomes
Unreachable and carries no header of the request. There is no proxy here; whoever has one takes the
other transport.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

from msgspec.structs import replace

from datum_compute.api.exchange import JSON, Request, Response, is_upgrade
from datum_compute.client.connection import Certificate
from datum_compute.client.silence import (
    HANDSHAKE_FAILED,
    LOST,
    NO_SUCH_NAME,
    NOT_IN_TIME,
    Silence,
    not_connected,
    not_running,
    not_trusted,
    redirected,
    unreachable,
)
from datum_compute.client.tls import trust
from datum_compute.client.transport import Timeouts, is_watch

T = TypeVar("T")

_HEAD_MAX = 256 * 1024
_CHUNK_LINE_MAX = 1024
_PIECE = 64 * 1024


class _BrokenError(Exception):
    """The other side hung up, or speaks something else than HTTP/1.1."""


_NETWORK_ERRORS = (OSError, TimeoutError, EOFError, ValueError, _BrokenError)


@dataclass(slots=True)
class _Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_used: bool = False

    @property
    def is_open(self) -> bool:
        return not self.writer.is_closing() and not self.reader.at_eof()

    def close(self) -> None:
        with suppress(OSError, RuntimeError):
            self.writer.close()


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def keeps_open(self) -> bool:
        told = self.is_chunked or "content-length" in self.headers or self.status in (204, 304)
        return told and self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True, slots=True)
class _Switched:
    """A connection that is its caller's now."""

    wire: _Wire

    async def read(self) -> bytes:
        try:
            return await self.wire.reader.read(_PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        with suppress(OSError):
            self.wire.writer.write(data)
            await self.wire.writer.drain()

    async def aclose(self) -> None:
        self.wire.close()


class LeanTransport:
    """Connections to one server, reused; close it with ``async with`` or ``aclose``."""

    def __init__(
        self,
        server: str,
        *,
        ca_pem: bytes | None = None,
        insecure: bool = False,
        certificate: Certificate | None = None,
        server_name: str = "",
        timeouts: Timeouts | None = None,
    ) -> None:
        parts = urlsplit(server)
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._authority = parts.netloc.rpartition("@")[2]
        self._timeouts = timeouts or Timeouts()
        self._tls = trust(ca_pem, insecure=insecure, certificate=certificate)
        self._server_name = server_name
        self._idle: list[_Wire] = []

    def __repr__(self) -> str:
        return f"LeanTransport({self._server!r})"

    async def __aenter__(self) -> LeanTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        for wire in self._idle:
            wire.close()
        self._idle.clear()
        await asyncio.sleep(0)  # lets the closed sockets go before the loop does

    async def send(self, request: Request) -> Response:
        """The answer; a watch that succeeded comes as a stream, everything else as a body."""
        try:
            wire, head = await self._asked(request)
            try:
                if is_watch(request) and head.status == 200:
                    stream = self._chunks(wire, head, self._timeouts.silence_s(request))
                    return _response(head, stream=stream)
                if head.status == 101:
                    return replace(_response(head), duplex=_Switched(wire))
                body = await self._within(_read_body(wire, head), self._timeouts.silence_s(request))
            except BaseException:
                wire.close()
                raise
        except _NETWORK_ERRORS as error:
            raise unreachable(self._server, _silence(error)) from None
        self._put_back(wire, head)
        if 300 <= head.status < 400:
            raise redirected(self._server, head.status)
        return _response(head, body)

    async def _asked(self, request: Request) -> tuple[_Wire, _Head]:
        """A connection that the request went over, and the head of the answer. One that lay idle
        may be dead by now; a request that only reads is then sent once more."""
        wire = await (self._connected() if is_upgrade(request) else self._wire())
        try:
            return wire, await self._exchange(wire, request)
        except _NETWORK_ERRORS:
            if not wire.is_used or request.method != "GET":
                raise
        wire = await self._connected()
        return wire, await self._exchange(wire, request)

    async def _exchange(self, wire: _Wire, request: Request) -> _Head:
        try:
            wire.writer.write(self._encoded(request))
            return await self._within(_exchanged(wire), self._timeouts.silence_s(request))
        except BaseException:
            wire.close()
            raise

    async def _wire(self) -> _Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                wire.is_used = True
                return wire
            wire.close()
        return await self._connected()

    async def _connected(self) -> _Wire:
        async with asyncio.timeout(self._timeouts.connect_s):
            reader, writer = await asyncio.open_connection(
                self._host,
                self._port,
                ssl=self._tls if self._is_tls else None,
                server_hostname=(self._server_name or self._host) if self._is_tls else None,
                limit=_HEAD_MAX,
            )
        return _Wire(reader, writer)

    def _put_back(self, wire: _Wire, head: _Head) -> None:
        if head.keeps_open:
            self._idle.append(wire)
        else:
            wire.close()

    async def _within(self, work: Awaitable[T], seconds: float) -> T:
        async with asyncio.timeout(seconds):
            return await work

    def _encoded(self, request: Request) -> bytes:
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        lines = [f"{request.method} {target} HTTP/1.1", f"host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        if request.body or request.method not in ("GET", "HEAD", "DELETE"):
            lines.append(f"content-length: {len(request.body)}")
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a request holds a line break")
        return "\r\n".join((*lines, "", "")).encode("latin-1") + request.body

    async def _chunks(self, wire: _Wire, head: _Head, read_s: float) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await self._within(_read_piece(wire, head), read_s):
                yield chunk
        except _NETWORK_ERRORS as error:
            raise unreachable(self._server, _silence(error)) from None
        finally:
            wire.close()


async def _exchanged(wire: _Wire) -> _Head:
    """The request is on its way: flushed while the head of the answer is read."""
    await wire.writer.drain()
    try:
        head = await wire.reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise _BrokenError from None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise _BrokenError
    pairs = (line.partition(":") for line in lines)
    return _Head(int(code), {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _read_body(wire: _Wire, head: _Head) -> bytes:
    if head.is_chunked:
        parts = []
        while part := await _read_chunk(wire):
            parts.append(part)
        return b"".join(parts)
    if head.status in (204, 304):
        return b""
    try:
        if "content-length" in head.headers:
            return await wire.reader.readexactly(int(head.headers["content-length"]))
        return await wire.reader.read()
    except asyncio.IncompleteReadError:
        raise _BrokenError from None


async def _read_piece(wire: _Wire, head: _Head) -> bytes:
    """Some more of a stream; empty at its end."""
    return await (_read_chunk(wire) if head.is_chunked else wire.reader.read(_PIECE))


async def _read_chunk(wire: _Wire) -> bytes:
    try:
        line = await wire.reader.readuntil(b"\r\n")
        if len(line) > _CHUNK_LINE_MAX:
            raise _BrokenError
        size = int(line.split(b";")[0], 16)
        chunk = await wire.reader.readexactly(size + 2)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise _BrokenError from None
    return chunk[:-2]


def _response(
    head: _Head, body: bytes = b"", stream: AsyncGenerator[bytes, None] | None = None
) -> Response:
    content_type = head.headers.get("content-type", JSON)
    return Response(head.status, body, content_type, head.headers, stream)


def _silence(error: BaseException) -> Silence:
    match error:
        case ssl.SSLCertVerificationError(verify_message=message):
            return not_trusted(message)
        case ssl.SSLError():
            return HANDSHAKE_FAILED
        case socket.gaierror():
            return NO_SUCH_NAME
        case TimeoutError():
            return NOT_IN_TIME
        case ConnectionRefusedError():
            return not_running("connect call failed")
        case _BrokenError() | EOFError() | ConnectionError():
            return LOST
        case OSError():
            return not_connected(error)
        case _:
            return not_running("it does not speak HTTP/1.1")
