"""Names in arguments, with the kind before them as kubectl prints it."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_a_kind_prefix_is_accepted_as_in_kubectl(cli: CliRunner) -> None:
    assert cli.run(*FIRST) == 0
    assert cli.run("instances", "-o", "name") == 0
    first = cli.out.splitlines()[0]
    assert first.startswith("instance/")
    for words in (
        *(("instances", "describe", first), ("explain", first), ("explain", "workload/web")),
        *(("status", "workloads/web"), ("workloads", "describe", "workload/web")),
        *(("status", "workloads.compute.datumapis.com/web"), ("doctor", "workload/web")),
        ("rollout", "workload/web"),
    ):
        assert cli.run(*words) == 0, (words, cli.err)
    assert cli.run("deploy", "workload/web", "--image=web:2", "-y") == 0
    assert cli.out == "workload/web updated\n"
