"""What goes out on one connection, at the pace of the client that takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from datum_compute.app.front.answers import LAST_CHUNK, chunk
from datum_compute.app.front.send_budget import SendAccount
from datum_compute.app.front.turn import Turns
from datum_compute.server.watchstream import WatchStream

PIECE_BYTES = 64 * 1024
WHOLE_BYTES_MAX = 256 * 1024  # larger bodies are sent in pieces
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
            self._transport.write(data)
            self.account_unsent()

    def close(self) -> None:
        """After everything that was written."""
        if self._gathered:
            self._closing = True
        else:
            self._transport.close()

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if self.lost:
            return
        self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        self.account_unsent()
        if self._closing:
            self._transport.close()

    def pause(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def end(self) -> None:
        """The client has gone: whoever waits for it need not."""
        self.lost = True
        self._rest_bytes = 0
        self._account.record(0)
        self.resume()

    def measure_unsent(self) -> int:
        if self.lost:
            return 0
        buffered = self._transport.get_write_buffer_size()
        return self._rest_bytes + (buffered + TLS_BUFFER_BYTES if buffered else 0)

    def account_unsent(self) -> None:
        self._account.record(self.measure_unsent())

    async def wait_writable(self) -> bool:
        """Wait until the client reads data. Return False if it has disconnected."""
        while self._writable is not None:
            await self._writable
        return not self.lost

    async def send_body(self, head: bytes, body: bytes) -> None:
        """Send a large body in pieces, so that other connections can send between them."""
        rest = memoryview(body)
        pieces = (rest[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
        await self.send_pieces(head, pieces, len(body))

    async def send_pieces(
        self, head: bytes, pieces: Iterable[bytes | memoryview], held_bytes: int = 0
    ) -> None:
        """Send each piece when the client can receive it. ``held_bytes`` is the memory that all
        pieces occupy until they are sent; 0 if each is built when it is sent."""
        self._rest_bytes = held_bytes
        self.write(head)
        made = iter(pieces)
        while await self.wait_writable():  # before the next piece is built
            piece = next(made, None)
            if piece is None:
                return
            self._rest_bytes = max(0, self._rest_bytes - len(piece))
            self.write(piece)
            await self._turns.wait_for_piece()

    async def send_stream(self, head: bytes, stream: WatchStream, *, chunked: bool) -> None:
        """Send the lines of a watch until it ends or the client disconnects. Lines are encoded only
        when the client has received the previous ones."""
        self.write(head)
        if self.lost:
            stream.stop()
        while await self.wait_writable():
            line = await anext(stream, None)
            if self.lost:
                return
            if line is None:
                break
            more = stream.take_ready(WATCH_LINES_BYTES - len(line))
            data = line + more if more else line
            self.write(chunk(data) if chunked else data)
            if more:
                await self._turns.wait_for_piece()  # a long initial state must not block others
        if chunked and not self.lost:
            self.write(LAST_CHUNK)
