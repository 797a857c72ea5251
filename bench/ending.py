"""A bench that is told to end takes down what it has started: as on Ctrl-C, so on SIGTERM."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def end_on_sigterm() -> None:
    """For the main thread of a program. What cleans up runs, and nothing is measured any more."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not interrupted by a second one
    sys.exit(128 + number)
