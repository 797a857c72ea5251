"""Fairness between projects: the delay that 10,000 objects of one cause for one of another.

An object passes several controllers in sequence, as a Workload does on its way to a cell. Each
controller has one lane, because all keys are on one plane. A reconcile takes a fixed virtual time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.controller import Key
from datum_compute.runtime.queue import WorkQueue
from testkit.sim.loop import NEVER, VirtualLoop, run_virtual
from tests.runtime.queue_taker import Taker

STAGES = 6
WORK_S = 0.01
FLOOD = 10_000


@dataclass
class Chain:
    """A sequence of controllers, each of which passes its keys on to the next."""

    loop: VirtualLoop
    concurrency: int
    arrived: dict[str, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queues = [
            WorkQueue(Random(1), Backoff(), lane_concurrency=self.concurrency)
            for _ in range(STAGES)
        ]
        takers = [Taker(queue) for queue in self.queues]
        self.workers = [
            self.loop.create_task(self._work(stage, takers[stage]))
            for stage in range(STAGES)
            for _ in range(self.concurrency)
        ]

    async def _work(self, stage: int, taker: Taker) -> None:
        while True:
            key = await taker.take()
            await asyncio.sleep(WORK_S)
            self.queues[stage].done(key)
            if stage + 1 < STAGES:
                self.queues[stage + 1].add(key)
            elif key.ref.namespace in self.arrived:
                self.arrived[key.ref.namespace].set()

    async def pass_s(self, namespace: str) -> float:
        """Return how long one object of a project takes."""
        started_s = self.loop.time()
        arrived = self.arrived[namespace] = asyncio.Event()
        self.queues[0].add(Key(HUB, Ref(namespace, "web")))
        await arrived.wait()
        return self.loop.time() - started_s

    def stop(self) -> None:
        for worker in self.workers:
            worker.cancel()


@pytest.mark.parametrize("concurrency", [1, 2, 32])
def test_ten_thousand_objects_of_a_project_at_most_double_the_delay_of_another(
    concurrency: int,
) -> None:
    async def main(loop: VirtualLoop) -> tuple[float, list[float], int]:
        chain = Chain(loop, concurrency)
        idle_s = await chain.pass_s("ns-other")
        for number in range(FLOOD):
            chain.queues[0].add(Key(HUB, Ref("ns-flood", f"w-{number}")))
        # Until the flood has reached the later controllers too.
        await asyncio.sleep(WORK_S * STAGES * 5.5)
        busy_s = [await chain.pass_s("ns-other") for _ in range(10)]
        remaining = sum(map(len, chain.queues))
        chain.stop()
        return idle_s, busy_s, remaining

    idle_s, busy_s, remaining = run_virtual(Random(1), main, NEVER)
    assert remaining > FLOOD * 0.4, "the flood must not be over"
    assert max(busy_s) <= 2 * idle_s + 1e-9, (idle_s, busy_s)
