"""One key never in flight twice, never waiting twice, and never forgotten."""

from __future__ import annotations

import asyncio
from random import Random

from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB
from datum_compute.client.backoff import Backoff
from datum_compute.runtime.key import Key
from datum_compute.runtime.queue import WorkQueue
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual


def a_key(name: str) -> Key:
    return Key(HUB, Ref("default", name))


def a_queue() -> WorkQueue:
    return WorkQueue(Random(1), Backoff(first_s=1, most_s=60))


def test_a_key_added_twice_waits_once() -> None:
    async def main(loop: VirtualLoop) -> int:
        queue = a_queue()
        queue.add(a_key("a"))
        queue.add(a_key("a"))
        return len(queue)

    assert run_virtual(Random(1), main) == 1


def test_a_key_added_while_in_flight_comes_up_again_afterwards() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        queue = a_queue()
        queue.add(a_key("a"))
        key = await queue.take()
        queue.add(key)
        during = len(queue)
        queue.done(key)
        return during, len(queue)

    assert run_virtual(Random(1), main) == (0, 1)


def test_two_workers_never_hold_one_key_at_once() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        queue = a_queue()
        held: set[Key] = set()
        overlaps = worked = 0

        async def worker() -> None:
            nonlocal overlaps, worked
            while True:
                key = await queue.take()
                overlaps += key in held
                held.add(key)
                await asyncio.sleep(0.01)
                worked += 1
                held.discard(key)
                queue.done(key)

        workers = [loop.create_task(worker()) for _ in range(3)]
        for number in range(300):
            queue.add(a_key(str(number % 5)))
            await asyncio.sleep(0.003)
        await asyncio.sleep(5)
        for task in workers:
            task.cancel()
        return overlaps, worked

    overlaps, worked = run_virtual(Random(1), main)
    assert overlaps == 0
    assert worked > 100


def test_of_several_delays_the_earliest_wins() -> None:
    async def main(loop: VirtualLoop) -> float:
        queue = a_queue()
        queue.add_after(a_key("a"), 30)
        queue.add_after(a_key("a"), 5)
        queue.add_after(a_key("a"), 60)
        await queue.take()
        return loop.time()

    assert run_virtual(Random(1), main) == 5


def test_delays_of_a_failing_key_grow_and_are_forgotten_on_success() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        queue = a_queue()
        delays = [queue.retry(a_key("a")) for _ in range(4)]
        queue.forget(a_key("a"))
        return [*delays, queue.retry(a_key("a"))]

    first, second, third, fourth, again = run_virtual(Random(1), main)
    assert 0.5 <= first <= 1 <= second <= 2 <= third <= 4 <= fourth <= 8
    assert again <= 1
