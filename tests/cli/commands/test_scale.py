"""``scale``: the number of instances in each city."""

from __future__ import annotations

import pytest

from datum_compute.api.quota import INSTANCES
from tests.cli.runner import CliRunner
from tests.cli.world import World, bucket, no_controllers, spec

pytestmark = pytest.mark.usefixtures("web")


def test_scale_changes_every_placement_and_waits(cli: CliRunner, world: World) -> None:
    assert cli.run("scale", "web", "--min=3") == 0
    assert spec(world)["placements"][0]["scaleSettings"]["minReplicas"] == 3
    assert cli.out == "workload/web updated\n"
    assert "placements[default].scaleSettings.minReplicas: 1 -> 3" in cli.err
    assert "web is ready: 6 instances in 2 cities" in cli.err


def test_scale_down_reports_removed_instances_without_confirmation(
    cli: CliRunner, world: World
) -> None:
    cli.run("scale", "web", "--min=3")
    cli.is_terminal = True
    assert cli.run("scale", "web", "--min=1") == 0
    assert "This removes 2 of 3 instances in each city of default." in cli.err


def test_scale_to_the_current_number_writes_nothing(cli: CliRunner, world: World) -> None:
    assert cli.run("scale", "web", "--min=1") == 0
    assert world.writes == []
    assert cli.out == "workload/web unchanged\n"


def test_scale_accepts_a_placement(cli: CliRunner, world: World) -> None:
    assert cli.run("scale", "web", "--min=2", "--placement=europe") == 2
    assert "Existing placements: default" in cli.err
    assert world.writes == []
    assert cli.run("scale", "web", "--min=2", "--placement=default") == 0


def test_scale_with_dry_run_shows_instances_and_quota_and_writes_nothing(
    cli: CliRunner, world: World
) -> None:
    world.do(lambda client: bucket(client, INSTANCES, 3, 2))
    assert cli.run("scale", "web", "--min=2", "--dry-run") == 6
    assert "Creates 2 instances" in cli.err
    assert "Nothing was changed." in cli.err
    assert "instances would be 6 of 3, 3 too many" in cli.err
    assert cli.run("scale", "web", "--min=2", "--dry-run", "--skip-checks") == 0
    assert world.writes == []


@pytest.mark.parametrize("minimum", ["0", "-1", "1001", "x"])
def test_scale_refuses_invalid_numbers(cli: CliRunner, world: World, minimum: str) -> None:
    assert cli.run("scale", "web", f"--min={minimum}") == 2
    assert world.writes == []


def test_scale_beyond_the_quota_changes_nothing(cli: CliRunner, world: World) -> None:
    world.do(lambda client: bucket(client, INSTANCES, 3, 2))
    assert cli.run("scale", "web", "--min=2") == 6
    assert "Creates 2 instances" in cli.err
    assert "instances would be 6 of 3, 3 too many" in cli.err
    assert world.writes == []
    world.player = no_controllers
    assert cli.run("scale", "web", "--min=9", "--skip-checks", "--no-wait") == 0
    assert cli.run("scale", "web", "--min=8", "--no-wait") == 0, "less than before is no shortage"
    assert len(world.writes) == 2
