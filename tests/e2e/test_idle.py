"""Deployments that nobody touches: once they are settled nobody writes anything.

``IDLE_DEPLOYMENTS=1000`` for as many as the goals say; ``make bench`` does that, and says what they
cost."""

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
LOOK_S = 10.0


async def deployments(world: World) -> dict[str, tuple[int, str]]:
    """How many each plane has, and the counter of all its writes."""
    planes = (PROJECT, HUB, *map(cell_plane, world.cells))
    listed = {plane: await world.client(plane).list(DEPLOYMENT) for plane in planes}
    return {plane: (len(found.items), found.version) for plane, found in listed.items()}


async def test_idle_deployments_cost_no_write(tmp_path: Path) -> None:
    """On the durable store, with every controller at work; the simulator looks for longer."""
    async with new_world(SqliteJournal(tmp_path / "bench.db"), 4) as world:
        names = [f"idle-{number}" for number in range(DEPLOYMENTS)]
        for number, name in enumerate(names):
            await world.project_user.create(name, world.cells[number % 4], 1)
        await world.project_user.wait_until_rolled_out(names)
        await world.wait_until_quiet()
        before = await deployments(world)
        assert [count for count, _ in before.values()] == [DEPLOYMENTS] * 2 + [DEPLOYMENTS // 4] * 4
        await asyncio.sleep(LOOK_S)
        assert await deployments(world) == before
