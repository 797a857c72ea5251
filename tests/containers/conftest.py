"""One engine for each test process, which all tests of this folder use.

With several test processes (``-n 2``), each has a separate network namespace. Bridges, addresses
and ports of the engines therefore do not collide.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from testkit.processes.container_cell import Cell
from testkit.processes.container_engine import TestEngine, missing_programs
from testkit.processes.container_platform import Real, up
from testkit.processes.local_platform import eventually


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.containers)


CLONE_NEWNET = 0x40000000


def enter_own_network() -> None:
    """Move this thread, and the processes that it starts, into a new network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare: {os.strerror(error)}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@pytest.fixture(scope="session")
def engine() -> Iterator[TestEngine]:
    if missing := missing_programs():
        pytest.fail(f"containers cannot be tested: {', '.join(missing)} is not installed")
    if os.geteuid() != 0:
        pytest.fail("containers cannot be tested: the engine needs root for bridge networks")
    if "PYTEST_XDIST_WORKER" in os.environ:
        enter_own_network()
    # Podman accepts at most 50 characters for the directory of its run-time state.
    root = Path(tempfile.mkdtemp(prefix="engine-"))
    running = TestEngine(root)
    running.start()
    running.publish("web:1", "v1")
    running.publish("web:2", "v2")
    yield running
    running.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
async def cell(engine: TestEngine, tmp_path: Path) -> AsyncIterator[Cell]:
    """A separate driver on the real engine, cleaned up after the test."""
    made = Cell(engine, tmp_path / "state")
    try:
        await made.start()
        yield made
    finally:
        await made.clean()


@pytest.fixture
def real(engine: TestEngine, tmp_path: Path) -> Iterator[Real]:
    platform = Real(tmp_path / "state")
    up(platform, engine)
    yield platform
    for workload in sorted({instance["workload"] for instance in platform.instances()}):
        platform.run("destroy", workload, "--yes")
    eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")
    platform.down()
