"""Sends the responses and watches of one connection as fast as its client reads them.

No call of ``transport.write`` gets more than ``WRITE_BYTES_MAX``. The TLS layer encrypts a whole
write at once, passes the encrypted copy to a socket transport whose buffer cannot be measured, and
keeps a buffer of that size. The rest of a larger write stays here until the client has read.
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

_log = logging.getLogger(__name__)

# --- The bytes of a response: head, chunks, date


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class HttpDate:
    """The value of the Date header, formatted once a second."""

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
    return _encode_head(response, date, f"content-length: {size_bytes}\r\n", closing)


def encode_stream_head(response: Response, date: str, *, chunked: bool) -> bytes:
    """Return the head of a stream. Without chunks the stream ends when the connection closes."""
    framing = "transfer-encoding: chunked\r\n" if chunked else ""
    return _encode_head(response, date, framing, not chunked)


def encode_upgrade_head(response: Response, date: str) -> bytes:
    """Return the head of a 101. The headers of the response name the new protocol."""
    return _encode_head(response, date, "connection: upgrade\r\n", closing=False)


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _encode_head(response: Response, date: str, framing: str, closing: bool) -> bytes:
    headers = response.headers
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a header of a response contains a line break")
    start = _status_line(response.status, response.content_type)
    end = "connection: close\r\n\r\n" if closing else "\r\n"
    return f"{start}{framing}date: {date}\r\n{lines}{end}".encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _status_line(status: int, content_type: str) -> str:
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n"


# --- Batches: the steps of all connections in one pass of the event loop


# Large responses are sent in pieces. All connections together send this many pieces in one pass of
# the loop: encrypting one takes 0.1 to 0.2 ms.
PIECES_PER_PASS = 2
# Steps in one batch: 0.1 to 0.5 ms of requests and responses. The other steps run in the next
# passes of the loop, so that a flood of requests does not make one pass long.
STEPS_PER_PASS = 6
# Requests between two batches that are served immediately, because their users have no unfinished
# requests. Further ones wait for the batch, which needs less CPU time for many requests.
IMMEDIATE_PER_BATCH = 4

Step = Callable[[], None]


class ConnectionBatcher:
    """Runs the steps of all connections in batches, at most one batch in a pass of the event loop.

    A batch dispatches requests that have arrived, and then writes all responses. It runs at most
    ``STEPS_PER_PASS`` steps. While more of them wait, users take turns.
    """

    def __init__(self) -> None:
        # The waiting steps of each user. The user whose turn is next comes first.
        self._steps: dict[str, deque[Step]] = {}
        self._is_scheduled = False
        self._flushes: list[Step] | None = None
        self._pieces: deque[asyncio.Future[None]] = deque()
        self._immediate = 0  # requests served immediately since the last batch

    def schedule(self, step: Step, user: str) -> None:
        """Run ``step`` after the other steps of ``user``, in one of the next batches."""
        waiting = self._steps.get(user)
        if waiting is None:
            self._steps[user] = deque((step,))
        else:
            waiting.append(step)
        self._schedule_batch()

    def _schedule_batch(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def try_immediate(self) -> bool:
        """Return True, and count the request, if it may be served before the next batch."""
        if self._immediate >= IMMEDIATE_PER_BATCH:
            return False
        self._immediate += 1
        return True

    def on_flush(self, flush: Step) -> bool:
        """Run ``flush`` at the end of the current batch. Return False if no batch is running."""
        if self._flushes is None:
            return False
        self._flushes.append(flush)
        return True

    def wait_for_piece(self) -> asyncio.Future[None]:
        """Return a future that is done when the caller may send the next piece of a large response.
        Callers are served in order, and never continue in the same pass of the loop."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        if not self._pieces:
            loop.call_soon(self._release_pieces)
        self._pieces.append(ready)
        return ready

    def _release_pieces(self) -> None:
        left = PIECES_PER_PASS
        while self._pieces and left:
            ready = self._pieces.popleft()
            if not ready.done():
                ready.set_result(None)
                left -= 1
        if self._pieces:
            asyncio.get_running_loop().call_soon(self._release_pieces)

    def _run(self) -> None:
        self._is_scheduled = False
        self._immediate = 0
        flushes: list[Step] = []
        self._flushes = flushes
        _run_each(self._take_steps())
        self._flushes = None
        if flushes:
            _run_each(flushes)
        if self._steps:
            self._schedule_batch()

    def _take_steps(self) -> list[Step]:
        """Remove and return the steps of the next batch. Each user in turn adds one step."""
        waiting = self._steps
        taken: list[Step] = []
        while waiting and len(taken) < STEPS_PER_PASS:
            user = next(iter(waiting))
            steps = waiting.pop(user)
            taken.append(steps.popleft())
            if steps:
                waiting[user] = steps  # the user is now the last in turn
        return taken


