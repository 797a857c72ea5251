"""The platform reaches the last requested state after any sequence of user changes."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import WORKLOAD
from tests.journeys.platform import WEB, Platform, on_platform

IMAGES = (
    *("web:1", "web:2", "fail.example/web:1", "crash.example/web:1", "flaky.example/web:1"),
    *("stuck.example/web:1", "slow.example/web:1", "exit.example/web:1", "sleepy.example/web:1"),
)
UNAVAILABLE = (1, 2, "50%", "100%")


def placements(random: Random, replicas: int) -> list[dict[str, object]]:
    scale = {
        "minReplicas": replicas,
        "instanceManagementPolicy": random.choice(("OrderedReady", "Parallel")),
        "maxUnavailable": random.choice(UNAVAILABLE),
    }
    return [{"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}]


async def make_random_change(platform: Platform, random: Random) -> None:
    match random.randrange(4):
        case 0 | 1:
            await platform.change_image(random.choice(IMAGES))
        case 2:
            await platform.change(placements=placements(random, random.randint(1, 5)))
        case 3:
            await platform.change(paused=random.random() < 0.5)
    await asyncio.sleep(random.choice((0.0, 0.05, 0.3, 2.0, 20.0)))


@pytest.mark.parametrize("seed", range(4))
def test_the_platform_reaches_the_last_requested_state(seed: int) -> None:
    random = Random(seed)

    async def story(platform: Platform) -> bool:
        await platform.deploy(random.choice(IMAGES), replicas=random.randint(1, 4))
        for _ in range(8):
            await make_random_change(platform, random)
        await platform.change(paused=False, placements=placements(random, 3))
        await platform.change_image("web:9")
        await platform.until_ready("web:9", 3)
        await asyncio.sleep(5)
        before = len(platform.writes)
        await asyncio.sleep(300)
        assert len(platform.writes) == before, "a converged platform writes"
        await platform.project.delete(WORKLOAD, WEB)
        await platform.until(lambda: is_gone(platform), "all objects are deleted")
        return True

    assert on_platform(story)


async def is_gone(platform: Platform) -> bool:
    try:
        await platform.workload()
    except NotFound:
        return not await platform.instances() and not await platform.servers()
    return False
