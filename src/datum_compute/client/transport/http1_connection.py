"""One connection to a server: what it sends is gathered until it is asked for.

A wait has a limit of silence. Each wire has one timer for all of its waits, which finds out late
that most of them are over: to set one up for each takes longer than to read what came.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

# Who reads slowly is sent no more than that for the time being.
_GATHERED_MAX = 256 * 1024


class BrokenError(Exception):
    """The other side hung up, or speaks something else than HTTP/1.1."""


class Http1Connection(asyncio.Protocol):
    """Used by one exchange at a time."""

    def __init__(self) -> None:
        self.is_used = False
        self.idle_since_s = 0.0
        # The longest silence; None: for ever.
        self.patience_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._gathered = bytearray()
        self._is_over = False
        self._error: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._is_held_back = False
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return not self._is_over and not self._gathered

    def close(self) -> None:
        """Whoever waits for something is told that nothing will come."""
        self._end(None)
        if self._transport is not None:
            with suppress(OSError, RuntimeError):
                self._transport.close()

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._gathered += data
        if self._reading is not None:
            _wake(self._reading)
        elif len(self._gathered) > _GATHERED_MAX and not self._is_held_back:
            self._is_held_back = True
            self._opened().pause_reading()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    def pause_writing(self) -> None:
        self._flushing = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._flushing is not None:
            _wake(self._flushing)
            self._flushing = None

    # --- what its user calls

    def write(self, data: bytes) -> None:
        self._opened().write(data)

    async def flushed(self) -> None:
        """Until the other side has taken most of what was written, or nothing more will be."""
        if self._flushing is not None:
            await self._flushing

    async def until(self, mark: bytes, at_most: int) -> bytes:
        """What comes before the mark, which is left out."""
        looked_at = 0
        while (end := self._gathered.find(mark, looked_at)) < 0:
            if len(self._gathered) > at_most:
                raise BrokenError
            looked_at = max(0, len(self._gathered) - len(mark))
            await self._more()
        taken = self._taken(end)
        del self._gathered[: len(mark)]
        return taken

    async def exactly(self, size: int) -> bytes:
        while len(self._gathered) < size:
            await self._more()
        return self._taken(size)

    async def some(self) -> bytes:
        """Whatever is there; nothing at the end."""
        if not self._gathered and not self._is_over:
            await self._more()
        return self._taken(len(self._gathered))

    async def rest(self) -> bytes:
        while not self._is_over:
            await self._more()
        return self._taken(len(self._gathered))

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._gathered[:size])
        del self._gathered[:size]
        return taken

    async def _more(self) -> None:
        """Returns when something has come, or the end."""
        if self._is_over:
            raise self._error or BrokenError
        if self._is_held_back:
            self._is_held_back = False
            self._opened().resume_reading()
        self._reading = self._loop.create_future()
        self._expect()
        try:
            await self._reading
        finally:
            self._reading = None
        if self._error is not None:
            raise self._error

    def _expect(self) -> None:
        if self.patience_s is None:
            return
        self._due_s = self._loop.time() + self.patience_s
        if self._timer is not None and self._timer.when() > self._due_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._reading is None or self.patience_s is None:
            return
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._look)
        else:
            self._end(TimeoutError())

    def _end(self, error: Exception | None) -> None:
        self._is_over = True
        self._error = self._error or error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reading is not None:
            _wake(self._reading)
        self.resume_writing()

    def _opened(self) -> asyncio.Transport:
        assert self._transport is not None, "nobody has a wire before it is connected"
        return self._transport


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
