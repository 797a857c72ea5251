"""I20: nobody writes one object again and again. Noticed at once, not only in the calm."""

from __future__ import annotations

from collections import deque

from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.truth import Step

WINDOW_S = 10.0
# Far above what a conflict storm and those who answer it write to one object.
WRITES_MAX = 250


class RecentWrites:
    """When each object was written last, as often as it matters."""

    def __init__(self) -> None:
        self._written_s: dict[tuple[str, ObjectKey], deque[float]] = {}

    def complaint(self, step: Step) -> str:
        written_s = self._written_s.setdefault((step.plane, step.key), deque(maxlen=WRITES_MAX))
        written_s.append(step.at_s)
        if len(written_s) < WRITES_MAX or step.at_s - written_s[0] > WINDOW_S:
            return ""
        return (
            f"I20: {step.plane} {step.key.resource} {step.key.namespace}/{step.key.name} was "
            f"written {WRITES_MAX} times in {step.at_s - written_s[0]:.1f} s"
        )
