"""Debounce: coalesce the events of a key into one reconcile.

A controller that aggregates many objects returns ``Debounce(idle_s, max_s)``. Until ``max_s`` after
that reconcile, an event does not enqueue the key. The key is enqueued when it has received no event
for ``idle_s``, and at the latest after ``max_s``. An event is never dropped.

``idle_s`` is the time for one key. Keys that wait together share the processor, so with n of them
the time between two events of one is n times as long, and so is the idle time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from datum_compute.api.planes import PlaneName
from datum_compute.runtime.controller import Debounce, Key


class _DebouncedKey:
    """The timers of a key. ``last_event_s`` is None until the key receives an event."""

    __slots__ = ("deadline", "idle_s", "idle_timer", "last_event_s")

    def __init__(self, idle_s: float, deadline: asyncio.TimerHandle) -> None:
        self.idle_s = idle_s
        self.deadline = deadline
        self.last_event_s: float | None = None
        self.idle_timer: asyncio.TimerHandle | None = None


class Debouncer:
    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._keys: dict[Key, _DebouncedKey] = {}
        # Number of keys that have received an event and wait to be enqueued.
        self.pending = 0

    def start(self, key: Key, debounce: Debounce) -> None:
        """Debounce the key from now on, for at most ``max_s``."""
        self._cancel(key)
        deadline = asyncio.get_running_loop().call_later(debounce.max_s, self._finish, key)
        self._keys[key] = _DebouncedKey(debounce.idle_s, deadline)

    def absorb(self, key: Key) -> bool:
        """Record an event. Return False if the key is not being debounced."""
        state = self._keys.get(key)
        if state is None:
            return False
        loop = asyncio.get_running_loop()
        self.pending += state.last_event_s is None
        state.last_event_s = loop.time()
        if state.idle_timer is None:
            state.idle_timer = loop.call_later(state.idle_s, self._check_idle, key)
        return True

    def cancel_plane(self, plane: PlaneName) -> None:
        for key in [key for key in self._keys if key.plane == plane]:
            self._cancel(key)

    def close(self) -> None:
        for key in list(self._keys):
            self._cancel(key)

    def _check_idle(self, key: Key) -> None:
        state, loop = self._keys[key], asyncio.get_running_loop()
        assert state.last_event_s is not None, "the idle timer starts with an event"
        remaining_s = state.last_event_s + state.idle_s * self.pending - loop.time()
        if remaining_s > 0:
            state.idle_timer = loop.call_later(remaining_s, self._check_idle, key)
        else:
            self._finish(key)

    def _finish(self, key: Key) -> None:
        has_event = self._keys[key].last_event_s is not None
        self._cancel(key)
        if has_event:
            self._enqueue(key)

    def _cancel(self, key: Key) -> None:
        state = self._keys.pop(key, None)
        if state is not None:
            self.pending -= state.last_event_s is not None
            state.deadline.cancel()
            if state.idle_timer is not None:
                state.idle_timer.cancel()
