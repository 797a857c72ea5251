"""``local up`` while the platform is running, or after a cell has left it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.app.cell_membership import Membership, MembershipFiles
from datum_compute.app.state_directory import save_cells, save_driver
from datum_compute.cli.errors import UsageError
from datum_compute.cli.groups import compute
from datum_compute.cli.local.options import UpOptions, check_option_conflicts
from datum_compute.cli.local.platform import find_running
from datum_compute.cli.local.processes import cells_that_left
from datum_compute.cli.options import STATE_DIR_FLAG, remember_flag
from tests.cli.runner import CliRunner, check_advice, quiet_environment


@contextmanager
def process_of(state: Path, *flags: str) -> Iterator[int]:
    """One that is known by its command line, and answers nothing."""
    state.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", "input()", "--state-dir", str(state), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        (state / "server.json").write_text(json.dumps({"pid": process.pid, "port": 4711}))
        while find_running(state) is None:
            os.sched_yield()  # it has no command line for a moment
        yield process.pid
        process.kill()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    state = tmp_path / "state"
    with process_of(state):
        save_driver(state, "simulated", "")
        save_cells(state, [cell_plane("dfw"), cell_plane("iad")])
        yield state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (UpOptions(port=7), "--port=7 (currently 4711)"),
        (UpOptions(driver="containers"), "--driver=containers (currently simulated)"),
        (UpOptions(engine="/my.sock"), "--engine=/my.sock (currently none)"),
        (UpOptions(cells="dfw,ams"), "--cells=dfw,ams (currently dfw,iad)"),
    ],
)
def test_options_that_differ_from_the_running_platform_are_refused(
    running: Path, options: UpOptions, message: str
) -> None:
    context = click.Context(compute)
    remember_flag(context, STATE_DIR_FLAG, str(running))
    with context, pytest.raises(UsageError) as refused:
        check_option_conflicts(quiet_environment(), running, options)
    assert message in refused.value.message
    assert f"local down --state-dir={running}" in refused.value.hint
    assert message.partition(" ")[0] in refused.value.hint
    check_advice(refused.value.hint, "datumctl compute")


@pytest.mark.parametrize(
    "options",
    [
        UpOptions(),
        UpOptions(port=4711, driver="simulated", cells="iad,dfw"),
    ],
)
def test_options_equal_to_the_running_platform_are_accepted(
    running: Path, options: UpOptions
) -> None:
    check_option_conflicts(quiet_environment(), running, options)


def test_a_stopped_platform_accepts_all_options(tmp_path: Path) -> None:
    save_driver(tmp_path, "simulated", "")
    check_option_conflicts(
        quiet_environment(), tmp_path, UpOptions(7, "containers", "/my.sock", "ams")
    )


def test_the_cells_of_separate_processes_are_compared(tmp_path: Path) -> None:
    cells = [tmp_path / "cells" / name for name in ("dfw", "iad")]
    cells[1].mkdir(parents=True)
    with process_of(cells[0]):
        save_driver(cells[0], "simulated", "")
        save_driver(cells[1], "containers", "/my.sock")
        for refused in (UpOptions(driver="containers"), UpOptions(cells="iad")):
            with pytest.raises(UsageError):
                check_option_conflicts(quiet_environment(), tmp_path, refused, cells)
        for met in (UpOptions(driver="simulated"), UpOptions(cells="dfw,iad,ams")):
            check_option_conflicts(quiet_environment(), tmp_path, met, cells)


def test_the_command_exits_2_and_changes_nothing(cli: CliRunner, running: Path) -> None:
    where = f"--state-dir={running}"
    assert cli.run("local", "up", "--driver=containers", "--detach", where) == 2
    assert "is already running with other options" in cli.err
    assert cli.run("local", "up", "--driver=simulated", "--engine=/x", where) == 2
    assert "--engine has no effect with --driver=simulated" in cli.err


def test_a_cell_that_left_is_detected_by_its_missing_cluster(tmp_path: Path) -> None:
    for name in ("dfw", "iad", "new"):
        (tmp_path / "cells" / name).mkdir(parents=True)
    for name in ("dfw", "iad"):
        files = MembershipFiles(tmp_path / "cells" / name)
        files.write(Membership(cell=name, city=name, hub="https://h", endpoint="https://e"), "", "")
    assert cells_that_left(tmp_path, ["iad"]) == ["dfw"]
    assert cells_that_left(tmp_path, ["iad", "dfw"]) == []
