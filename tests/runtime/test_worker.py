"""Who works on the keys of a queue: as many as there are turns, each on its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB
from datum_compute.client.backoff import Backoff
from datum_compute.client.client import Client
from datum_compute.client.inprocess import InProcessTransport
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.worker import RECONCILES_PER_TASK, WorkerPool
from testkit.sim.loop import VirtualLoop, run_virtual

Work = Callable[[Key], Awaitable[None]]
ABOUT: contextvars.ContextVar[str] = contextvars.ContextVar("ABOUT", default="")


def a_key(number: int) -> Key:
    return Key(HUB, Ref("", f"{number:03d}"))


def workers_of(queue: WorkQueue, work: Work) -> WorkerPool[None]:
    async def reconcile(_: None, key: Key) -> Outcome:
        await work(key)
        return Done()

    controller = Controller(name="test", role="hub", reconcile=reconcile, edges=(for_(NAMESPACE),))
    client = Client(InProcessTransport(_nobody_answers), prefix="", token="", agent="test")
    view = CachedClient(HUB, client, Random(1))
    return WorkerPool(controller, queue, None, lambda _plane: view, Random(1), None)


async def _nobody_answers(_request: Request) -> Response:
    raise AssertionError("nothing is asked for")


def a_queue(share: int) -> WorkQueue:
    return WorkQueue(Random(1), Backoff(), lane_concurrency=share)


@pytest.mark.parametrize("share", [1, 3])
def test_as_many_work_at_once_as_a_lane_may_have_and_everything_gets_done(share: int) -> None:
    async def main(loop: VirtualLoop) -> tuple[int, list[str], int]:
        now = most = 0
        worked: list[str] = []

        async def work(key: Key) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.1)
            now -= 1
            worked.append(key.ref.name)

        queue = a_queue(share)
        for number in range(20):
            queue.add(a_key(number))
        workers = workers_of(queue, work)
        workers.start()
        for number in range(20, 40):
            queue.add(a_key(number))
        await asyncio.sleep(10)
        return most, sorted(worked), len(workers.running_tasks())

    most, worked, busy = run_virtual(Random(1), main)
    assert most == share
    assert worked == [f"{number:03d}" for number in range(40)]
    assert busy == 0


def test_a_worker_that_is_cancelled_leaves_its_turn_to_another() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        worked: list[str] = []

        async def work(key: Key) -> None:
            if key.ref.name in ("000", "003"):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(1)
            worked.append(key.ref.name)

        queue = a_queue(1)
        for number in range(6):
            queue.add(a_key(number))
        workers_of(queue, work).start()
        await asyncio.sleep(10)
        return worked

    assert run_virtual(Random(1), main) == ["001", "002", "004", "005"]


def test_who_never_waits_lets_others_run() -> None:
    async def main(loop: VirtualLoop) -> int:
        worked = 0
        begun = asyncio.Event()

        async def work(_key: Key) -> None:
            nonlocal worked
            worked += 1
            begun.set()

        queue = a_queue(1)
        for number in range(10 * RECONCILES_PER_TASK):
            queue.add(a_key(number))
        workers_of(queue, work).start()
        await begun.wait()
        seen = worked
        await asyncio.sleep(1)
        assert worked == 10 * RECONCILES_PER_TASK
        return seen

    # The schedule may let the successor of the first worker run before us, but not all of them.
    assert run_virtual(Random(1), main) < 10 * RECONCILES_PER_TASK


def test_work_is_not_about_what_the_one_was_about_who_woke_it() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        seen: list[str] = []

        async def work(key: Key) -> None:
            seen.append(ABOUT.get())
            ABOUT.set(key.ref.name)
            await asyncio.sleep(0.1)

        queue = a_queue(2)
        workers_of(queue, work).start()
        ABOUT.set("the one who wakes")
        queue.add(a_key(0))
        queue.add(a_key(1))
        await asyncio.sleep(1)
        return seen

    assert run_virtual(Random(1), main) == ["", ""]


def test_nobody_is_called_any_more_once_the_queue_is_closed() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[str], int]:
        worked: list[str] = []

        async def work(key: Key) -> None:
            await asyncio.sleep(1)
            worked.append(key.ref.name)

        queue = a_queue(1)
        workers = workers_of(queue, work)
        workers.start()
        queue.add(a_key(0))
        queue.add(a_key(1))
        await asyncio.sleep(0.5)
        queue.close()
        queue.add(a_key(2))
        await asyncio.sleep(5)
        return worked, len(workers.running_tasks())

    assert run_virtual(Random(1), main) == (["000"], 0)
