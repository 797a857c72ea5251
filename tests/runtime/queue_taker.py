"""Pops keys from a queue and waits if there is none."""

from __future__ import annotations

import asyncio

from datum_compute.runtime.controller import Key
from datum_compute.runtime.queue import WorkQueue


class Taker:
    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._available = asyncio.Event()
        queue.on_available = self._available.set

    async def take(self) -> Key:
        while (key := self._queue.pop()) is None:
            self._available.clear()
            await self._available.wait()
        return key
