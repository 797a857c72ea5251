"""The event loop of the simulator: virtual time, seeded order, crashed hosts, deadlocks."""

from __future__ import annotations

import asyncio
import contextvars
from random import Random

import pytest

from testkit.sim.loop import HOST, NEVER, Deadlock, VirtualLoop, run_virtual


def test_time_jumps_to_the_next_timer() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run_virtual(Random(1), main) == 3600


def test_waiting_without_a_timer_is_a_deadlock() -> None:
    async def main(loop: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(Random(1), main)


async def _racers(loop: VirtualLoop) -> str:
    order: list[str] = []

    async def racer(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(racer(name))
    return "".join(order)


def test_the_seed_determines_the_schedule_unless_nothing_is_shuffled() -> None:
    assert run_virtual(Random(1), _racers) == run_virtual(Random(1), _racers)
    assert len({run_virtual(Random(seed), _racers) for seed in range(20)}) > 1
    assert len({run_virtual(Random(seed), _racers, NEVER) for seed in range(20)}) == 1


def test_no_callback_of_a_crashed_host_runs() -> None:
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            ran.append("worked")
        finally:
            ran.append("tidied up")

    async def main(loop: VirtualLoop) -> list[str]:
        context = contextvars.copy_context()
        context.run(HOST.set, "host-1")
        loop.create_task(work(), context=context)
        await asyncio.sleep(0.5)
        loop.kill("host-1")
        await asyncio.sleep(10)
        return list(ran)

    assert run_virtual(Random(1), main) == []


def test_a_task_of_a_paused_host_that_crashes_ends_with_the_run() -> None:
    async def work() -> None:
        await asyncio.sleep(1)

    async def main(loop: VirtualLoop) -> list[asyncio.Task[None]]:
        context = contextvars.copy_context()
        context.run(HOST.set, "host-1")
        loop.pause("host-1")
        task = loop.create_task(work(), context=context)
        await asyncio.sleep(0.5)
        loop.kill("host-1")
        await asyncio.sleep(10)
        assert not task.done()
        return [task]

    (task,) = run_virtual(Random(1), main)
    assert task.cancelled()


def test_an_unhandled_exception_ends_the_run() -> None:
    async def main(loop: VirtualLoop) -> None:
        loop.call_exception_handler({"message": "lost", "exception": ValueError("lost")})
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="lost"):
        run_virtual(Random(1), main)
