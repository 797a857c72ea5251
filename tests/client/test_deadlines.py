"""One timer for many waits: whoever takes too long is ended, nobody else, and not too late."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.client.watch import Deadlines
from testkit.sim.loop import VirtualLoop, run_virtual


async def within(deadlines: Deadlines, seconds: float) -> str:
    task = deadlines.begin()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not deadlines.passed(task):
            raise
        return "too long"
    finally:
        deadlines.end(task)
    return "in time"


def test_only_waits_beyond_the_limit_are_ended_and_each_at_its_own_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[str], float]:
        deadlines = Deadlines(10)

        async def later(seconds: float) -> str:
            await asyncio.sleep(4)
            return await within(deadlines, seconds)

        waits = (within(deadlines, 9), within(deadlines, 100), later(9), later(100))
        return list(await asyncio.gather(*waits)), loop.time()

    ended, at_s = run_virtual(Random(1), main)
    assert ended == ["in time", "too long", "in time", "too long"]
    assert at_s == 14


def test_many_short_waits_in_a_row_are_no_long_one() -> None:
    async def main(loop: VirtualLoop) -> set[str]:
        deadlines = Deadlines(10)
        return {await within(deadlines, 3) for _ in range(20)}

    assert run_virtual(Random(1), main) == {"in time"}


def test_a_task_goes_on_after_its_deadline_and_can_still_be_cancelled() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[str], int]:
        deadlines, seen = Deadlines(10), []

        async def work() -> None:
            seen.append(await within(deadlines, 100))
            await asyncio.sleep(1)
            seen.append("went on")
            await within(deadlines, 5)

        task = loop.create_task(work())
        await asyncio.sleep(12)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen, task.cancelling()

    assert run_virtual(Random(1), main) == (["too long", "went on"], 1)
