"""Settings of all tests. None of them depends on the load of the machine."""

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
    """Imported modules and collected tests are never garbage, so do not search them for garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # tests leave little garbage
    gc.enable()


@pytest.fixture(autouse=True)
def handle_interrupts() -> Iterator[None]:
    """A shell starts background programs with SIGINT ignored, and tests would inherit that."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)
