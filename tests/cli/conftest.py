from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import CliRunner, deploy_three_revisions, deployed
from tests.cli.world import World, healthy, healthy_and_recorded, write_kubeconfig


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


@pytest.fixture
def web(cli: CliRunner, world: World, local_platform: None) -> None:
    """The workload web is deployed in two cities."""
    deployed(cli, "DFW", "ORD", image="web:1")
    world.writes.clear()


@pytest.fixture
def three_revisions(cli: CliRunner, world: World, local_platform: None) -> None:
    """The workload web has three revisions, and a controller records further ones."""
    world.player = healthy_and_recorded
    deploy_three_revisions(cli)
    world.writes.clear()
