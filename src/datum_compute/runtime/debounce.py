"""Gathers the wake-ups of a key for a while, so that one pass answers many of them.

A key is paused from the end of a pass until its ``most_s`` are over. Woken meanwhile, it comes up
when it has been quiet for ``quiet_s``, or when the pause ends; never is a wake-up lost. Quiet is a
key that nobody wakes, on a plane where nobody works: what is under way there most often ends in
one more wake-up. So where somebody works, it is looked at again a moment after the last of them has
left.

Which lanes are worked on, by any of the queues of a process, and who waits for one to be quiet.

Said by queues when a lane begins to hold keys and when its last is done; asked by those who gather
wake-ups (``pauses.py``), so that nobody has to look again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from datum_compute.api.plane import PlaneName
from datum_compute.runtime.controller import Debounce, Key


class Bustle:
    def __init__(self) -> None:
        self._queues: dict[str, int] = {}  # in how many of them each lane holds keys
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def begin(self, lane: str) -> None:
        self._queues[lane] = self._queues.get(lane, 0) + 1

    def end(self, lane: str) -> None:
        """The last one out tells those who wait."""
        left = self._queues.pop(lane) - 1
        if left:
            self._queues[lane] = left
            return
        for tell in self._waiting.pop(lane, ()):
            tell()

    def is_busy(self, lane: str) -> bool:
        return lane in self._queues

    def when_quiet(self, lane: str, tell: Callable[[], None]) -> None:
        """Be told once, as soon as nobody works there."""
        assert lane in self._queues, "who finds it quiet need not wait"
        self._waiting.setdefault(lane, []).append(tell)


# The part of its quiet that a key waits for the echo of what others did last. All of it would be
# too long: where much goes on, somebody has come again by then.
_ECHO = 0.25


class _Paused:
    __slots__ = ("end", "quiet", "quiet_s", "woken_s")

    def __init__(self, quiet_s: float, end: asyncio.TimerHandle) -> None:
        self.quiet_s = quiet_s
        self.end = end
        self.woken_s: float | None = None  # when last, if at all
        self.quiet: asyncio.TimerHandle | None = None


class Debouncer:
    def __init__(self, wake: Callable[[Key], None], bustle: Bustle) -> None:
        self._wake = wake
        self._bustle = bustle
        self._paused: dict[Key, _Paused] = {}

    @property
    def waiting(self) -> int:
        """How many keys have been woken and wait for the end of their pause."""
        return sum(paused.woken_s is not None for paused in self._paused.values())

    def begin(self, key: Key, pause: Debounce) -> None:
        self._forget(key)
        end = asyncio.get_running_loop().call_later(pause.max_s, self._over, key)
        self._paused[key] = _Paused(pause.idle_s, end)

    def gathers(self, key: Key) -> bool:
        """Whether the key is paused; then it comes up by itself."""
        paused = self._paused.get(key)
        if paused is None:
            return False
        loop = asyncio.get_running_loop()
        paused.woken_s = loop.time()
        if paused.quiet is None:
            paused.quiet = loop.call_later(paused.quiet_s, self._look, key)
        return True

    def drop(self, plane: PlaneName) -> None:
        for key in [key for key in self._paused if key.plane == plane]:
            self._forget(key)

    def close(self) -> None:
        for key in list(self._paused):
            self._forget(key)

    def _look(self, key: Key) -> None:
        """Whether it has been quiet for long enough; else again when it may have been."""
        paused, loop = self._paused[key], asyncio.get_running_loop()
        assert paused.woken_s is not None, "only what was woken is looked at"
        left_s = paused.woken_s + paused.quiet_s - loop.time()
        if left_s > 0:
            paused.quiet = loop.call_later(left_s, self._look, key)
        elif self._bustle.is_busy(key.plane):
            self._bustle.when_quiet(key.plane, partial(self._look_again, key, paused))
        else:
            self._over(key)

    def _look_again(self, key: Key, paused: _Paused) -> None:
        """Nobody works on the plane any more, for now; that may bring one more wake-up."""
        if self._paused.get(key) is paused:
            loop = asyncio.get_running_loop()
            paused.quiet = loop.call_later(paused.quiet_s * _ECHO, self._look, key)

    def _over(self, key: Key) -> None:
        woken = self._paused[key].woken_s is not None
        self._forget(key)
        if woken:
            self._wake(key)

    def _forget(self, key: Key) -> None:
        paused = self._paused.pop(key, None)
        if paused is not None:
            paused.end.cancel()
            if paused.quiet is not None:
                paused.quiet.cancel()
