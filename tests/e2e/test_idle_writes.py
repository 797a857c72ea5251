"""Converged deployments cause no writes.

The goals name 1,000 deployments (``IDLE_DEPLOYMENTS=1000``), which ``make bench`` also measures.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bench.federation_world import PROJECT, World, new_world
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.planes import HUB, cell_plane
from datum_compute.store.sqlite import SqliteJournal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

DEPLOYMENTS = int(os.environ.get("IDLE_DEPLOYMENTS", "200"))
OBSERVATION_S = 10.0


async def count_deployments(world: World) -> dict[str, tuple[int, str]]:
    """Return the number of deployments and the resource version of each plane."""
    planes = (PROJECT, HUB, *map(cell_plane, world.cells))
    listed = {plane: await world.client(plane).list(DEPLOYMENT) for plane in planes}
    return {plane: (len(found.items), found.version) for plane, found in listed.items()}


async def test_idle_deployments_cause_no_writes(tmp_path: Path) -> None:
    """Run all controllers on the durable store; the simulator checks longer periods."""
    async with new_world(SqliteJournal(tmp_path / "bench.db"), 4) as world:
        names = [f"idle-{number}" for number in range(DEPLOYMENTS)]
        for number, name in enumerate(names):
            await world.project_user.create(name, world.cells[number % 4], 1)
        await world.project_user.wait_until_rolled_out(names)
        await world.wait_until_quiet()
        before = await count_deployments(world)
        assert [count for count, _ in before.values()] == [DEPLOYMENTS] * 2 + [DEPLOYMENTS // 4] * 4
        await asyncio.sleep(OBSERVATION_S)
        assert await count_deployments(world) == before
