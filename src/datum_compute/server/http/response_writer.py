"""Sends the responses and watches of one connection as fast as its client reads them.

No call of ``transport.write`` gets more than ``WRITE_BYTES_MAX``. The TLS layer encrypts a whole
write at once, passes the encrypted copy to a socket transport that cannot be measured, and keeps a
buffer of that size. The rest of a larger write stays here until the client has read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from datum_compute.api.http import LARGE_CHUNK_BYTES, BufferedStream, Response
from datum_compute.server.encoding.list_body import PIECE_BYTES, slices
from datum_compute.server.http.send_budget import SendAccount

# --- The bytes of answers: heads, chunks, the date


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class HttpDate:
    """The date as HTTP writes it; made once a second."""

    def __init__(self, unix_s: Callable[[], float]) -> None:
        self._unix_s = unix_s
        self._second = -1
        self._text = ""

    def __call__(self) -> str:
        now = int(self._unix_s())
        if now != self._second:
            self._second, self._text = now, formatdate(now, usegmt=True)
        return self._text


def encode_head(response: Response, date: str, *, closing: bool) -> bytes:
    pieces = response.pieces
    size_bytes = len(response.body) if pieces is None else pieces.size_bytes
    return _head(response, date, f"content-length: {size_bytes}\r\n", closing)


def stream_head(response: Response, date: str, *, chunked: bool) -> bytes:
    """Without chunks the end of the connection is the end of the answer."""
    framing = "transfer-encoding: chunked\r\n" if chunked else ""
    return _head(response, date, framing, not chunked)


def switch_head(response: Response, date: str) -> bytes:
    """The connection leaves HTTP after it; the headers say for what."""
    return _head(response, date, "connection: upgrade\r\n", closing=False)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(response: Response, date: str, framing: str, closing: bool) -> bytes:
    headers = response.headers
    more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if more.count("\n") != len(headers) or more.count("\r") != len(headers):
        raise ValueError("a header of an answer has a line break in it")
    start = _start(response.status, response.content_type)
    end = "connection: close\r\n\r\n" if closing else "\r\n"
    return f"{start}{framing}date: {date}\r\n{more}{end}".encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _start(status: int, content_type: str) -> str:
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n"


# --- The turns of a port: everything that is ready in one turn of the loop is answered together
# First all requests are dispatched, then all answers written. Each half runs through its code once
# for each connection in a row, which is kinder to the caches of the processor than switching from
# reading to answering to encrypting and back for every single request: with 32 busy connections a
# read costs a third less.


logger = logging.getLogger(__name__)

# Large responses are sent in pieces. All connections together send this many pieces in one pass of
# the loop: encrypting one takes 0.1 to 0.2 ms.
PIECES_PER_PASS = 4


class WriteBatcher:
    def __init__(self) -> None:
        self._ready: list[Callable[[], None]] = []
        self._flushes: list[Callable[[], None]] | None = None
        self._pieces: deque[asyncio.Future[None]] = deque()

    def schedule(self, step: Callable[[], None]) -> None:
        """Run ``step`` in the next turn."""
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._run)
        self._ready.append(step)

    def on_flush(self, flush: Callable[[], None]) -> bool:
        """Run ``flush`` when the turn ends; false when there is none under way."""
        if self._flushes is None:
            return False
        self._flushes.append(flush)
        return True

    def wait_for_piece(self) -> asyncio.Future[None]:
        """Return a future that is done when the caller may send the next piece of a large response.
        Callers take turns, and never continue in the same pass of the loop."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._pieces:
            loop.call_soon(self._release_pieces)
        self._pieces.append(turn)
        return turn

    def _release_pieces(self) -> None:
        left = PIECES_PER_PASS
        while self._pieces and left:
            turn = self._pieces.popleft()
            if not turn.done():
                turn.set_result(None)
                left -= 1
        if self._pieces:
            asyncio.get_running_loop().call_soon(self._release_pieces)

    def _run(self) -> None:
        ready, self._ready = self._ready, []
        flushes: list[Callable[[], None]] = []
        self._flushes = flushes
        _each(ready)
        self._flushes = None
        _each(flushes)


