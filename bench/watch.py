"""How many events the watch log hands to how many readers."""

from __future__ import annotations

import asyncio
import time

from bench.measurement import Measurement
from datum_compute.store.journal import MemoryJournal
from datum_compute.store.store import Store
from datum_compute.store.watch_log import Watch
from testkit.conformance.plane import ENOUGH_S, PLANE, THINGS, body, running, thing

EVENTS = 1000


def measure() -> list[Measurement]:
    return [
        Measurement("1 reader", asyncio.run(deliveries(1)), "events/s"),
        Measurement("100 readers", asyncio.run(deliveries(100)), "events/s"),
        Measurement("1000 readers", asyncio.run(deliveries(1000)), "events/s"),
    ]


async def deliveries(readers: int) -> float:
    """Events delivered a second, over all readers, while one writer writes without pause."""
    async with running(MemoryJournal()) as store:
        watches = [store.watch(PLANE, THINGS, 0) for _ in range(readers)]
        start = time.perf_counter()
        await asyncio.gather(write(store), *(read(watch) for watch in watches))
        return readers * EVENTS / (time.perf_counter() - start)


async def write(store: Store) -> None:
    version = 0
    for _ in range(EVENTS):
        version = (await store.put(PLANE, thing("thing"), version, body("thing"))).version


async def read(watch: Watch) -> None:
    seen = 0
    while seen < EVENTS:
        seen += len(await watch.next_events(ENOUGH_S))
