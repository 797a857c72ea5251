"""One platform for each test that asks for it; no process outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.platform import LocalPlatform, kubectl


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[LocalPlatform]:
    """A platform that has never been started."""
    platform = LocalPlatform(tmp_path / "state")
    yield platform
    platform.down()


@pytest.fixture
def platform(stopped: LocalPlatform) -> LocalPlatform:
    done = stopped.up("--port", "0")
    assert done.returncode == 0, done.stderr
    return stopped


@pytest.fixture
def needs_kubectl() -> None:
    if not kubectl():
        pytest.skip("no kubectl: set KUBECTL or put one on PATH")
