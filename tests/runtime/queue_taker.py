"""Waits for the keys of a queue, as workers do that nobody has to call."""

from __future__ import annotations

import asyncio

from datum_compute.runtime.controller import Key
from datum_compute.runtime.queue import WorkQueue


class Taker:
    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._turn = asyncio.Event()
        queue.on_available = self._turn.set

    async def take(self) -> Key:
        while (key := self._queue.pop()) is None:
            self._turn.clear()
            await self._turn.wait()
        return key
