"""Names one piece of work: an object and the plane it lies in."""

from __future__ import annotations

from typing import NamedTuple

from datum_compute.api.meta import Ref
from datum_compute.api.plane import PlaneName

LANE_MAX = 50_000


class Key(NamedTuple):
    """``resource`` says of which kind, for controllers of more than one.

    The empty name is no plane, and nothing stands in for it: no queue takes such a key.
    """

    plane: PlaneName
    ref: Ref
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.plane}:{self.resource and self.resource + '/'}{self.ref}"


def plane_of(key: Key) -> str:
    return key.plane


def namespace_of(key: Key) -> str:
    """Return the flow of a key. All objects without a namespace are one flow."""
    return key.ref.namespace
