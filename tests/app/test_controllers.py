"""Construction of a manager: which projects are entitled when a process starts."""

from __future__ import annotations

from random import Random

import pytest

from datum_compute.api.planes import HUB, PLATFORM, project_plane
from datum_compute.app.controllers import build_manager, engage_configured_planes
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.controllers import registry
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

PROJECT = project_plane("shop")


@pytest.mark.parametrize("has_membership", [True, False])
def test_a_configured_project_is_not_entitled_while_its_membership_is_undecided(
    has_membership: bool,
) -> None:
    async def test(loop: VirtualLoop, servers: InProcessPlanes) -> None:
        environment = ProcessEnvironment(
            unix_s=loop.time, new_uid=lambda: "u", new_suffix=lambda: "s", random=Random(1)
        )
        controllers = registry.PROJECT_MEMBERSHIP if has_membership else ()
        manager = build_manager(controllers, {}, environment)
        clients = {plane: await servers.create(plane) for plane in (HUB, PLATFORM, PROJECT)}
        engage_configured_planes(manager, clients, controllers)
        assert manager.is_entitled(PROJECT) != has_membership
        assert manager.is_entitled(HUB)

    with_planes(test)
