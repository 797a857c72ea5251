"""Debounce: coalesce the events of a key into one reconcile.

A controller that aggregates many objects returns ``Debounce(idle_s, max_s)``. Until ``max_s`` after
that reconcile, an event does not enqueue the key. The key is enqueued when it has received no event
for ``idle_s`` and its plane is idle, and at the latest after ``max_s``. An event is never dropped.

A plane is idle when no queue of the process has keys in its lane. Waiting for that saves
reconciles, because reconciles that run on a plane usually cause further events for the key. Queues
report when a lane becomes active or idle (``ActiveLanes``), so no polling is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from datum_compute.api.planes import PlaneName
from datum_compute.runtime.controller import Debounce, Key

# Fraction of ``idle_s`` to wait after the plane became idle, so that the events of its last writes
# arrive. It is small because on a busy plane the next reconcile starts soon.
_IDLE_PART_AFTER_PLANE = 0.25


class ActiveLanes:
    """Counts, for each lane, the queues of the process that have keys in it."""

    def __init__(self) -> None:
        self._queues: dict[str, int] = {}
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def add(self, lane: str) -> None:
        """Record that a queue has keys in the lane."""
        self._queues[lane] = self._queues.get(lane, 0) + 1

    def remove(self, lane: str) -> None:
        """Record that a queue has no more keys in the lane. Run callbacks if it was the last."""
        remaining = self._queues.pop(lane) - 1
        if remaining:
            self._queues[lane] = remaining
            return
        for callback in self._callbacks.pop(lane, ()):
            callback()

    def is_active(self, lane: str) -> bool:
        return lane in self._queues

    def call_when_idle(self, lane: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when no queue has keys in the lane any more."""
        assert lane in self._queues, f"lane {lane} is idle already"
        self._callbacks.setdefault(lane, []).append(callback)


class _DebouncedKey:
    """The timers of a key. ``last_event_s`` is None until the key receives an event."""

    __slots__ = ("deadline", "idle_s", "idle_timer", "last_event_s")

    def __init__(self, idle_s: float, deadline: asyncio.TimerHandle) -> None:
        self.idle_s = idle_s
        self.deadline = deadline
        self.last_event_s: float | None = None
        self.idle_timer: asyncio.TimerHandle | None = None


class Debouncer:
    def __init__(self, enqueue: Callable[[Key], None], active_lanes: ActiveLanes) -> None:
        self._enqueue = enqueue
        self._active_lanes = active_lanes
        self._keys: dict[Key, _DebouncedKey] = {}

    @property
    def pending(self) -> int:
        """Number of keys that have received an event and wait to be enqueued."""
        return sum(state.last_event_s is not None for state in self._keys.values())

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
        remaining_s = state.last_event_s + state.idle_s - loop.time()
        if remaining_s > 0:
            state.idle_timer = loop.call_later(remaining_s, self._check_idle, key)
        elif self._active_lanes.is_active(key.plane):
            on_idle = partial(self._check_after_plane, key, state)
            self._active_lanes.call_when_idle(key.plane, on_idle)
        else:
            self._finish(key)

    def _check_after_plane(self, key: Key, state: _DebouncedKey) -> None:
        if self._keys.get(key) is state:
            loop = asyncio.get_running_loop()
            delay_s = state.idle_s * _IDLE_PART_AFTER_PLANE
            state.idle_timer = loop.call_later(delay_s, self._check_idle, key)

    def _finish(self, key: Key) -> None:
        has_event = self._keys[key].last_event_s is not None
        self._cancel(key)
        if has_event:
            self._enqueue(key)

    def _cancel(self, key: Key) -> None:
        state = self._keys.pop(key, None)
        if state is not None:
            state.deadline.cancel()
            if state.idle_timer is not None:
                state.idle_timer.cancel()