def _each(steps: list[Callable[[], None]]) -> None:
    """What goes wrong with one connection is not the others' affair."""
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("a connection failed")


# --- outgoing


WRITE_BYTES_MAX = 32 * 1024  # two TLS records
# Lines of a watch that are encoded at once. This is small, because each connection buffers an
# encrypted copy until its client reads it.
WATCH_LINES_BYTES = 16 * 1024
# High-water mark: with more than this in its buffer the transport pauses writing.
UNSENT_HIGH_BYTES = 16 * 1024
# The buffer below the TLS layer cannot be measured. It is full when data waits in the buffer above.
TLS_BUFFER_BYTES = 64 * 1024


class Outgoing:
    """``write`` never waits; senders of large data await ``wait_writable`` first. Inside a turn
    both ``write`` and ``close`` take effect at its end."""

    def __init__(
        self, transport: asyncio.Transport, turns: WriteBatcher, account: SendAccount
    ) -> None:
        self._transport = transport
        self._turns = turns
        self._account = account
        self._rest_bytes = 0  # not yet written bytes of a body that is sent in pieces
        # Data that waits until the transport resumes writing. Empty unless ``blocked``.
        self._unwritten: deque[memoryview] = deque()
        self._unwritten_bytes = 0
        transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES)
        self._gathered: list[bytes | memoryview] = []
        self._closing = False
        self._writable: asyncio.Future[None] | None = None  # while the client takes nothing
        self.lost = False

    @property
    def blocked(self) -> bool:
        return self._writable is not None

    def write(self, data: bytes | memoryview) -> None:
        if self._gathered or self._turns.on_flush(self._flush):
            self._gathered.append(data)
        else:
            self._write_now(data)

    def close(self) -> None:
        """Close the connection after everything that was written."""
        if self._gathered or self._unwritten:
            self._closing = True
        else:
            self._transport.close()

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if self.lost:
            return
        self._write_now(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        self._finish_closing()

    def _write_now(self, data: bytes | memoryview) -> None:
        if len(data) <= WRITE_BYTES_MAX and not self._unwritten:
            self._transport.write(data)
        else:
            self._unwritten.append(memoryview(data))
            self._unwritten_bytes += len(data)
            self._write_unwritten()
        self.account_unsent()

    def _write_unwritten(self) -> None:
        """Write until the transport pauses."""
        while self._unwritten and not self.blocked and not self.lost:
            first = self._unwritten.popleft()
            if len(first) > WRITE_BYTES_MAX:
                self._unwritten.appendleft(first[WRITE_BYTES_MAX:])
                first = first[:WRITE_BYTES_MAX]
            self._unwritten_bytes -= len(first)
            self._transport.write(first)

    def _finish_closing(self) -> None:
        if self._closing and not self._unwritten and not self.lost:
            self._transport.close()

    def pause(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        writable, self._writable = self._writable, None
        self._write_unwritten()
        self.account_unsent()
        self._finish_closing()
        if writable is not None and not writable.done():
            writable.set_result(None)

    def end(self) -> None:
        """Release everything: the client has disconnected."""
        self.lost = True
        self._rest_bytes = self._unwritten_bytes = 0
        self._unwritten.clear()
        self._account.release_line()
        self.resume()

    def measure_unsent(self) -> int:
        if self.lost:
            return 0
        buffered = self._transport.get_write_buffer_size()
        held = self._rest_bytes + self._unwritten_bytes + self._account.line_bytes
        return held + (buffered + TLS_BUFFER_BYTES if buffered else 0)

    def account_unsent(self) -> None:
        self._account.record(self.measure_unsent())

    async def wait_writable(self) -> bool:
        """Wait until the client reads data. Return False if it has disconnected."""
        while self._writable is not None:
            await self._writable
        return not self.lost

    async def send_body(self, head: bytes, body: bytes) -> None:
        """Send a large body in pieces, so that other connections can send between them."""
        await self.send_pieces(head, slices(memoryview(body), PIECE_BYTES), len(body))

    async def send_pieces(
        self, head: bytes, pieces: Iterable[bytes | memoryview], held_bytes: int = 0
    ) -> None:
        """Send each piece when the client can receive it. ``held_bytes`` is the memory that all
        pieces occupy until they are sent; 0 if each is built when it is sent."""
        self._rest_bytes = held_bytes
        self.write(head)
        made = iter(pieces)
        try:
            while await self.wait_writable():  # before the next piece is built
                piece = next(made, None)
                if piece is None:
                    return
                self._rest_bytes = max(0, self._rest_bytes - len(piece))
                self.write(piece)
                await self._turns.wait_for_piece()
        finally:
            self._rest_bytes = 0

    async def send_stream(self, head: bytes, stream: BufferedStream, *, chunked: bool) -> None:
        """Send the lines of a watch until it ends or the client disconnects. Lines are encoded only
        when the client has received the previous ones."""
        self.write(head)
        if self.lost:
            stream.stop()
        while await self.wait_writable() and await self._send_lines(stream, chunked=chunked):
            pass
        if chunked and not self.lost:
            self.write(LAST_CHUNK)

    async def _send_lines(self, stream: BufferedStream, *, chunked: bool) -> bool:
        """Send the next lines. Return False if there are none or the client has disconnected."""
        line = await anext(stream, None)
        if line is None or self.lost:
            return False
        if len(line) > LARGE_CHUNK_BYTES:
            await self._send_large_line(line, chunked=chunked)
            return True
        more = stream.take_ready(WATCH_LINES_BYTES - len(line))
        data = line + more if more else line
        self.write(chunk(data) if chunked else data)
        if more:
            await self._turns.wait_for_piece()  # a long initial state must not block others
        return True

    async def _send_large_line(self, line: bytes, *, chunked: bool) -> None:
        """Send pieces of the line that all watches of its object share, without copying it."""
        self._account.hold_line(line)
        try:
            for piece in _pieces_of_line(line, chunked=chunked):
                if not await self.wait_writable():
                    return
                self.write(piece)
                await self._turns.wait_for_piece()
        finally:
            self._account.release_line()
            self.account_unsent()


def _pieces_of_line(line: bytes, *, chunked: bool) -> Iterator[bytes | memoryview]:
    if chunked:
        yield b"%x\r\n" % len(line)
    yield from slices(memoryview(line), WATCH_LINES_BYTES)
    if chunked:
        yield b"\r\n"


# --- A connection that has left HTTP: bytes both ways, at the pace of who reads them


BUFFER_BYTES_MAX = 256 * 1024


class UpgradedConnection:
    """The ``Duplex`` of a client. What it sends waits here until somebody reads; when that is much,
    no more is taken from it."""

    def __init__(self, transport: asyncio.Transport, out: Outgoing, first: bytes) -> None:
        self._transport = transport
        self._out = out
        self._arrived = bytearray(first)
        self._news = asyncio.Event()
        self._is_paused = False
        self._has_ended = False
        if first:
            self._news.set()
        transport.resume_reading()

    # --- called by the connection

    def feed(self, data: bytes) -> None:
        self._arrived += data
        self._news.set()
        if len(self._arrived) > BUFFER_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self) -> None:
        """The client has gone, or the port stops."""
        self._has_ended = True
        self._news.set()

    # --- called by whoever talks

    async def read(self) -> bytes:
        await self._news.wait()
        data, self._arrived = bytes(self._arrived), bytearray()
        if not self._has_ended:
            self._news.clear()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if await self._out.wait_writable():
            self._out.write(data)

    async def aclose(self) -> None:
        self._has_ended = True
        self._news.set()
        self._out.close()
