"""What every controller is given: the planes, the drivers of their cells, and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datum_compute.api.holdings import Holdings
from datum_compute.api.plane import PlaneName
from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.driver import Driver
from datum_compute.planes.planes import Planes


@dataclass(frozen=True, slots=True)
class Context:
    planes: Planes
    drivers: Mapping[PlaneName, Driver]
    unix_s: Callable[[], float]
    # For controllers that only run beside the server of their planes.
    holdings: Callable[[PlaneName], Holdings]
    authority: str  # the certificates that clients of the planes trust, as PEM

    def now(self) -> str:
        return timestamp(self.unix_s())
