"""A journal that passes appends to another journal, and can hold, count and refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from datum_compute.store.journal import Entry, Journal, JournalError, LoadedPlane


class FaultyJournal:
    """A journal with faults. ``arrived`` is set when ``append`` is called, held or not."""

    def __init__(self, inner: Journal) -> None:
        self._inner = inner
        self._gate = asyncio.Event()
        self._gate.set()
        self._failures: list[Exception] = []
        self.batch_sizes: list[int] = []
        self.arrived = asyncio.Event()

    def hold(self) -> None:
        self.arrived.clear()
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    def fail_next(self, error: Exception | None = None) -> None:
        self._failures.append(error or JournalError("the disk is full"))

    def forgive(self) -> None:
        """Cancel the failures that have not been raised yet."""
        self._failures.clear()

    async def load(self) -> dict[str, LoadedPlane]:
        return await self._inner.load()

    async def append(self, batch: Sequence[Entry]) -> None:
        self.batch_sizes.append(len(batch))
        self.arrived.set()
        await self._gate.wait()
        if self._failures:
            raise self._failures.pop(0)
        await self._inner.append(batch)

    async def close(self) -> None:
        await self._inner.close()