def _run_each(steps: list[Step]) -> None:
    """Run all steps. The failure of one connection does not affect the others."""
    for step in steps:
        try:
            step()
        except Exception:
            _log.exception("a connection failed")


# --- The writer


WRITE_BYTES_MAX = 32 * 1024  # two TLS records
# Chunks of a stream that are encoded at once. This is small, because each connection buffers an
# encrypted copy until its client reads it.
STREAM_CHUNKS_BYTES = 16 * 1024
# High-water mark: with more than this in its buffer the transport pauses writing.
UNSENT_HIGH_BYTES = 16 * 1024
# Size of the buffer below the TLS layer, which cannot be measured. It counts as full while data
# waits in the buffer above.
TLS_BUFFER_BYTES = 64 * 1024


class ResponseWriter:
    """Writes to the transport of one connection.

    ``write`` never waits; senders of large data await ``wait_writable`` first. Inside a batch,
    ``write`` and ``close`` take effect at its end.
    """

    def __init__(
        self, transport: asyncio.Transport, batcher: ConnectionBatcher, account: SendAccount
    ) -> None:
        self._transport = transport
        self._batcher = batcher
        self._account = account
        self._rest_bytes = 0  # not yet written bytes of a body that is sent in pieces
        # Data that waits until the transport resumes writing. Empty unless ``is_blocked``.
        self._unwritten: deque[memoryview] = deque()
        self._unwritten_bytes = 0
        transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES)
        self._batched: list[bytes | memoryview] = []
        self._closing = False
        self._writable: asyncio.Future[None] | None = None  # set while the transport pauses writing
        self.is_lost = False

    @property
    def is_blocked(self) -> bool:
        return self._writable is not None

    def write(self, data: bytes | memoryview) -> None:
        if self._batched or self._batcher.on_flush(self._flush):
            self._batched.append(data)
        else:
            self._write_now(data)

    def close(self) -> None:
        """Close the connection after everything that was written."""
        if self._batched or self._unwritten:
            self._closing = True
        else:
            self._transport.close()

    def _flush(self) -> None:
        batched, self._batched = self._batched, []
        if self.is_lost:
            return
        self._write_now(batched[0] if len(batched) == 1 else b"".join(batched))
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
        while self._unwritten and not self.is_blocked and not self.is_lost:
            first = self._unwritten.popleft()
            if len(first) > WRITE_BYTES_MAX:
                self._unwritten.appendleft(first[WRITE_BYTES_MAX:])
                first = first[:WRITE_BYTES_MAX]
            self._unwritten_bytes -= len(first)
            self._transport.write(first)

    def _finish_closing(self) -> None:
        if self._closing and not self._unwritten and not self.is_lost:
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

    def disconnect(self) -> None:
        """Release everything: the client has disconnected."""
        self.is_lost = True
        self._rest_bytes = self._unwritten_bytes = 0
        self._unwritten.clear()
        self._account.release_chunk()
        self.resume()

    def measure_unsent(self) -> int:
        if self.is_lost:
            return 0
        buffered = self._transport.get_write_buffer_size()
        held = self._rest_bytes + self._unwritten_bytes + self._account.chunk_bytes
        return held + (buffered + TLS_BUFFER_BYTES if buffered else 0)

    def account_unsent(self) -> None:
        size_bytes = self.measure_unsent()
        if size_bytes != self._account.size_bytes:
            self._account.record(size_bytes)

    async def wait_writable(self) -> bool:
        """Wait until the client reads data. Return False if it has disconnected."""
        while self._writable is not None:
            await self._writable
        return not self.is_lost

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
        iterator = iter(pieces)
        try:
            while await self.wait_writable():  # before the next piece is built
                piece = next(iterator, None)
                if piece is None:
                    return
                self._rest_bytes = max(0, self._rest_bytes - len(piece))
                self.write(piece)
                await self._batcher.wait_for_piece()
        finally:
            self._rest_bytes = 0

    async def send_stream(self, head: bytes, stream: BufferedStream, *, chunked: bool) -> None:
        """Send the chunks of a stream until it ends or the client disconnects. A chunk is encoded
        only when the client has received the previous ones."""
        self.write(head)
        if self.is_lost:
            stream.stop()
        while await self.wait_writable() and await self._send_chunks(stream, chunked=chunked):
            pass
        if chunked and not self.is_lost:
            self.write(LAST_CHUNK)

    async def _send_chunks(self, stream: BufferedStream, *, chunked: bool) -> bool:
        """Send the next chunks. Return False if there are none or the client has disconnected."""
        first = await anext(stream, None)
        if first is None or self.is_lost:
            return False
        if len(first) > LARGE_CHUNK_BYTES:
            await self._send_large_chunk(first, chunked=chunked)
            return True
        more = stream.take_ready(STREAM_CHUNKS_BYTES - len(first))
        data = first + more if more else first
        self.write(encode_chunk(data) if chunked else data)
        if more:
            await self._batcher.wait_for_piece()  # a long initial state must not block others
        return True

    async def _send_large_chunk(self, chunk: bytes, *, chunked: bool) -> None:
        """Send a chunk in pieces, without copying it: other streams may send the same bytes."""
        self._account.hold_chunk(chunk)
        try:
            for piece in _pieces_of_chunk(chunk, chunked=chunked):
                if not await self.wait_writable():
                    return
                self.write(piece)
                await self._batcher.wait_for_piece()
        finally:
            self._account.release_chunk()
            self.account_unsent()


