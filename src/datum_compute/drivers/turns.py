"""One after the other, for each machine: who comes while another is at it waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turns:
    """A lock for each machine that anybody holds or waits for, and for no other."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, machine_id: str) -> AsyncGenerator[None, None]:
        lock, users = self._locks.get(machine_id, (asyncio.Lock(), 0))
        self._locks[machine_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(machine_id)
            if users > 1:
                self._locks[machine_id] = (lock, users - 1)
