"""Names one piece of work: an object and the plane it lies in."""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.meta import Ref
from datum_compute.api.plane import PlaneName


@dataclass(frozen=True, slots=True, order=True)
class Key:
    plane: PlaneName
    ref: Ref

    def __str__(self) -> str:
        return f"{self.plane}:{self.ref}"
