"""Sends the responses and watches of one connection as fast as its client reads them.

No call of ``transport.write`` gets more than ``WRITE_BYTES_MAX``. The TLS layer encrypts a whole
write at once, passes the encrypted copy to a socket transport that cannot be measured, and keeps a
buffer of that size. The rest of a larger write stays here until the client has read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from datum_compute.app.front.answers import LAST_CHUNK, chunk
from datum_compute.app.front.turn import Turns
from datum_compute.server.encoding.list_body import PIECE_BYTES, slices
from datum_compute.server.http.send_budget import SendAccount
from datum_compute.server.verbs.watch_stream import LARGE_LINE_BYTES, WatchStream

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

    def __init__(self, transport: asyncio.Transport, turns: Turns, account: SendAccount) -> None:
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
        if self._gathered or self._turns.at_end(self._flush):
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

    async def send_stream(self, head: bytes, stream: WatchStream, *, chunked: bool) -> None:
        """Send the lines of a watch until it ends or the client disconnects. Lines are encoded only
        when the client has received the previous ones."""
        self.write(head)
        if self.lost:
            stream.stop()
        while await self.wait_writable() and await self._send_lines(stream, chunked=chunked):
            pass
        if chunked and not self.lost:
            self.write(LAST_CHUNK)

    async def _send_lines(self, stream: WatchStream, *, chunked: bool) -> bool:
        """Send the next lines. Return False if there are none or the client has disconnected."""
        line = await anext(stream, None)
        if line is None or self.lost:
            return False
        if len(line) > LARGE_LINE_BYTES:
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
