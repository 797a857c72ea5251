from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.surroundings import Desk
from tests.cli.world import World, healthy, write_kubeconfig


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(home=tmp_path)


@pytest.fixture
def world() -> World:
    return World(player=healthy)


@pytest.fixture
def local_platform(desk: Desk, world: World) -> None:
    """The desk stands beside a platform with that world."""
    write_kubeconfig(desk.home / ".local/state/datum-compute/kubeconfig")
    desk.open_transport = world.open
