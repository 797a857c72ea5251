"""Values of the data path: the machines behind a published port, and the times of a wake.

The process of a cell sends them to the ingress, and the ingress to the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PlaneName


def owner_name(plane: PlaneName, deployment: Ref) -> str:
    """Return the owner of the ports of a deployment."""
    return f"{plane} {deployment}"


@dataclass(frozen=True, slots=True)
class SleepPolicy:
    """When a machine without connections sleeps, and how long a connection waits for its wake."""

    idle_after_s: float
    mode: SleepMode
    hold_s: float


@dataclass(frozen=True, slots=True)
class Backend:
    """A machine that accepts connections, perhaps after a wake."""

    cell: PlaneName
    machine_id: str
    address: str
    port: int
    sleep: SleepPolicy | None = None  # None: it never sleeps
    asleep: bool = False  # when it was last observed


class Rank(IntEnum):
    """The order in which machines are chosen for a connection."""

    AWAKE = 0
    WAKING = 1
    ASLEEP = 2


class WakeFailed(Exception):
    """The machine does not serve in time. The message contains the cause."""


class CellUnavailable(WakeFailed):
    """The machine sleeps, and the process of its cell, which could wake it, does not run."""


@dataclass(slots=True)
class WakeTimes:
    """The points in time of one wake, by the monotonic clock of the host. 0 means: not reached."""

    cell: PlaneName
    machine_id: str
    mode: SleepMode
    arrived_s: float
    engine_s: float = 0.0
    running_s: float = 0.0
    connected_s: float = 0.0
    first_byte_s: float = 0.0
    is_pending: bool = True  # False once recorded, or if the machine was awake already

    @property
    def parts_s(self) -> dict[str, float]:
        """The durations of the parts. A part that was not reached has duration 0."""
        running_s = self.running_s or self.arrived_s
        connected_s = self.connected_s or running_s
        first_byte_s = self.first_byte_s or connected_s
        return {
            "queue": max(0.0, running_s - self.arrived_s - self.engine_s),
            "engine": self.engine_s,
            "ready": max(0.0, connected_s - running_s),
            "first_byte": max(0.0, first_byte_s - connected_s),
        }
