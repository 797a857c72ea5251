"""Mutual exclusion by key, for the work of drivers on one machine or one image."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class KeyedLocks:
    """One lock for each key. A lock exists only while a task holds it or waits for it.

    Users are counted, because `Lock.locked()` is False after a release and before the next waiter
    has run. A lock that was dropped then would let a third task run beside that waiter.
    """

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None, None]:
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)
