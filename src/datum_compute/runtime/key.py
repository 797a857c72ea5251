"""Names one piece of work: an object and the plane it lies in."""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.meta import Ref
from datum_compute.api.plane import PlaneName


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """``resource`` says of which kind, for controllers of more than one.

    The empty name is no plane, and nothing stands in for it.
    """

    plane: PlaneName
    ref: Ref
    resource: str = ""

    def __post_init__(self) -> None:
        assert self.plane, f"work on {self.ref} names no plane"

    def __str__(self) -> str:
        return f"{self.plane}:{self.resource and self.resource + '/'}{self.ref}"
