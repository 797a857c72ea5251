"""``exec``: a command in an instance."""

from __future__ import annotations

import pytest

from datum_compute.api.kinds import INSTANCE
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_logs_and_exec_report_that_the_driver_does_not_support_them(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    assert cli.run("logs", "web") == 1
    assert "does not support logs" in cli.err
    assert cli.run("logs", "web", "-c", "ap") == 3
    assert "Did you mean 'app'?" in cli.err
    name = world.do(lambda c: c.list(INSTANCE, NAMESPACE)).items[0].metadata.name
    assert cli.run("exec", name, "--", "ls") == 1
    assert "does not support exec" in cli.err
    assert cli.run("exec", name[:-1] + "9", "--", "ls") == 3
    assert f"Did you mean {name!r}?" in cli.err
