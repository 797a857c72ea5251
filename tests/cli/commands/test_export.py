"""``export``: a manifest that a deploy accepts without a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.runner import CliRunner
from tests.cli.world import World

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_deploying_an_export_changes_nothing(cli: CliRunner, world: World, tmp_path: Path) -> None:
    cli.run(*FIRST, "--env=A=1", "--deploy-key=k")
    cli.run("restart", "web", "--city=DFW")
    assert cli.run("export", "web") == 0
    (tmp_path / "web.yaml").write_text(cli.out)
    document = yaml.safe_load(cli.out)
    assert sorted(document["metadata"]) == ["name"]
    assert "status" not in document
    assert "restarts" not in document["spec"]
    assert cli.run("diff", "-f", "web.yaml") == 0
    assert cli.err == "No difference.\n"
    document["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = 2
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(document))
    world.writes.clear()
    assert cli.run("diff", "-f", "web.yaml") == 1
    assert cli.out == "placements[default].scaleSettings.minReplicas: 1 -> 2\n"
    assert cli.run("diff", "-f", "web.yaml", "-o", "json") == 1
    assert json.loads(cli.out)["differs"] is True
    assert world.writes == []
