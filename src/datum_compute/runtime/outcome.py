"""What a reconcile may answer. Raising instead means: try again with backoff."""

from __future__ import annotations

import math

import msgspec


class Debounce(msgspec.Struct, frozen=True):
    """For a reconcile that looks at many objects: what wakes its key again soon is gathered.

    The key comes up when nothing has woken it for ``idle_s`` and nobody works on its plane, and at
    the latest ``max_s`` after the pass that asked for the pause. Nothing is lost, and a key that
    nobody wakes waits for nothing.
    """

    idle_s: float
    max_s: float

    def __post_init__(self) -> None:
        _check_finite(self.idle_s)
        _check_finite(self.max_s)


class Done(msgspec.Struct, frozen=True):
    """Settled until something changes."""

    debounce: Debounce | None = None


class Requeue(msgspec.Struct, frozen=True):
    """Look again after this many seconds (and up to a tenth more), or sooner if something
    changes. What should have been looked at in the past is looked at soon."""

    after_s: float
    debounce: Debounce | None = None

    def __post_init__(self) -> None:
        _check_finite(self.after_s)


class Terminal(msgspec.Struct, frozen=True):
    """Hopeless until the object itself changes.

    The reason is recorded and there is no retry. Neither a resync nor a change of any other
    object brings the key up again, only another version of the object it names, or its end.
    """

    message: str


Outcome = Done | Requeue | Terminal


def _check_finite(seconds: float) -> None:
    """Said where it is asked for: no timer takes a time that never comes."""
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no time to wait for; to wait for a change is Done()")
