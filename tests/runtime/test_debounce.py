"""Wake-ups that are gathered are answered once, in time, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB
from datum_compute.client.backoff import Backoff
from datum_compute.runtime.controller import Debounce, Key
from datum_compute.runtime.debounce import ActiveLanes
from datum_compute.runtime.queue import WorkQueue
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.runtime.queue_taker import Taker

KEY = Key(HUB, Ref("default", "a"))
PAUSE = Debounce(idle_s=1.0, max_s=10.0)


def passes(
    story: Callable[[WorkQueue], Awaitable[None]],
    pause: Debounce | None = PAUSE,
    busy_until_s: float = 0.0,
) -> list[int]:
    """When the key was worked on, each time with a pause afterwards; the first time at once."""

    async def main(loop: VirtualLoop) -> list[int]:
        worked, active_lanes = [], ActiveLanes()
        queue = WorkQueue(Random(1), Backoff(), active_lanes=active_lanes)
        if busy_until_s:
            active_lanes.add(KEY.plane)
            loop.call_later(busy_until_s, active_lanes.remove, KEY.plane)
        taker = Taker(queue)

        async def work() -> None:
            while True:
                key = await taker.take()
                worked.append(round(loop.time()))
                queue.debounce(key, pause)
                queue.done(key)

        working = loop.create_task(work())
        queue.add(KEY)
        await asyncio.sleep(0)
        await story(queue)
        await asyncio.sleep(100)
        working.cancel()
        return worked

    return run_virtual(Random(1), main)


def test_one_pass_answers_all_that_come_until_it_is_quiet() -> None:
    async def story(queue: WorkQueue) -> None:
        for _ in range(4):
            await asyncio.sleep(0.5)
            queue.add(KEY)

    assert passes(story) == [0, 3]


def test_what_never_gets_quiet_is_answered_at_the_end_of_the_pause() -> None:
    async def story(queue: WorkQueue) -> None:
        for _ in range(50):
            await asyncio.sleep(0.5)
            queue.add(KEY)

    assert passes(story) == [0, 10, 20, 26]


def test_it_is_not_quiet_while_others_work_on_the_plane_but_the_pause_ends() -> None:
    async def story(queue: WorkQueue) -> None:
        await asyncio.sleep(0.5)
        queue.add(KEY)

    assert passes(story, busy_until_s=4.2) == [0, 4], "and only for a moment afterwards"
    assert passes(story, busy_until_s=60) == [0, 10]


def test_a_wake_up_during_the_pass_itself_is_gathered_and_not_lost() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        queue, worked = WorkQueue(Random(1), Backoff()), []
        taker = Taker(queue)
        queue.add(KEY)
        for _ in range(2):
            key = await taker.take()
            worked.append(round(loop.time()))
            if len(worked) == 1:
                queue.add(KEY)
            queue.debounce(key, PAUSE)
            queue.done(key)
        return worked

    assert run_virtual(Random(1), main) == [0, 1]


def test_a_key_that_nobody_woke_during_its_pause_comes_up_at_once_afterwards() -> None:
    async def story(queue: WorkQueue) -> None:
        await asyncio.sleep(20)
        queue.add(KEY)

    assert passes(story) == [0, 20]


def test_without_a_pause_every_wake_up_is_answered() -> None:
    async def story(queue: WorkQueue) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            queue.add(KEY)

    assert passes(story, None) == [0, 1, 2, 3]


def test_a_dropped_plane_and_a_closed_queue_bring_up_nothing() -> None:
    async def dropped(queue: WorkQueue) -> None:
        queue.add(KEY)
        queue.drop_plane(HUB)

    async def closed(queue: WorkQueue) -> None:
        queue.add(KEY)
        queue.close()

    assert passes(dropped) == passes(closed) == [0]
