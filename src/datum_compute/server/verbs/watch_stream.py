"""The stream of one watch: an asynchronous iterator of lines.

It is a plain object, not an async generator: dropping it needs no asynchronous cleanup.
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
    """Where the events of a stream come from, and for how long."""

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
        lines: WatchEventEncoder,
        streams: LongRequests,
        work: LoopWork,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._ready = initial
        self._set_aside: bytes | None = None  # a large line, which comes before ``_ready``
        self._source = source
        self._lines = lines
        self._streams = streams
        self._work = work  # charged for the events that are encoded
        self._deadline = now + (source.timeout_s if source else 0.0)
        self._next_bookmark = now + BOOKMARK_EVERY_S
        self._ended = source is None
        self._stopped = False
        self.is_initial = True  # until all initial lines have been taken

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if not self._work.can_stream():
                await self._work.wait_to_stream()
            line = self._next_line()
            if line:
                return line
            if line is not None:
                continue
            self.is_initial = False
            if self._ended or self._streams.closed:
                raise StopAsyncIteration
            self._ready = await self._next_lines()

    def take_ready(self, size_bytes: int) -> bytes:
        """Return more lines that need no waiting, about ``size_bytes``. Stop before a large line,
        which ``__anext__`` returns."""
        taken: list[bytes] = []
        self._work.start()
        while size_bytes > 0 and (line := self._find_line()):
            if len(line) > LARGE_CHUNK_BYTES:
                self._set_aside = line
                break
            taken.append(line)
            size_bytes -= len(line)
        self._work.stop()
        return b"".join(taken)

    def stop(self) -> None:
        """End the stream, also while a caller awaits the next line."""
        self._ended = self._stopped = True
        self._ready = iter(())
        self._set_aside = None
        if self._source is not None:
            self._source.watch.interrupt()

    async def aclose(self) -> None:
        self.stop()

    def _next_line(self) -> bytes | None:
        self._work.start()
        line = self._find_line()
        self._work.stop()
        return line

    def _find_line(self) -> bytes | None:
        """Return the next line, or None if none is left.

        Events that the selector excludes have an empty line. They are skipped. When the work since
        ``start`` has used a slice, the empty line is returned, so that others can run.
        """
        if self._set_aside is not None:
            large, self._set_aside = self._set_aside, None
            return large
        line = next(self._ready, None)
        while line is not None and not line and not self._work.has_used_slice():
            line = next(self._ready, None)
        return line

    async def _next_lines(self) -> Iterator[bytes]:
        assert self._source is not None
        if self._source.watch.closed:
            events = await self._events(0.0)  # send the events before the end
            self._ended = not events
            return map(self._lines.of, _drain(events))
        now = asyncio.get_running_loop().time()
        wait_s = max(0.0, self._due() - now)
        # Read the version before awaiting: if no events follow, the client has received all events
        # up to it.
        version = self._source.version()
        try:
            events = await self._events(wait_s)
        except Expired as error:
            self._ended = True
            return iter((error_line(error),))
        if now >= self._deadline:
            self._ended = True
        if events or wait_s or (self._ended and not self._source.bookmarks):
            return map(self._lines.of, _drain(events))
        self._next_bookmark = now + BOOKMARK_EVERY_S
        return iter((self._lines.bookmark(version),))

    def _due(self) -> float:
        assert self._source is not None
        return (
            min(self._deadline, self._next_bookmark) if self._source.bookmarks else self._deadline
        )

    async def _events(self, wait_s: float) -> list[StoreEvent]:
        """Wait for events; return none if the stream was stopped meanwhile."""
        assert self._source is not None
        self._streams.began(self, self.stop)
        try:
            events = await self._source.watch.next_events(wait_s)
        finally:
            self._streams.ended(self)
        return [] if self._stopped else events


def _drain(events: list[StoreEvent]) -> Iterator[StoreEvent]:
    """Yield each event and drop it from the list: a slow reader must not keep the object of an
    event in memory besides its line."""
    events.reverse()
    while events:
        yield events.pop()
