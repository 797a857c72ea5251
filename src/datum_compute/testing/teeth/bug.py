"""A planted bug, and one that cannot be planted yet, as values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """``imitates`` says which class of real bugs, or which one, this stands for; ``meets`` names
    operations and faults (or "2 cells", "2 managers", "scale-down", "tight quota") without which
    it hardly shows; ``shows`` names the invariants that it is meant to break, where it might break
    others by the way."""

    name: str
    imitates: str
    plant: Callable[[], AbstractContextManager[None]]
    meets: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()

    def counts(self, invariant: str) -> bool:
        """Whether it is found when this invariant breaks."""
        return not self.shows or invariant in self.shows


@dataclass(frozen=True, slots=True)
class PendingBug:
    """A bug in a piece that does not exist yet; ``reason`` says which piece."""

    name: str
    reason: str
