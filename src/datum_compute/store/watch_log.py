"""The bounded history of one resource in one plane, and the watches that read it.

A watch is a position in the shared history, not a queue. A slow reader therefore costs no memory,
and a reader that falls behind the history gets Expired and lists again.

A watch can have a filter. An event that the filter rejects advances the position of a waiting
reader without waking it. On the hub, each cell waits only for the few events of its own objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from datum_compute.api.errors import Expired
from datum_compute.store.records import Record


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    """A committed change.

    ``record`` is the new state. For a deletion it is the last state, at the version of the
    deletion. ``previous`` is the replaced state: a change can move an object into or out of a
    selector.
    """

    version: int
    deleted: bool
    record: Record
    previous: Record | None


# Called during a commit, for each change and each waiting watch: must be fast and must not raise.
EventFilter = Callable[[StoreEvent], bool]

# Limits the memory that the history of large, frequently changed objects takes.
WINDOW_BYTES = 16 * 1024 * 1024
# Bytes that a watch reads at once, and therefore the memory that a slow reader holds.
READ_BYTES = 64 * 1024
_READ_EVENTS_MAX = 64


class WatchLog:
    """Events in version order.

    ``floor`` is the newest version that is not in the history. A watch can start at it or later.
    """

    def __init__(self, floor: int, window: int) -> None:
        self._events: list[StoreEvent] = []
        self._dropped = 0
        self._size_bytes = 0
        self._window = window
        self._floor = floor
        # A dict, because the order of calls must not depend on memory addresses.
        self._wakers: dict[Callable[[], None], None] = {}
        self._waiting: dict[Watch, None] = {}
        self._closed = False

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._size_bytes += len(event.record.body)
        if len(self._events) >= 2 * self._window:
            self._drop_oldest(len(self._events) - self._window)
        elif self._size_bytes > WINDOW_BYTES:
            self._drop_oldest(max(1, len(self._events) // 2))
        for watch in list(self._waiting):
            watch.on_event(event)
        self._wake()

    def _drop_oldest(self, count: int) -> None:
        """Drop the oldest events, but never the newest one."""
        count = min(count, len(self._events) - 1)
        if count:
            self._floor = self._events[count - 1].version
            self._dropped += count
            self._size_bytes -= sum(len(e.record.body) for e in self._events[:count])
            del self._events[:count]

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        for watch in list(self._waiting):
            watch.interrupt()
        self._wake()

    def watch(self, since: int, event_filter: EventFilter | None = None) -> Watch:
        if since < self._floor:
            raise _expired_error(since, self._floor)
        position = self._dropped + _first_after(self._events, since)
        return Watch(self, position, event_filter)

    def read(self, position: int) -> tuple[list[StoreEvent], int]:
        """Return the next events, about ``READ_BYTES``, and the position after them."""
        if position < self._dropped:
            raise _expired_error(0, self._floor)
        start = position - self._dropped
        events = self._events[start : start + _READ_EVENTS_MAX]
        if len(events) > 1:
            events = _first_bytes(events, READ_BYTES)
        return events, position + len(events)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def add_waiting(self, watch: Watch) -> None:
        """Call ``watch.on_event`` for each new event. The watch has read all earlier events."""
        self._waiting[watch] = None

    def remove_waiting(self, watch: Watch) -> None:
        self._waiting.pop(watch, None)

    def subscribe(self, waker: Callable[[], None]) -> Callable[[], None]:
        self._wakers[waker] = None
        return lambda: self._wakers.pop(waker, None)

    def _wake(self) -> None:
        for waker in list(self._wakers):
            waker()


class Watch:
    """One reader of a history.

    ``next_events`` can return events that the filter rejects, together with events that it accepts.
    """

    def __init__(
        self, log: WatchLog, position: int, event_filter: EventFilter | None = None
    ) -> None:
        self._log = log
        self._position = position
        self._event_filter = event_filter
        self._wakeup: asyncio.Future[None] | None = None  # while ``next_events`` waits

    @property
    def is_closed(self) -> bool:
        return self._log.is_closed

    def interrupt(self) -> None:
        """End a wait of ``next_events``, which then returns the events that exist."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def on_event(self, event: StoreEvent) -> None:
        """Wake the waiting reader, or skip an event that the filter rejects."""
        if self._wakeup is None or self._wakeup.done():
            return  # the reader is awake and reads the event from the history
        if self._event_filter is None or self._event_filter(event):
            self._wakeup.set_result(None)
        else:
            self._position += 1

    async def next_events(self, timeout_s: float) -> list[StoreEvent]:
        """Wait for events. Returns an empty list after the timeout or at the end of the watch."""
        events, self._position = self._log.read(self._position)
        if events or self._log.is_closed or timeout_s <= 0:
            return events
        # Cheaper than asyncio.timeout; this runs for each event of each watch.
        loop = asyncio.get_running_loop()
        self._wakeup = loop.create_future()
        timer = loop.call_later(timeout_s, self.interrupt)
        self._log.add_waiting(self)
        try:
            await self._wakeup
        finally:
            self._wakeup = None
            timer.cancel()
            self._log.remove_waiting(self)
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


def _expired_error(since: int, floor: int) -> Expired:
    subject = f"resource version {since}" if since else "this watch"
    return Expired(f"{subject} is too old: the history begins after {floor}; list again")
