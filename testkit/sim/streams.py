"""Random streams by name: one seed, one stream for each purpose.

One more draw for the network does not shift the schedule. A fault that draws while it works has a
stream of its own, named by its salt, so that leaving one fault out shifts no other.
"""

from __future__ import annotations

from random import Random
from typing import Literal

Purpose = Literal["schedule", "network", "disk", "faults", "workload", "ids", "layout", "adoption"]


def stream(seed: int, purpose: Purpose, part: str = "") -> Random:
    return Random(f"{seed}/{purpose}/{part}")  # noqa: S311 - reproducible on purpose


def salted(salt: int) -> Random:
    """The stream of one fault."""
    return Random(f"salt/{salt}")  # noqa: S311 - reproducible on purpose
