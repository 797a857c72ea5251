"""``local chaos`` and ``local status`` against a stand-in for the platform."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datum_compute.cli.local.chaos import FILE, read_faults
from datum_compute.cli.local.platform import find_running
from datum_compute.client.transport.faults import Fault, encode_faults
from tests.cli.runner import NOW, CliRunner


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir()
    (directory / "cells.json").write_text(json.dumps({"cells": ["dfw", "iad"]}))
    return directory


@pytest.fixture
def running(state: Path) -> Iterator[Path]:
    """With a process that is known by its command line, and answers nothing."""
    command = [sys.executable, "-c", "input()", "--state-dir", str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        (state / "server.json").write_text(json.dumps({"pid": process.pid, "port": 1}))
        while find_running(state) is None:
            os.sched_yield()  # it has no command line for a moment
        yield state
        process.kill()


def chaos(cli: CliRunner, state: Path, *words: str) -> int:
    return cli.run("local", "chaos", *words, f"--state-dir={state}")


def test_each_fault_is_written_to_the_fault_file(tmp_path: Path, running: Path) -> None:
    cli = CliRunner(tmp_path)
    assert chaos(cli, running, "cut", "dfw") == 0
    assert "chaos heal dfw" in cli.err
    assert chaos(cli, running, "slow", "hub", "--by=300ms", "--for=1m") == 0
    assert chaos(cli, running, "crash", "iad") == 0
    assert read_faults(running) == {
        "cell/dfw": Fault(kind="cut"),
        "cell/iad": Fault(kind="crash", until_s=NOW + 5),
        "hub": Fault(kind="slow", delay_s=0.3, until_s=NOW + 60),
    }
    assert stat.S_IMODE((running / FILE).stat().st_mode) == 0o600
    assert chaos(cli, running, "status") == 0
    assert "cell/dfw: cut off" in cli.out
    assert "hub: slower by 0.3 s, for 60 s more" in cli.out


def test_heal_removes_one_fault_or_all(tmp_path: Path, running: Path) -> None:
    cli = CliRunner(tmp_path)
    for target in ("dfw", "hub"):
        chaos(cli, running, "cut", target)
    assert chaos(cli, running, "heal", "dfw") == 0
    assert list(read_faults(running)) == ["hub"]
    assert chaos(cli, running, "heal") == 0
    assert not (running / FILE).exists()
    assert cli.out == "Healed: hub.\n"


def test_heal_does_not_report_a_fault_that_has_expired(tmp_path: Path, running: Path) -> None:
    cli = CliRunner(tmp_path)
    (running / FILE).write_bytes(
        encode_faults({"cell/dfw": Fault(kind="cut"), "hub": Fault(kind="cut", until_s=NOW - 1)})
    )
    assert chaos(cli, running, "heal") == 0
    assert cli.out == "Healed: cell/dfw.\n"
    assert not (running / FILE).exists()


def test_an_unknown_target_is_refused_with_the_known_ones(tmp_path: Path, running: Path) -> None:
    cli = CliRunner(tmp_path)
    assert chaos(cli, running, "cut", "ams") == 2
    assert "hub, dfw, iad" in cli.err
    assert chaos(cli, running, "slow", "hub", "--by=3h") == 2
    assert not (running / FILE).exists()


def test_chaos_without_a_platform_is_an_error(tmp_path: Path, state: Path) -> None:
    cli = CliRunner(tmp_path)
    assert chaos(cli, state, "cut", "dfw") == 3
    assert "is not running" in cli.err
    assert not (state / FILE).exists()


def test_status_reports_planes_that_do_not_respond(tmp_path: Path, running: Path) -> None:
    cli = CliRunner(tmp_path)
    assert cli.run("local", "status", f"--state-dir={running}", "-o", "json") == 0
    status = json.loads(cli.out)
    assert (status["running"], status["ready"], status["planes"]) == (True, False, [])


def test_a_cell_in_a_separate_process_is_suspended_and_resumed(
    tmp_path: Path, running: Path
) -> None:
    cli, cell = CliRunner(tmp_path), running / "cells" / "dfw"
    cell.mkdir(parents=True)
    command = [sys.executable, "-c", "input()", "--state-dir", str(cell)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        (cell / "server.json").write_text(json.dumps({"pid": process.pid, "port": 1}))
        while find_running(cell) is None:
            os.sched_yield()
        assert chaos(cli, running, "cut", "dfw") == 0
        assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT) is not None
        assert chaos(cli, running, "heal", "dfw") == 0
        assert cli.out == "Healed: cell/dfw.\n"
        assert chaos(cli, running, "slow", "dfw") == 2
        assert chaos(cli, running, "cut", "dfw", "--for=1m") == 2
        assert chaos(cli, running, "cut", "iad") == 3
        assert "there is no 'iad'" in cli.err
        assert "hub, dfw" in cli.err
        process.kill()
    assert not (running / FILE).exists()
    assert chaos(cli, running, "crash", "cell/dfw") == 3
    assert "the process of dfw is not running" in cli.err
    assert "local up --processes --detach" in cli.err
