"""WorkerPool: as many workers as keys are available, independent of each other."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.worker import RECONCILES_PER_TASK, WorkerPool
from testkit.sim.loop import VirtualLoop, run_virtual

Work = Callable[[Key], Awaitable[None]]
FIELDS: contextvars.ContextVar[str] = contextvars.ContextVar("FIELDS", default="")


def a_key(number: int) -> Key:
    return Key(HUB, Ref("", f"{number:03d}"))


def workers_of(queue: WorkQueue, work: Work) -> WorkerPool[None]:
    async def reconcile(_: None, key: Key) -> Outcome:
        await work(key)
        return Done()

    controller = Controller(name="test", role="hub", reconcile=reconcile, edges=(for_(NAMESPACE),))
    client = Client(InProcessTransport(_reject_requests), prefix="", token="", agent="test")
    cached_client = CachedClient(HUB, client, Random(1))
    return WorkerPool(controller, queue, None, lambda _plane: cached_client, Random(1), None)


async def _reject_requests(_request: Request) -> Response:
    raise AssertionError("unexpected request")


def a_queue(concurrency: int) -> WorkQueue:
    return WorkQueue(Random(1), Backoff(), lane_concurrency=concurrency)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_all_keys_are_reconciled_with_the_concurrency_of_the_lane(concurrency: int) -> None:
    async def main(loop: VirtualLoop) -> tuple[int, list[str], int]:
        now = highest = 0
        worked: list[str] = []

        async def work(key: Key) -> None:
            nonlocal now, highest
            now += 1
            highest = max(highest, now)
            await asyncio.sleep(0.1)
            now -= 1
            worked.append(key.ref.name)

        queue = a_queue(concurrency)
        for number in range(20):
            queue.add(a_key(number))
        workers = workers_of(queue, work)
        workers.start()
        for number in range(20, 40):
            queue.add(a_key(number))
        await asyncio.sleep(10)
        return highest, sorted(worked), len(workers.running_tasks())

    highest, worked, busy = run_virtual(Random(1), main)
    assert highest == concurrency
    assert worked == [f"{number:03d}" for number in range(40)]
    assert busy == 0


def test_another_worker_replaces_a_cancelled_one() -> None:
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


def test_reconciles_that_never_wait_let_other_tasks_run() -> None:
    async def main(loop: VirtualLoop) -> int:
        worked = 0
        started = asyncio.Event()

        async def work(_key: Key) -> None:
            nonlocal worked
            worked += 1
            started.set()

        queue = a_queue(1)
        for number in range(10 * RECONCILES_PER_TASK):
            queue.add(a_key(number))
        workers_of(queue, work).start()
        await started.wait()
        during = worked
        await asyncio.sleep(1)
        assert worked == 10 * RECONCILES_PER_TASK
        return during

    # The next worker may run before this test, but not all of them.
    assert run_virtual(Random(1), main) < 10 * RECONCILES_PER_TASK


def test_workers_do_not_inherit_the_context_of_the_task_that_adds_a_key() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        seen: list[str] = []

        async def work(key: Key) -> None:
            seen.append(FIELDS.get())
            FIELDS.set(key.ref.name)
            await asyncio.sleep(0.1)

        queue = a_queue(2)
        workers_of(queue, work).start()
        FIELDS.set("of the adding task")
        queue.add(a_key(0))
        queue.add(a_key(1))
        await asyncio.sleep(1)
        return seen

    assert run_virtual(Random(1), main) == ["", ""]


def test_no_reconcile_starts_after_the_queue_is_closed() -> None:
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
