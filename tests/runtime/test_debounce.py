"""Debounce: events are coalesced into one reconcile, in time, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.controller import Debounce, Key
from datum_compute.runtime.queue import WorkQueue
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.runtime.queue_taker import Taker

KEY = Key(HUB, Ref("default", "a"))
DEBOUNCE = Debounce(idle_s=1.0, max_s=10.0)


def reconcile_times(
    send_events: Callable[[WorkQueue], Awaitable[None]],
    debounce: Debounce | None = DEBOUNCE,
) -> list[int]:
    """Return when the key was reconciled. Each reconcile starts the debounce."""

    async def main(loop: VirtualLoop) -> list[int]:
        times, queue = [], WorkQueue(Random(1), Backoff())
        taker = Taker(queue)

        async def work() -> None:
            while True:
                key = await taker.take()
                times.append(round(loop.time()))
                queue.debounce(key, debounce)
                queue.done(key)

        task = loop.create_task(work())
        queue.add(KEY)
        await asyncio.sleep(0)
        await send_events(queue)
        await asyncio.sleep(100)
        task.cancel()
        return times

    return run_virtual(Random(1), main)


def test_one_reconcile_follows_all_events_until_the_key_is_idle() -> None:
    async def send_events(queue: WorkQueue) -> None:
        for _ in range(4):
            await asyncio.sleep(0.5)
            queue.add(KEY)

    assert reconcile_times(send_events) == [0, 3]


def test_a_key_that_is_never_idle_is_reconciled_after_max_s() -> None:
    async def send_events(queue: WorkQueue) -> None:
        for _ in range(50):
            await asyncio.sleep(0.5)
            queue.add(KEY)

    assert reconcile_times(send_events) == [0, 10, 20, 26]


def test_an_event_during_the_reconcile_is_debounced_and_not_lost() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        queue, times = WorkQueue(Random(1), Backoff()), []
        taker = Taker(queue)
        queue.add(KEY)
        for _ in range(2):
            key = await taker.take()
            times.append(round(loop.time()))
            if len(times) == 1:
                queue.add(KEY)
            queue.debounce(key, DEBOUNCE)
            queue.done(key)
        return times

    assert run_virtual(Random(1), main) == [0, 1]


def test_a_key_without_events_is_not_debounced_after_max_s() -> None:
    async def send_events(queue: WorkQueue) -> None:
        await asyncio.sleep(20)
        queue.add(KEY)

    assert reconcile_times(send_events) == [0, 20]


def test_without_debounce_every_event_leads_to_a_reconcile() -> None:
    async def send_events(queue: WorkQueue) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            queue.add(KEY)

    assert reconcile_times(send_events, None) == [0, 1, 2, 3]


def test_the_idle_time_grows_with_the_number_of_keys_that_wait() -> None:
    async def main(loop: VirtualLoop) -> dict[str, int]:
        queue, times = WorkQueue(Random(1), Backoff()), dict[str, int]()
        taker = Taker(queue)
        names = "abc"
        for _ in range(2):
            for name in names:
                queue.add(Key(HUB, Ref("default", name)))
            for _ in names:
                key = await taker.take()
                times[key.ref.name] = round(loop.time())
                queue.debounce(key, DEBOUNCE)
                queue.done(key)
        return times

    # Three keys wait: the first is idle after 3 s. Then fewer keys wait.
    assert run_virtual(Random(1), main) == {"a": 3, "b": 3, "c": 3}


def test_a_dropped_plane_and_a_closed_queue_reconcile_nothing() -> None:
    async def dropped(queue: WorkQueue) -> None:
        queue.add(KEY)
        queue.drop_plane(HUB)

    async def closed(queue: WorkQueue) -> None:
        queue.add(KEY)
        queue.close()

    assert reconcile_times(dropped) == reconcile_times(closed) == [0]
