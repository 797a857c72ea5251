"""The bounded history of one resource in one plane, and the watches that read it.

A watch is a position in the shared history, not a queue of its own: a slow reader costs
nothing, and one that falls behind the window is told Expired and lists again.

Who waits may say which changes concern it, and is not woken by the others: on the hub many cells
wait for changes of their own among those of all. What it sleeps through it has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from datum_compute.api.errors import Expired
from datum_compute.store.records import Record


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    """A committed change. ``record`` is the new state, or the last one with the deletion's own
    version; ``previous`` is what it replaced, for selectors whose edge the change crosses."""

    version: int
    deleted: bool
    record: Record
    previous: Record | None


# Asked inside of a commit, for every change and every watch that waits: quick, and never raises.
EventFilter = Callable[[StoreEvent], bool]

# Large objects that change often must not fill the memory with their past.
WINDOW_BYTES = 16 * 1024 * 1024
# Bytes that a watch reads at once, and so the most that a slow reader keeps in memory.
READ_BYTES = 64 * 1024
_READ_EVENTS_MAX = 64


class WatchLog:
    """Events in version order. ``floor`` is the newest version that is no longer (or never
    was) in the history: a watch may start at it or later."""

    def __init__(self, floor: int, window: int) -> None:
        self._events: list[StoreEvent] = []
        self._dropped = 0
        self._size_bytes = 0
        self._window = window
        self._floor = floor
        # A dict, because the order in which readers wake must not depend on addresses.
        self._wakers: dict[Callable[[], None], None] = {}
        self._waiting: dict[Watch, None] = {}
        self._closed = False

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._size_bytes += len(event.record.body)
        if len(self._events) >= 2 * self._window:
            self._forget(len(self._events) - self._window)
        elif self._size_bytes > WINDOW_BYTES:
            self._forget(max(1, len(self._events) // 2))
        for watch in list(self._waiting):
            watch.hear(event)
        self._wake()

    def _forget(self, count: int) -> None:
        """Drop the oldest events, never the one just appended."""
        count = min(count, len(self._events) - 1)
        if count:
            self._floor = self._events[count - 1].version
            self._dropped += count
            self._size_bytes -= sum(len(e.record.body) for e in self._events[:count])
            del self._events[:count]

    def close(self) -> None:
        """The plane is gone: every watch ends."""
        self._closed = True
        for watch in list(self._waiting):
            watch.interrupt()
        self._wake()

    def watch(self, since: int, concerns: EventFilter | None = None) -> Watch:
        if since < self._floor:
            raise _expired(since, self._floor)
        position = self._dropped + _first_after(self._events, since)
        return Watch(self, position, concerns)

    def read(self, position: int) -> tuple[list[StoreEvent], int]:
        """Return the next events, about ``READ_BYTES``, and the position after them."""
        if position < self._dropped:
            raise _expired(0, self._floor)
        start = position - self._dropped
        events = self._events[start : start + _READ_EVENTS_MAX]
        if len(events) > 1:
            events = _first_bytes(events, READ_BYTES)
        return events, position + len(events)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def newest(self) -> int:
        """The version of the last event; before the first one, where the history begins."""
        return self._events[-1].version if self._events else self._floor

    def wait(self, watch: Watch) -> None:
        """Let it hear of changes from now on; it has read all that were before."""
        self._waiting[watch] = None

    def leave(self, watch: Watch) -> None:
        self._waiting.pop(watch, None)

    def subscribe(self, waker: Callable[[], None]) -> Callable[[], None]:
        self._wakers[waker] = None
        return lambda: self._wakers.pop(waker, None)

    def _wake(self) -> None:
        for waker in list(self._wakers):
            waker()


class Watch:
    """One reader. ``next_events`` waits for news, or returns none after the timeout. Those that do
    not concern it may be among them; alone they do not end the wait."""

    def __init__(self, log: WatchLog, position: int, concerns: EventFilter | None = None) -> None:
        self._log = log
        self._position = position
        self._concerns = concerns
        self._news: asyncio.Future[None] | None = None  # while somebody waits

    @property
    def closed(self) -> bool:
        return self._log.closed

    def interrupt(self) -> None:
        """Whoever waits for news gets what there is now."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def hear(self, event: StoreEvent) -> None:
        """The next change, while somebody waits."""
        if self._news is None or self._news.done():
            return  # reads on from where it was woken
        if self._concerns is None or self._concerns(event):
            self._news.set_result(None)
        else:
            self._position += 1

    async def next_events(self, timeout_s: float) -> list[StoreEvent]:
        events, self._position = self._log.read(self._position)
        if events or self._log.closed or timeout_s <= 0:
            return events
        # Lighter than asyncio.timeout, and every event passes here once for every watcher.
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        timer = loop.call_later(timeout_s, self.interrupt)
        self._log.wait(self)
        try:
            await self._news
        finally:
            self._news = None
            timer.cancel()
            self._log.leave(self)
        events, self._position = self._log.read(self._position)
        return events


def _first_after(events: list[StoreEvent], since: int) -> int:
    low, high = 0, len(events)
    while low < high:
        middle = (low + high) // 2
        if events[middle].version <= since:
            low = middle + 1
        else:
            high = middle
    return low


def _first_bytes(events: list[StoreEvent], size_bytes: int) -> list[StoreEvent]:
    """Return the first events that fit into ``size_bytes``, at least one."""
    for number, event in enumerate(events):
        size_bytes -= len(event.record.body)
        if size_bytes < 0:
            return events[: max(1, number)]
    return events


def _expired(since: int, floor: int) -> Expired:
    asked = f"resource version {since}" if since else "this watch"
    return Expired(f"{asked} is too old: the history begins after {floor}; list again")
