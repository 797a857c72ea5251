"""``init`` and the file datum.toml that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from datum_compute.api.meta.objects import Ref
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World, stored

WEB = Ref(NAMESPACE, "web")


FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_init_writes_a_file_that_replaces_the_name_argument(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    assert cli.run("init", "web", "--city=dfw") == 0
    assert (tmp_path / "datum.toml").read_text() == 'workload = "web"\ncities = ["DFW"]\n'
    assert cli.run("deploy", "--image=web:1") == 0
    assert stored(world)["spec"]["placements"][0]["cityCodes"] == ["DFW"]
    for words in (("status",), ("rollout", "status"), ("restart",), ("explain",), ("export",)):
        assert cli.run(*words) == 0, words
    assert cli.run("destroy", "--confirm=web", "--no-wait") == 0
    assert cli.run("init", "api") == 2
    assert cli.run("init", "api", "--force") == 0


def test_the_file_names_the_project_unless_a_flag_does(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "datum.toml").write_text('project = "other"\n')
    assert cli.run("workloads") == 1
    assert "project/other" in cli.err
    assert cli.run("workloads", "--project=default") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload = 3", "workload must be a string"),
        ("cities = 'DFW'", "cities must be a list"),
        ("wrkload = 'x'", "unknown key 'wrkload'"),
        ("= nonsense", "cannot be read"),
    ],
)
def test_an_invalid_project_file_is_reported(
    cli: CliRunner, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "datum.toml").write_text(text)
    assert cli.run("status") == 2
    assert message in cli.err
