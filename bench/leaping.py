"""An event loop whose clock leaps: an hour in which hardly anything happens passes in seconds.

While it leaps, whoever sleeps is woken as soon as nobody has anything to do; everything else (disk,
threads) takes the time it takes. Measurements are made when it does not leap.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# What is under way outside of the loop (a sync of the disk) has so long to end before a leap.
PATIENCE_S = 0.002


class _LeapingSelector(selectors.DefaultSelector):
    """Waits no longer than for what is under way."""

    clock: LeapingClock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.clock.leaps or timeout is None or timeout <= PATIENCE_S:
            return super().select(timeout)
        found = super().select(PATIENCE_S)
        if not found:
            self.clock.ahead_s += timeout
        return found


class LeapingClock:
    def __init__(self) -> None:
        self.leaps = False
        self.ahead_s = 0.0  # of the clock of the machine

    def unix_s(self) -> float:
        return time.time() + self.ahead_s

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_s

    async def sleep(self, seconds: float) -> None:
        """Leap over so much time."""
        self.leaps = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.leaps = False

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """As asyncio.run."""
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(main)

    def _loop(self) -> asyncio.AbstractEventLoop:
        selector = _LeapingSelector()
        selector.clock = self
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = self.monotonic_s  # type: ignore[method-assign]
        return loop
