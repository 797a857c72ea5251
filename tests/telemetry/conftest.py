"""A fixture that captures log lines."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """A stream for log lines. Restores the configuration of logging afterwards."""
    root, platform = logging.getLogger(), logging.getLogger("datum_compute")
    before = root.handlers[:], root.level, platform.level
    yield io.StringIO()
    root.handlers[:], root.level, platform.level = before
    root.setLevel(before[1])
    platform.setLevel(before[2])
