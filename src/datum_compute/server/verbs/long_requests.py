"""Everything that waits for a long time on behalf of a client, so that it can be ended.

Shutdown calls ``close``: every watch ends its stream at once and no new one begins. Waits are
kept in the order they began, so that a simulated run ends them in the same order every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial


class LongRequests:
    def __init__(self) -> None:
        self._waits: dict[object, Callable[[], None]] = {}  # who waits, and how that is ended
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def close(self) -> None:
        self._closed = True
        for end in list(self._waits.values()):
            end()

    def began(self, waiter: object, end: Callable[[], None]) -> None:
        """Somebody waits who can be ended by a call; told before every wait."""
        self._waits[waiter] = end

    def ended(self, waiter: object) -> None:
        self._waits.pop(waiter, None)

    @asynccontextmanager
    async def interruptible(self, timeout_s: float | None) -> AsyncIterator[asyncio.Timeout]:
        """A wait that raises TimeoutError after its time, when ended, or at shutdown."""
        async with asyncio.timeout(timeout_s) as wait:
            self.began(wait, partial(end_now, wait))
            try:
                if self._closed:
                    end_now(wait)
                yield wait
            finally:
                self.ended(wait)


def end_now(wait: asyncio.Timeout) -> None:
    if not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
