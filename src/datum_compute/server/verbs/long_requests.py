"""Long waits on behalf of clients, such as watches, so that shutdown can end them.

``close`` ends all of them, and no new one starts. They are ended in the order in which they began,
so that a simulation is deterministic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial


class LongRequests:
    def __init__(self) -> None:
        self._waits: dict[object, Callable[[], None]] = {}  # the function that ends each wait
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def close(self) -> None:
        self._closed = True
        for end in list(self._waits.values()):
            end()

    def start(self, waiter: object, end: Callable[[], None]) -> None:
        """Register a wait that ``end`` ends. Call this before each wait."""
        self._waits[waiter] = end

    def finish(self, waiter: object) -> None:
        self._waits.pop(waiter, None)

    @asynccontextmanager
    async def interruptible(self, timeout_s: float | None) -> AsyncIterator[asyncio.Timeout]:
        """A wait that raises TimeoutError after ``timeout_s``, when it is ended, or at shutdown."""
        async with asyncio.timeout(timeout_s) as wait:
            self.start(wait, partial(end_now, wait))
            try:
                if self._closed:
                    end_now(wait)
                yield wait
            finally:
                self.finish(wait)


def end_now(wait: asyncio.Timeout) -> None:
    if not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
