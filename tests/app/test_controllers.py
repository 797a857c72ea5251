"""Construction of a manager: which projects are entitled when a process starts."""

from __future__ import annotations

from random import Random

import pytest

from datum_compute.api.planes import HUB, PLATFORM, PlaneName, project_plane
from datum_compute.app.controllers import build_manager, engage_configured_planes
from datum_compute.app.environment import ProcessEnvironment
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

PROJECT = project_plane("shop")


@pytest.mark.parametrize(
    ("planes", "is_single_cluster", "entitled"),
    [
        ((HUB, PLATFORM, PROJECT), False, False),
        ((HUB, PLATFORM, PROJECT), True, True),
        ((HUB, PROJECT), False, True),
    ],
)
def test_a_configured_project_is_not_entitled_while_its_membership_is_undecided(
    planes: tuple[PlaneName, ...], is_single_cluster: bool, entitled: bool
) -> None:
    async def test(loop: VirtualLoop, servers: InProcessPlanes) -> None:
        environment = ProcessEnvironment(
            unix_s=loop.time, new_uid=lambda: "u", new_suffix=lambda: "s", random=Random(1)
        )
        manager = build_manager((), {}, environment)
        clients = {plane: await servers.create(plane) for plane in planes}
        engage_configured_planes(manager, clients, is_single_cluster=is_single_cluster)
        assert manager.is_entitled(PROJECT) == entitled
        assert manager.is_entitled(HUB)

    with_planes(test)
