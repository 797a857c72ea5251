"""Wakes keys after a while: thousands of them with few timers.

A loop keeps its timers in order, and every one that is set and cancelled costs it something. Keys
that wait for a second or more are grouped: all that are due within the same tick come up together,
at its end; ticks are longer for those that wait for minutes. Who waits for less than a second comes
up in time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from datum_compute.api.plane import PlaneName
from datum_compute.runtime.key import Key

TICK_S = 0.1
SHORT_S = 1.0
LONG_TICK_S = 1.0
LONG_S = 60.0


class DelayTimers:
    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._due: dict[Key, float] = {}
        self._ticks: dict[float, dict[Key, None]] = {}  # by when they end
        self._handles: dict[float, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, seconds: float) -> None:
        """The earliest of several wishes wins."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + seconds
        if seconds >= SHORT_S:
            tick_s = TICK_S if seconds < LONG_S else LONG_TICK_S
            at_s = math.ceil(at_s / tick_s) * tick_s
        known_s = self._due.get(key)
        if known_s is not None and known_s <= at_s:
            return
        self.cancel(key)
        self._due[key] = at_s
        tick = self._ticks.get(at_s)
        if tick is None:
            tick = self._ticks[at_s] = {}
            self._handles[at_s] = loop.call_at(at_s, self._over, at_s)
        tick[key] = None

    def cancel(self, key: Key) -> None:
        """A tick that nobody waits for any more passes unnoticed."""
        at_s = self._due.pop(key, None)
        if at_s is not None:
            del self._ticks[at_s][key]

    def drop(self, plane: PlaneName) -> None:
        for key in [key for key in self._due if key.plane == plane]:
            self.cancel(key)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._due.clear()
        self._ticks.clear()
        self._handles.clear()

    def _over(self, at_s: float) -> None:
        del self._handles[at_s]
        for key in self._ticks.pop(at_s):
            del self._due[key]
            self._wake(key)
