"""Many Workloads of one project delay a Workload of another by a limited factor, in virtual time.

Only commits take time. The time is measured from the create request to an available Workload."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from datum_compute.api.conditions import is_true
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PlaneName, cell_plane, member_name
from datum_compute.client.client import Client
from datum_compute.store.journal import Entry, MemoryJournal
from testkit.sim.actors.users import DesiredWorkload, manifest
from tests.app.running_platform import (
    FIRST,
    Running,
    create_project,
    on_a_platform,
    request_access,
)

FLOOD = 100


class SlowDisk(MemoryJournal):
    """A commit takes 2 ms, and each write 0.1 ms."""

    async def append(self, batch: Sequence[Entry]) -> None:
        await asyncio.sleep(0.002 + 0.0001 * len(batch))
        await super().append(batch)


async def create(running: Running, plane: PlaneName, name: str) -> None:
    web = manifest((member_name(plane), name), DesiredWorkload("web:1", 1, ("DFW",)))
    await running.client(plane).create_plain(WORKLOAD, web)


async def measure_start_s(running: Running, plane: PlaneName, name: str) -> float:
    """Return how long a Workload takes to become available."""
    client, begun_s = running.client(plane), running.loop.time()
    await create(running, plane, name)

    async with asyncio.timeout(300.0):
        while not await _is_available(client, name):  # noqa: ASYNC110 - the API has no event for it
            await asyncio.sleep(0.005)
    return running.loop.time() - begun_s


async def _is_available(client: Client, name: str) -> bool:
    found = await client.get(WORKLOAD, Ref("default", name))
    return is_true(found.status.conditions, "Available")


def test_a_flood_of_workloads_at_most_doubles_the_start_time_in_another_project() -> None:
    found: list[float] = []

    async def story(running: Running) -> None:
        await running.stop()
        disk = SlowDisk()
        disk.__dict__.update(running.disk.copy().__dict__)
        running.disk = disk
        await running.start()
        second = await create_project(running, "second")
        await request_access(running, second)
        await measure_start_s(running, second, "first")  # also creates the network
        await measure_start_s(running, FIRST, "first")
        await asyncio.sleep(5)
        found.append(await measure_start_s(running, second, "alone"))
        await asyncio.sleep(5)
        flood = [create(running, FIRST, f"w-{number}") for number in range(FLOOD)]
        await asyncio.gather(*flood)
        await asyncio.sleep(0.3)  # until it has reached the hub and the cell
        found.append(await measure_start_s(running, second, "beside-a-flood"))
        flooded = (await running.client(FIRST).list(WORKLOAD)).items
        ready = sum(is_true(workload.status.conditions, "Available") for workload in flooded)
        assert ready < FLOOD / 2, "the flood must still be there"

    on_a_platform(story, cell_plane("dfw"))
    alone_s, busy_s = found
    assert busy_s <= 2 * alone_s, found
