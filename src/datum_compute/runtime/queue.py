"""A queue of keys: each waits at most once, is never in flight twice, and may wait for later.

A key added while it is being worked on waits until that work is done, then comes up again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

from datum_compute.client.backoff import Backoff
from datum_compute.runtime.key import Key


class WorkQueue:
    def __init__(self, random: Random, backoff: Backoff) -> None:
        self._random = random
        self._backoff = backoff
        self._ready: deque[Key] = deque()
        self._wanted: set[Key] = set()
        self._in_flight: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        self._cancel_timer(key)
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._in_flight:
            self._make_ready(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Add later; the earliest of several wishes wins."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    async def take(self) -> Key:
        """The next key; it stays in flight until done() is called."""
        while not self._ready:
            self._news.clear()
            await self._news.wait()
        key = self._ready.popleft()
        self._wanted.discard(key)
        self._in_flight.add(key)
        return key

    def done(self, key: Key) -> None:
        self._in_flight.discard(key)
        if key in self._wanted:
            self._make_ready(key)

    def retry(self, key: Key) -> float:
        """Add later, ever later while it keeps failing; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(failures, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: Key) -> None:
        """The key succeeded: its failures no longer count."""
        self._failures.pop(key, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _make_ready(self, key: Key) -> None:
        self._ready.append(key)
        self._news.set()

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
