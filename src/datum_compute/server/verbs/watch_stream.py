"""The stream of one watch: an asynchronous iterator of lines.

It is an object and not an async generator, so that dropping it needs no asynchronous cleanup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from datum_compute.api.errors import Expired
from datum_compute.api.http import LARGE_CHUNK_BYTES
from datum_compute.server.flowcontrol.control import LoopWork
from datum_compute.server.verbs.event_encoder import WatchEventEncoder, error_line
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.store.watch_log import StoreEvent, Watch

# Clients may treat a minute without data as a dead stream.
BOOKMARK_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class WatchSource:
    """The events of a stream, and how long it lasts."""

    watch: Watch
    version: Callable[[], int]  # newest version of the plane
    timeout_s: float
    bookmarks: bool


class WatchStream:
    """The lines of a watch: ``initial``, without empty ones, then the events of ``source``. Without
    a source it ends after ``initial``."""

    def __init__(
        self,
        initial: Iterator[bytes],
        source: WatchSource | None,
        encoder: WatchEventEncoder,
        long_requests: LongRequests,
        work: LoopWork,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._lines = initial
        self._large_line: bytes | None = None  # sent before ``_lines``
        self._source = source
        self._encoder = encoder
        self._long_requests = long_requests
        self._work = work  # charged for the events that are encoded
        self._deadline = now + (source.timeout_s if source else 0.0)
        self._next_bookmark = now + BOOKMARK_EVERY_S
        self._has_ended = source is None
        self._is_stopped = False
        self.is_initial = True  # until all initial lines have been taken

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if not self._work.can_stream():
                await self._work.wait_to_stream()
            line = self._take_line()
            if line:
                return line
            if line is not None:
                continue
            self.is_initial = False
            if self._has_ended or self._long_requests.is_closed:
                raise StopAsyncIteration
            self._lines = await self._read_lines()

    def take_ready(self, size_bytes: int) -> bytes:
        """Return further lines that are ready, about ``size_bytes``. Stop before a large line,
        which ``__anext__`` returns."""
        taken: list[bytes] = []
        self._work.start()
        while size_bytes > 0 and (line := self._find_line()):
            if len(line) > LARGE_CHUNK_BYTES:
                self._large_line = line
                break
            taken.append(line)
            size_bytes -= len(line)
        self._work.stop()
        return b"".join(taken)

    def stop(self) -> None:
        """End the stream, also while a caller awaits the next line."""
        self._has_ended = self._is_stopped = True
        self._lines = iter(())
        self._large_line = None
        if self._source is not None:
            self._source.watch.interrupt()

    async def aclose(self) -> None:
        self.stop()

    def _take_line(self) -> bytes | None:
        self._work.start()
        line = self._find_line()
        self._work.stop()
        return line

    def _find_line(self) -> bytes | None:
        """Return the next line, or None if none is left.

        Events that the selector excludes have an empty line. They are skipped. When the work since
        ``start`` has used a slice, the empty line is returned, so that others can run.
        """
        if self._large_line is not None:
            large_line, self._large_line = self._large_line, None
            return large_line
        line = next(self._lines, None)
        while line is not None and not line and not self._work.has_used_slice():
            line = next(self._lines, None)
        return line

    async def _read_lines(self) -> Iterator[bytes]:
        assert self._source is not None
        if self._source.watch.is_closed:
            events = await self._read_events(0.0)  # send the events before the end
            self._has_ended = not events
            return map(self._encoder.encode_change, _drain(events))
        now = asyncio.get_running_loop().time()
        wait_s = max(0.0, self._next_wakeup() - now)
        # Read the version before awaiting: if no events follow, the client has received all events
        # up to it.
        version = self._source.version()
        try:
            events = await self._read_events(wait_s)
        except Expired as error:
            self._has_ended = True
            return iter((error_line(error),))
        if now >= self._deadline:
            self._has_ended = True
        if events or wait_s or (self._has_ended and not self._source.bookmarks):
            return map(self._encoder.encode_change, _drain(events))
        self._next_bookmark = now + BOOKMARK_EVERY_S
        return iter((self._encoder.encode_bookmark(version),))

    def _next_wakeup(self) -> float:
        assert self._source is not None
        return (
            min(self._deadline, self._next_bookmark) if self._source.bookmarks else self._deadline
        )

    async def _read_events(self, wait_s: float) -> list[StoreEvent]:
        """Wait for events; return none if the stream was stopped meanwhile."""
        assert self._source is not None
        self._long_requests.start(self, self.stop)
        try:
            events = await self._source.watch.next_events(wait_s)
        finally:
            self._long_requests.finish(self)
        return [] if self._is_stopped else events


def _drain(events: list[StoreEvent]) -> Iterator[StoreEvent]:
    """Yield each event and drop it from the list: a slow reader must not keep the object of an
    event in memory besides its line."""
    events.reverse()
    while events:
        yield events.pop()
