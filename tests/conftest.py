"""Settings of all tests: nothing here depends on how busy the machine is."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("house")


def pytest_sessionstart() -> None:
    """All that is imported and collected stays to the end: looking through it finds nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # as the server itself
    gc.enable()


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A shell lets what it starts in the background ignore them, and that is inherited."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)
