"""What has to do with sleep: users who ask for it, and visitors who disturb it.

Values as in ``operations.py``, which lists them; ``people.py`` and ``visitors.py`` carry them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.scaletozero import SleepMode


@dataclass(frozen=True, slots=True)
class LetSleep:
    """From now on the instances sleep when nobody is connected; with a new image, as any change."""

    at_s: float
    project: str
    name: str
    image: str
    idle_ms: int
    mode: SleepMode


@dataclass(frozen=True, slots=True)
class Visit:
    """Connections to one of the ports that a cell has published, one after the other or all at
    once; only of worlds whose layout publishes any."""

    at_s: float
    cell: str
    pick: int
    count: int
    apart_s: float
    stays_s: float

    @property
    def for_s(self) -> float:
        return self.count * self.apart_s + self.stays_s
