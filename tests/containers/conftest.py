"""One engine for the session; every test of this folder demands it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.containers.cells import Cell
from tests.containers.engine import TestEngine, missing_programs
from tests.containers.real import Real, up
from tests.e2e.platform import eventually


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEngine]:
    if missing := missing_programs():
        pytest.fail(f"containers cannot be tested: {', '.join(missing)} is not installed")
    if os.geteuid() != 0:
        pytest.fail("containers cannot be tested: the engine needs root for bridge networks")
    root = tmp_path_factory.mktemp("engine")
    running = TestEngine(root)
    running.start()
    running.publish("web:1", "v1")
    running.publish("web:2", "v2")
    yield running
    running.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
async def cell(engine: TestEngine, tmp_path: Path) -> AsyncIterator[Cell]:
    """A driver of its own on the real engine; nothing of it is left behind."""
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
