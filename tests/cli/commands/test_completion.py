"""``completion``: the script for the shell, and the names that it completes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from datum_compute.cli.groups import compute
from tests.cli.runner import CliRunner
from tests.cli.world import World, write_kubeconfig

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def completed(cli: CliRunner, *words: str) -> list[str]:
    """What a shell would be offered after these words; the last is what was begun."""
    *before, begun = words
    streams = [io.StringIO() for _ in range(3)]
    arguments = {"obj": cli.environment(*streams)}
    shell = ShellComplete(compute, arguments, "datumctl-compute", "_X")
    found = [item.value for item in shell.get_completions(before, begun)]
    assert [stream.getvalue() for stream in streams[1:]] == ["", ""], "TAB prints nothing"
    return found


def test_names_that_exist_are_completed(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    cli.run("deploy", "api", "--image=a:1", "--city=AMS", "-y")
    assert completed(cli, "status", "") == ["api", "web"]
    assert completed(cli, "rollout", "undo", "w") == ["web"]
    assert completed(cli, "deploy", "x", "--city", "DFW,a") == ["DFW,AMS"]
    assert completed(cli, "deploy", "x", "--instance-type", "d1-standard-2") == ["d1-standard-2"]
    assert completed(cli, "logs", "web", "--container", "") == ["app"]
    assert len(completed(cli, "instances", "describe", "web-")) == 2


def test_completion_without_a_server_returns_no_names(cli: CliRunner, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "unauthorized")
    assert completed(cli, "status", "") == []
    (tmp_path / ".local/state/datum-compute/kubeconfig").unlink()
    assert completed(cli, "status", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_executable(cli: CliRunner, shell: str) -> None:
    assert cli.run("completion", shell) == 0
    assert "datumctl-compute" in cli.out
    assert "_DATUMCTL_COMPUTE_COMPLETE" in cli.out


def test_the_completion_script_requests_existing_completions() -> None:
    script = (
        "import os, sys; from datum_compute.cli import main;"
        "os.environ.update(_DATUMCTL_COMPUTE_COMPLETE='bash_complete',"
        " COMP_WORDS='datumctl-compute de', COMP_CWORD='1');"
        "sys.argv = ['datumctl-compute']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["plain,deploy", "plain,destroy"]
