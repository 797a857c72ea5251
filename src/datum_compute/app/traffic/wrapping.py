"""The drivers of a process as its controllers see them, with traffic in front of their machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from datum_compute.api.planes import PlaneName
from datum_compute.app.traffic.draining import DrainingDriver
from datum_compute.drivers.driver import Driver
from datum_compute.ingress.activations import WakeBook
from datum_compute.ingress.drivers import ReportingDriver


def with_traffic(
    drivers: Mapping[PlaneName, Driver],
    take_out: Callable[[str], int],
    book: WakeBook,
    elapsed_s: Callable[[], float],
) -> dict[PlaneName, Driver]:
    """Machines are drained before they go, and say how they were woken."""
    wrapped = {
        cell: ReportingDriver(DrainingDriver(driver, take_out, elapsed_s), book)
        for cell, driver in drivers.items()
    }
    book.announce = lambda cell, machine_id: wrapped[cell].news.put_nowait(machine_id)
    return dict(wrapped)
