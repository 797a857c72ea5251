"""A lock by key excludes the tasks of its key and no others."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.drivers.keyed_locks import KeyedLocks
from testkit.sim.loop import VirtualLoop, run_virtual


def held_together(keys: list[str]) -> int:
    """Run one task per key. Return how many tasks held a lock at the same time at most."""
    locks = KeyedLocks()
    counts = {"now": 0, "most": 0}

    async def work(key: str) -> None:
        async with locks.hold(key):
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
            await asyncio.sleep(1)
            counts["now"] -= 1

    async def main(_loop: VirtualLoop) -> None:
        await asyncio.gather(*(work(key) for key in keys))

    run_virtual(Random(1), main)
    return counts["most"]


def test_tasks_of_one_key_run_one_after_the_other_and_those_of_others_at_once() -> None:
    assert held_together(["a", "a", "a"]) == 1
    assert held_together(["a", "b", "c"]) == 3


def test_a_task_that_arrives_between_release_and_next_holder_waits() -> None:
    """The lock is not locked at that moment, and its next waiter has not run yet."""
    locks = KeyedLocks()
    running: list[str] = []

    async def hold_and_record(name: str) -> None:
        async with locks.hold("a"):
            running.append(name)
            assert running == [name], "two tasks hold the lock"
            await asyncio.sleep(1)
            running.remove(name)

    async def main(loop: VirtualLoop) -> None:
        async def first() -> None:
            await hold_and_record("first")
            tasks.append(loop.create_task(hold_and_record("third")))

        tasks = [loop.create_task(first()), loop.create_task(hold_and_record("second"))]
        await asyncio.gather(*tasks)
        await asyncio.gather(*tasks)

    run_virtual(Random(1), main)


def test_a_lock_is_dropped_after_its_last_user_also_if_that_failed() -> None:
    locks = KeyedLocks()

    async def main(_loop: VirtualLoop) -> None:
        with pytest.raises(RuntimeError):
            async with locks.hold("a"):
                raise RuntimeError
        async with locks.hold("a"):
            pass
        assert locks._locks == {}

    run_virtual(Random(1), main)
