"""``rollout history``, ``show`` and ``diff``, with the controller that records revisions."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.runner import CliRunner

pytestmark = pytest.mark.usefixtures("three_revisions")


def test_history_lists_changes_newest_first(cli: CliRunner) -> None:
    assert cli.run("rollout", "history", "web") == 0
    heading, newest, middle, first = cli.out.splitlines()
    assert heading.split() == ["REV", "WHEN", "IMAGE", "CHANGES", "BY", "STATUS"]
    assert newest.split()[:3] == ["3", "5m", "web:2"]
    assert "scaled 1 -> 3" in newest
    assert newest.endswith("active")
    assert "image app: 1 -> 2 (+1)" in middle
    assert first.split() == ["1", "5m", "web:1", "created", "ada", "-"]
    assert "hunter" not in cli.out


def test_history_as_json(cli: CliRunner) -> None:
    assert cli.run("rollout", "history", "web", "-o", "json") == 0
    items = json.loads(cli.out)["items"]
    assert [(item["revision"], item["active"]) for item in items] == [
        (3, True),
        (2, False),
        (1, False),
    ]


def test_one_revision_is_shown_completely(cli: CliRunner) -> None:
    assert cli.run("rollout", "show", "web", "1") == 0
    shown = yaml.safe_load(cli.out)
    containers = shown["template"]["spec"]["runtime"]["sandbox"]["containers"]
    assert containers[0]["image"] == "web:1"
    assert cli.run("rollout", "show", "web", "9") == 3
    assert "datumctl compute rollout history web" in cli.err


def test_a_difference_exits_with_one_and_hides_values(cli: CliRunner) -> None:
    assert cli.run("rollout", "diff", "web", "1", "2") == 1
    assert cli.out.splitlines() == [
        "containers[app].env[KEY]: changed",
        "containers[app].image: web:1 -> web:2",
    ]
    assert cli.run("rollout", "diff", "web", "3") == 0
    assert (cli.out, cli.err) == ("", "No difference.\n")


def test_a_full_restore_of_a_revision_is_recorded_in_history(cli: CliRunner) -> None:
    assert cli.run("scale", "web", "--min=1") == 0
    assert cli.run("rollout", "undo", "web", "--to-revision=1", "-y") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web") == 0
    assert "rollback to revision 1: image app: 2 -> 1 (+1)" in cli.out
    assert cli.run("rollout", "diff", "web", "1") == 0


def test_diff_without_revisions_shows_the_last_change(cli: CliRunner) -> None:
    assert cli.run("rollout", "diff", "web") == 1
    assert cli.out.splitlines() == ["placements[default].scaleSettings.minReplicas: 1 -> 3"]


def test_a_deploy_of_an_earlier_image_is_not_shown_as_a_rollback(cli: CliRunner) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--env=KEY=hunter1", "-y") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web") == 0
    assert "rollback" not in cli.out
    assert "image app: 2 -> 1" in cli.out.splitlines()[1]


def test_a_restart_of_one_city_is_recorded_in_history(cli: CliRunner) -> None:
    assert cli.run("restart", "web", "--city=DFW", "--no-wait") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web") == 0
    assert cli.out.splitlines()[1].split()[:5] == ["4", "5m", "web:2", "restarted", "DFW"]
    assert cli.run("restart", "web", "--no-wait") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web") == 0
    assert cli.out.splitlines()[1].split()[:4] == ["5", "5m", "web:2", "restarted"]
