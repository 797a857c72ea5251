"""One HTTP/1.1 connection: sends a request and buffers the parsed response until it is read.

- One exchange at a time. ``read_head`` returns the head, ``read_chunk`` the body.
- After a response of 101 the connection carries raw bytes in both directions.
- The read timeout limits the silence of the server, not the whole exchange. One timer per
  connection checks the current read deadline; it is not rescheduled for each read.
- Reading from the socket pauses while ``BUFFERED_BYTES_MAX`` bytes wait to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import httptools

BUFFERED_BYTES_MAX = 256 * 1024
HEAD_BYTES_MAX = 256 * 1024
_SWITCHING_PROTOCOLS = 101


class Http1Error(Exception):
    """The server closed the connection, or sent something that is not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """``headers`` has names in lower case. The last one of repeated headers is kept."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_delimited(self) -> bool:
        """False if the body ends with the connection."""
        return (
            self.status in (204, 304)
            or "content-length" in self.headers
            or "chunked" in self.headers.get("transfer-encoding", "").lower()
        )


class Http1Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_reused = False
        self.idle_since_s = 0.0
        self.read_timeout_s: float | None = None  # None: no limit
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        # The exchange
        self._is_head_only = False
        self._is_complete = True
        self._keeps_alive = False
        self._is_raw = False
        self._head: ResponseHead | None = None
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        # The connection
        self._is_closed = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._is_raw:
            self._append(data)
        else:
            self._parse(data)
        if self._reader is not None:
            _wake(self._reader)
        elif self._buffered_bytes > BUFFERED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None:
            _wake(self._drained)
            self._drained = None

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise Http1Error("the server sent a response without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, {}
        if 100 <= status < 200 and status != _SWITCHING_PROTOCOLS:
            return  # an interim response; the final one follows
        self._head = ResponseHead(status, headers)
        self._is_complete = self._is_head_only

    def on_body(self, chunk: bytes) -> None:
        if not self._is_complete:
            self._append(chunk)

    def on_message_complete(self) -> None:
        if self._head is not None and not self._is_complete:
            self._is_complete = True
            self._keeps_alive = self._parser.should_keep_alive()

    # --- called by the client

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "the connection is not established"
        return self._transport

    @property
    def is_reusable(self) -> bool:
        """Return True if the response was read to its end and the server keeps the connection."""
        is_read = self._is_complete and not self._chunks
        return is_read and self._keeps_alive and not self._is_closed

    def send_request(self, data: bytes, *, is_head_only: bool = False) -> None:
        """Start an exchange. The response to HEAD and CONNECT has no body: ``is_head_only``."""
        self._is_head_only = is_head_only
        self._is_complete = self._keeps_alive = False
        self._head, self._head_bytes = None, 0
        self.transport.write(data)

    def write(self, data: bytes) -> None:
        """Write raw bytes after the connection left HTTP."""
        self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer accepted most of the written bytes, or the connection ended."""
        if self._drained is not None:
            await self._drained

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over TLS, with a new parser, after the response to CONNECT."""
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)

    async def read_head(self) -> ResponseHead:
        while self._head is None:
            if self._head_bytes > HEAD_BYTES_MAX:
                raise Http1Error("the head of the response is too large")
            await self._wait()
        return self._head

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body or of the raw stream; empty at the end."""
        while not self._chunks and not self._is_complete:
            await self._wait()
        chunk = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered_bytes = 0
        return chunk

    def close(self) -> None:
        """Send what is buffered, then close the connection. A pending read fails."""
        self._end(Http1Error("the connection was closed"))
        if self._transport is not None:
            with suppress(OSError, RuntimeError):
                self._transport.close()

    def abort(self) -> None:
        """Close the connection in the next turn of the event loop. A pending read fails.

        ``close`` waits until a TLS peer has closed as well, which may be after the loop has ended.
        """
        self._end(Http1Error("the connection was closed"))
        if self._transport is not None:
            with suppress(OSError, RuntimeError):
                self._transport.abort()

    # --- internal

    def _append(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)

    def _parse(self, data: bytes) -> None:
        if self._head is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._is_raw, self._is_complete = True, False
            if rest := data[upgrade.args[0] :]:
                self._append(rest)
        except httptools.HttpParserError:
            self._end(Http1Error("the response is not HTTP/1.1"))

    async def _wait(self) -> None:
        """Return when data arrived or the response is complete; raise when the connection ended."""
        if self._is_closed:
            raise self._error or Http1Error("the server closed the connection")
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        self._reader = self._loop.create_future()
        self._set_deadline()
        try:
            await self._reader
        finally:
            self._reader = None
        if self._error is not None and not self._is_complete:
            raise self._error

    def _set_deadline(self) -> None:
        if self.read_timeout_s is None:
            return
        self._deadline_s = self._loop.time() + self.read_timeout_s
        if self._timer is not None and self._timer.when() > self._deadline_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reader is None or self.read_timeout_s is None:
            return
        if self._loop.time() < self._deadline_s:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)
        else:
            self._end(TimeoutError())

    def _end(self, error: Exception | None) -> None:
        """Record that no more data will arrive, and wake the reader."""
        self._is_closed = True
        self._error = self._error or error
        head = self._head
        if self._error is None and head is not None and (self._is_raw or not head.is_delimited):
            self._is_complete = True  # this body ends with the connection
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None:
            _wake(self._reader)
        self.resume_writing()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
