"""Everything that waits for a long time on behalf of a client, so that it can be ended.

Shutdown calls ``close``: every watch ends its stream at once and no new one begins. Waits are
kept in the order they began, so that a simulated run ends them in the same order every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class OpenStreams:
    def __init__(self) -> None:
        self._waits: dict[asyncio.Timeout, None] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        return len(self._waits)

    def close(self) -> None:
        self._closed = True
        for wait in list(self._waits):
            end_now(wait)

    @asynccontextmanager
    async def interruptible(self, timeout_s: float | None) -> AsyncIterator[asyncio.Timeout]:
        """A wait that raises TimeoutError after its time, when ended, or at shutdown."""
        async with asyncio.timeout(timeout_s) as wait:
            self._waits[wait] = None
            try:
                if self._closed:
                    end_now(wait)
                yield wait
            finally:
                del self._waits[wait]


def end_now(wait: asyncio.Timeout) -> None:
    if not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
