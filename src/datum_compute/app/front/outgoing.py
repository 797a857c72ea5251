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
# Lines of a watch that are made at once. What the client does not take stays here, encrypted and
# for each client alone, so this is small.
LINES_BYTES = 16 * 1024
# With more than this in its buffer the transport asks to pause.
UNSENT_HIGH_BYTES = 16 * 1024
# Below the TLS layer there is another buffer, of this size, that cannot be measured. It is full
# when anything waits above it.
HIDDEN_BYTES = 64 * 1024


class Outgoing:
    """``write`` never waits; senders of much data await ``is_writable`` first. Inside of a turn
    both ``write`` and ``close`` take effect at its end."""

    def __init__(self, transport: asyncio.Transport, turns: Turns, account: SendAccount) -> None:
        self._transport = transport
        self._turns = turns
        self._account = account
        self._rest_bytes = 0  # of a body that is sent in pieces
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
        return self._rest_bytes + (buffered + HIDDEN_BYTES if buffered else 0)

    def account_unsent(self) -> None:
        self._account.record(self.measure_unsent())

    async def is_writable(self) -> bool:
        """Wait until the client takes data; whether it is still there."""
        while self._writable is not None:
            await self._writable
        return not self.lost

    async def send_body(self, head: bytes, body: bytes) -> None:
        """A large body, in pieces, so that others get their turn and the client can read."""
        rest = memoryview(body)
        pieces = (rest[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
        await self.send_pieces(head, pieces, len(body))

    async def send_pieces(
        self, head: bytes, pieces: Iterable[bytes | memoryview], held_bytes: int = 0
    ) -> None:
        """Each piece when the client takes data. ``held_bytes`` is how much memory all pieces
        occupy until they are sent; none if they are made one by one."""
        self._rest_bytes = held_bytes
        self.write(head)
        made = iter(pieces)
        while await self.is_writable():  # and only then make the next piece
            piece = next(made, None)
            if piece is None:
                return
            self._rest_bytes = max(0, self._rest_bytes - len(piece))
            self.write(piece)
            await self._turns.next_piece()

    async def send_stream(self, head: bytes, stream: WatchStream, *, chunked: bool) -> None:
        """The lines of a watch as they come, until it ends or the client goes. Lines are made only
        when the client has taken the ones before."""
        self.write(head)
        if self.lost:
            stream.stop()
        while await self.is_writable():
            line = await anext(stream, None)
            if self.lost:
                return
            if line is None:
                break
            more = stream.take_ready(LINES_BYTES - len(line))
            data = line + more if more else line
            self.write(chunk(data) if chunked else data)
            if more:
                await self._turns.next_piece()  # a long initial state must not block others
        if chunked and not self.lost:
            self.write(LAST_CHUNK)