def _pieces_of_chunk(chunk: bytes, *, chunked: bool) -> Iterator[bytes | memoryview]:
    if chunked:
        yield b"%x\r\n" % len(chunk)
    yield from slices(memoryview(chunk), STREAM_CHUNKS_BYTES)
    if chunked:
        yield b"\r\n"


# --- A connection after an upgrade to another protocol


BUFFER_BYTES_MAX = 256 * 1024


class UpgradedConnection:
    """The ``Duplex`` of a client. Received bytes are buffered until the responder reads them; above
    ``BUFFER_BYTES_MAX`` the transport stops reading."""

    def __init__(self, transport: asyncio.Transport, writer: ResponseWriter, first: bytes) -> None:
        self._transport = transport
        self._writer = writer
        self._received = bytearray(first)
        self._readable = asyncio.Event()
        self._is_paused = False
        self._has_ended = False
        if first:
            self._readable.set()
        transport.resume_reading()

    # --- Called by the connection

    def feed(self, data: bytes) -> None:
        self._received += data
        self._readable.set()
        if len(self._received) > BUFFER_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self) -> None:
        """The client has disconnected, or the server stops."""
        self._has_ended = True
        self._readable.set()

    # --- Called by the responder

    async def read(self) -> bytes:
        await self._readable.wait()
        data, self._received = bytes(self._received), bytearray()
        if not self._has_ended:
            self._readable.clear()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if await self._writer.wait_writable():
            self._writer.write(data)

    async def aclose(self) -> None:
        self._has_ended = True
        self._readable.set()
        self._writer.close()
