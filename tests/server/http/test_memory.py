"""When freed memory is returned to the system."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from datum_compute.server.http.memory import (
    CHECK_EVERY_S,
    EXCESS_BYTES_MIN,
    RELEASED_BYTES_MIN,
    TIME_SHARE_MAX,
    TRIM_EVERY_MAX_S,
    MemoryTrimmer,
    resident_bytes,
)

MIB = 1024 * 1024


@dataclass
class Process:
    """A process with resident memory. A trim returns what is free."""

    clock: Clock
    used: int = 100 * MIB
    free: int = 0
    trims: int = 0
    trim_s: float = 0.0

    def resident(self) -> int:
        return self.used + self.free

    def trim(self) -> None:
        self.trims += 1
        self.free = 0
        self.clock.now_s += self.trim_s


@dataclass
class World:
    process: Process
    trimmer: MemoryTrimmer
    clock: Clock

    async def check(self) -> int:
        """Check after the usual time. Return how many trims that caused."""
        before = self.process.trims
        self.clock.now_s += CHECK_EVERY_S
        trimming = self.trimmer.check()
        if trimming is not None:
            await trimming
        return self.process.trims - before


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def world() -> World:
    clock = Clock()
    process = Process(clock)
    trimmer = MemoryTrimmer(lambda: None, process.resident, process.trim, clock)
    return World(process, trimmer, clock)


async def test_memory_that_is_free_after_a_flood_is_returned(world: World) -> None:
    world.trimmer.start()
    assert await world.check() == 0
    world.process.free = 500 * MIB
    assert await world.check() == 1
    assert world.process.resident() == 100 * MIB
    assert [await world.check() for _ in range(20)] == [0] * 20
    world.trimmer.stop()


async def test_memory_that_becomes_free_after_a_trim_is_returned(world: World) -> None:
    """No connection reports that it has released memory."""
    world.trimmer.start()
    world.process.used = 600 * MIB
    assert await world.check() == 1
    world.process.used, world.process.free = 100 * MIB, 500 * MIB
    checks = int(TRIM_EVERY_MAX_S / CHECK_EVERY_S) + 1
    assert sum([await world.check() for _ in range(checks)]) == 1
    assert world.process.resident() == 100 * MIB
    world.trimmer.stop()


async def test_trims_that_return_nothing_become_rare(world: World) -> None:
    world.trimmer.start()
    world.process.used = 600 * MIB
    hour = int(3600 / CHECK_EVERY_S)
    assert sum([await world.check() for _ in range(hour)]) <= 3600 / TRIM_EVERY_MAX_S + 5
    world.trimmer.stop()


async def test_released_connections_cause_a_trim_at_the_next_check(world: World) -> None:
    world.trimmer.start()
    world.process.used = 600 * MIB
    for _ in range(100):
        await world.check()
    while await world.check():
        pass
    world.process.used, world.process.free = 100 * MIB, 500 * MIB
    world.trimmer.note_released(RELEASED_BYTES_MIN)
    assert await world.check() == 1
    assert world.process.resident() == 100 * MIB
    world.trimmer.stop()


async def test_a_small_process_is_not_trimmed(world: World) -> None:
    world.trimmer.start()
    world.process.free = EXCESS_BYTES_MIN - 1
    world.trimmer.note_released(10 * RELEASED_BYTES_MIN)
    assert await world.check() == 0
    world.trimmer.stop()


async def test_a_slow_trim_is_followed_by_a_long_pause(world: World) -> None:
    world.process.trim_s = 1.0
    world.trimmer.start()
    caused = []
    for _ in range(2 * int(world.process.trim_s / TIME_SHARE_MAX / CHECK_EVERY_S)):
        world.process.free += 100 * MIB  # the flood continues
        caused.append(await world.check())
    assert sum(caused) == 2
    world.trimmer.stop()


async def test_the_resident_memory_of_this_process_is_known() -> None:
    found = await asyncio.to_thread(resident_bytes)
    assert found is None or found > MIB
