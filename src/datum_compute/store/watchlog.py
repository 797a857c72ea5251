"""The bounded history of one resource in one plane, and the watches that read it.

A watch is a position in the shared history, not a queue of its own: a slow reader costs
nothing, and one that falls behind the window is told Expired and lists again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.api.errors import Expired
from datum_compute.store.record import Record


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """A committed change. ``record`` is the new state, or the last one with the deletion's own
    version; ``previous`` is what it replaced, for selectors whose edge the change crosses."""

    version: int
    deleted: bool
    record: Record
    previous: Record | None


class WatchLog:
    """Events in version order. ``floor`` is the newest version that is no longer (or never
    was) in the history: a watch may start at it or later."""

    def __init__(self, floor: int, window: int) -> None:
        self._events: list[StoreEvent] = []
        self._dropped = 0
        self._window = window
        self._floor = floor
        # A dict, because the order in which readers wake must not depend on addresses.
        self._wakers: dict[Callable[[], None], None] = {}
        self._closed = False

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        if len(self._events) >= 2 * self._window:
            cut = len(self._events) - self._window
            self._floor = self._events[cut - 1].version
            self._dropped += cut
            del self._events[:cut]
        self._wake()

    def close(self) -> None:
        """The plane is gone: every watch ends."""
        self._closed = True
        self._wake()

    def watch(self, since: int) -> Watch:
        if since < self._floor:
            raise _expired(since, self._floor)
        position = self._dropped + _first_after(self._events, since)
        return Watch(self, position)

    def read(self, position: int) -> tuple[list[StoreEvent], int]:
        if position < self._dropped:
            raise _expired(0, self._floor)
        events = self._events[position - self._dropped :]
        return events, position + len(events)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def newest(self) -> int:
        """The version of the last event, or the floor while there is none."""
        return self._events[-1].version if self._events else self._floor

    def subscribe(self, waker: Callable[[], None]) -> Callable[[], None]:
        self._wakers[waker] = None
        return lambda: self._wakers.pop(waker, None)

    def _wake(self) -> None:
        for waker in list(self._wakers):
            waker()


class Watch:
    """One reader. ``next_events`` waits for news, or returns none after the timeout."""

    def __init__(self, log: WatchLog, position: int) -> None:
        self._log = log
        self._position = position

    @property
    def closed(self) -> bool:
        return self._log.closed

    async def next_events(self, timeout_s: float) -> list[StoreEvent]:
        events, self._position = self._log.read(self._position)
        if events or self._log.closed:
            return events
        news = asyncio.Event()
        unsubscribe = self._log.subscribe(news.set)
        try:
            async with asyncio.timeout(timeout_s):
                await news.wait()
        except TimeoutError:
            return []
        finally:
            unsubscribe()
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


def _expired(since: int, floor: int) -> Expired:
    asked = f"resource version {since}" if since else "this watch"
    return Expired(f"{asked} is too old: the history begins after {floor}; list again")
