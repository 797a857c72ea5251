"""What a reconcile may answer. Raising instead means: try again with backoff."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """Settled until something changes."""


@dataclass(frozen=True, slots=True)
class Later:
    """Look again after this many seconds, or sooner if something changes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Terminal:
    """Hopeless until the object changes; the reason is recorded and there is no retry."""

    message: str


Outcome = Done | Later | Terminal


class NotSynced(Exception):
    """A cached view is not complete, or has not yet seen our own write: do not act on it."""
