"""What goes out on one connection, at the pace of the client that takes it."""

from __future__ import annotations

import asyncio

from datum_compute.app.front.answers import LAST_CHUNK, chunk
from datum_compute.app.front.turn import Turns
from datum_compute.server.watchstream import WatchStream

PIECE_BYTES = 64 * 1024
_LINES_BYTES = 64 * 1024


class Outgoing:
    """``write`` never waits; who sends much asks ``taken`` first. Inside of a turn both ``write``
    and ``close`` take effect at its end."""

    def __init__(self, transport: asyncio.Transport, turns: Turns) -> None:
        self._transport = transport
        self._turns = turns
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
        self.resume()

    async def taken(self) -> bool:
        """Wait until the client takes data; whether it is still there."""
        while self._writable is not None:
            await self._writable
        return not self.lost

    async def send_pieces(self, head: bytes, body: bytes) -> None:
        """Piece by piece, so that others get their turn and the client can begin to read."""
        self.write(head)
        pieces = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            if not await self.taken():
                return
            self.write(pieces[start : start + PIECE_BYTES])
            await self._turns.next_piece()

    async def send_stream(self, head: bytes, stream: WatchStream, *, chunked: bool) -> None:
        """The lines of a watch as they come, until it ends or the client goes."""
        self.write(head)
        if self.lost:
            stream.stop()
        async for line in stream:
            more = stream.take_ready(_LINES_BYTES)
            if not await self.taken():
                return
            data = line + more if more else line
            self.write(chunk(data) if chunked else data)
            if more:
                await self._turns.next_piece()  # a long initial state must not block others
        if chunked and not self.lost:
            self.write(LAST_CHUNK)
