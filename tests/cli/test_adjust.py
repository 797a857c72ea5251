"""``rollout pause``, ``resume`` and ``status``; options that all changing commands accept."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner
from tests.cli.world import World, image_missing, no_controllers, spec

pytestmark = pytest.mark.usefixtures("web")


def test_pause_and_resume_change_the_workload(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "pause", "web") == 0
    assert spec(world)["paused"] is True
    assert cli.err.endswith("you resume it: datumctl compute rollout resume web\n")
    assert cli.run("rollout", "pause", "web") == 0
    assert cli.out == "workload/web unchanged\n"
    assert cli.run("rollout", "resume", "web") == 0
    assert "paused" not in spec(world)


def test_a_rollout_command_with_only_a_name_shows_the_status(cli: CliRunner, world: World) -> None:
    for words in (["rollout", "web"], ["rollout", "status", "web"]):
        assert cli.run(*words) == 0
        assert "web is ready: 2 instances in 2 cities" in cli.err
    assert world.writes == []


def test_an_unfinished_rollout_reports_its_cause(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "-y", "--timeout=1s")
    assert cli.run("rollout", "web", "--timeout=1s") == 21
    assert "ImageUnavailable" in cli.err


def test_every_command_suggests_a_similar_workload(cli: CliRunner, world: World) -> None:
    for words in (
        *(["scale", "wbe", "--min=2"], ["restart", "wbe"], ["rollout", "wbe"]),
        *(["rollout", "pause", "wbe"], ["rollout", "resume", "wbe"]),
    ):
        assert cli.run(*words) == 3
        assert "Did you mean 'web'?" in cli.err
    assert world.writes == []


def test_no_wait_returns_without_waiting(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run("restart", "web", "--no-wait") == 0
    assert "See: datumctl compute rollout status web" in cli.err
