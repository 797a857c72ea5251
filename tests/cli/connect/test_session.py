"""The session of a command reports a suspended process of the local platform."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from datum_compute.cli.connect.session import report_suspension
from datum_compute.cli.connect.target import ResolvedTarget
from datum_compute.cli.environment import STATE_DIR, CliEnvironment
from datum_compute.cli.errors import OtherError
from testkit.sim.loop import run_virtual
from tests.cli.runner import CliRunner

LOCAL = ResolvedTarget(cast(Any, None), is_local_platform=True)


@pytest.fixture
def suspended_pid(tmp_path: Path) -> Iterator[int]:
    """Start a suspended process that looks like the server of a state directory."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        (tmp_path / "server.json").write_text(json.dumps({"pid": process.pid, "port": 1}))
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def environment(cli: CliRunner, tmp_path: Path) -> CliEnvironment:
    cli.environ = {STATE_DIR: str(tmp_path)}
    return cli.environment(io.StringIO(), io.StringIO(), io.StringIO())


def wait_in_session(target: ResolvedTarget, environment: CliEnvironment, wait_s: float) -> bool:
    """Return True if a command of this duration ends by itself."""

    async def main(_: object) -> bool:
        async with report_suspension(target, environment):
            await asyncio.sleep(wait_s)
        return True

    return run_virtual(Random(1), main)


def test_a_suspended_server_ends_a_command_with_advice(
    suspended_pid: int, environment: CliEnvironment
) -> None:
    with pytest.raises(OtherError) as raised:
        wait_in_session(LOCAL, environment, wait_s=1e6)
    assert f"(pid {suspended_pid}) is suspended" in str(raised.value)
    assert raised.value.hint == f"Continue it: kill -CONT {suspended_pid}"


def test_a_command_that_ends_soon_is_not_interrupted(
    suspended_pid: int, environment: CliEnvironment
) -> None:
    assert wait_in_session(LOCAL, environment, wait_s=1.0)


def test_a_server_that_runs_and_other_planes_are_not_interrupted(
    suspended_pid: int, environment: CliEnvironment
) -> None:
    assert wait_in_session(ResolvedTarget(cast(Any, None)), environment, wait_s=100.0)
    os.kill(suspended_pid, signal.SIGCONT)
    os.waitid(os.P_PID, suspended_pid, os.WCONTINUED | os.WNOWAIT)
    assert wait_in_session(LOCAL, environment, wait_s=100.0)


def test_a_timeout_of_the_command_itself_is_not_changed(environment: CliEnvironment) -> None:
    async def main(_: object) -> None:
        async with report_suspension(LOCAL, environment):
            raise TimeoutError("of the command")

    with pytest.raises(TimeoutError, match="of the command"):
        run_virtual(Random(1), main)
