"""The disk of a simulated host: committed rows survive crashes, and writes can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from datum_compute.store.journal import (
    Entry,
    JournalBroken,
    JournalError,
    LoadedPlane,
    MemoryJournal,
)

CommitHook = Callable[[int, Sequence[Entry]], None]
# Called before and after every commit with True if it is durable. Returning True crashes the host.
CrashPoint = Callable[[Sequence[Entry], bool], bool]

_LATENCY_S = (0.0005, 0.004)


@dataclass(slots=True)
class Disk:
    random: Random
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    commits: int = 0
    full: bool = False
    failed: bool = False  # it refused a commit or left its result unknown
    slowness: float = 1.0
    # Each entry fails one commit with an unknown result: True keeps the commit, False drops it.
    doubtful: list[bool] = field(default_factory=list)
    crash_points: list[CrashPoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DiskJournal:
    """The journal of one process. The disk of the host survives the process."""

    disk: Disk
    on_commit: CommitHook
    die: Callable[[], None]

    async def load(self) -> dict[str, LoadedPlane]:
        return await self.disk.journal.load()

    async def append(self, batch: Sequence[Entry]) -> None:
        disk = self.disk
        await asyncio.sleep(disk.random.uniform(*_LATENCY_S) * disk.slowness)
        disk.failed = disk.failed or disk.full or bool(disk.doubtful)
        if disk.full:
            raise JournalError("no space is left on the disk")
        disk.commits += 1
        if disk.crash_points:
            await self._perhaps_die(batch, durable=False)
        kept = disk.doubtful.pop(0) if disk.doubtful else None
        if kept is not False:
            await disk.journal.append(batch)
            self.on_commit(disk.commits, batch)
        if kept is not None:
            raise JournalBroken("the disk did not confirm what was written")
        if disk.crash_points:
            await self._perhaps_die(batch, durable=True)

    async def close(self) -> None:
        return None

    async def _perhaps_die(self, batch: Sequence[Entry], *, durable: bool) -> None:
        for point in list(self.disk.crash_points):
            if point(batch, durable):
                self.disk.crash_points.remove(point)
                self.die()
                # Wait forever: the host has crashed.
                await asyncio.get_running_loop().create_future()
