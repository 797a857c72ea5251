from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import CliRunner
from tests.cli.world import World, healthy, write_kubeconfig


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    return CliRunner(home=tmp_path)


@pytest.fixture
def world() -> World:
    return World(player=healthy)


@pytest.fixture
def local_platform(cli: CliRunner, world: World) -> None:
    """The cli stands beside a platform with that world."""
    write_kubeconfig(cli.home / ".local/state/datum-compute/kubeconfig")
    cli.open_transport = world.open
