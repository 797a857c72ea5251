"""``start`` removes the stop of a workload and waits until its instances are ready."""

from __future__ import annotations

import pytest

from tests.cli.commands.test_stop import STOPPED, SUSPENDED
from tests.cli.runner import CliRunner
from tests.cli.world import World, healthy, spec

pytestmark = pytest.mark.usefixtures("web")


def test_start_waits_until_the_instances_are_ready(cli: CliRunner, world: World) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web") == 0
    world.player = healthy
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web is ready: 2 instances" in cli.err + cli.out
    assert cli.run("start", "web") == 0
    assert cli.out.startswith("workload/web unchanged\n")


def test_start_does_not_wait_for_a_suspended_project(cli: CliRunner, world: World) -> None:
    world.player = SUSPENDED
    assert cli.run("stop", "web") == 0
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web does not run: the project is suspended" in cli.err + cli.out
