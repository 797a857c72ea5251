"""What cells report about themselves: their driver, and when they responded last.

A project learns that a cell is unreachable only after a grace period. Until then its statuses are
those of the last report, so a verdict that depends on the cell states the time of that report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.gateway import drivers_path
from datum_compute.api.labels import CELL
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.connect.gateway import PlaneGateway
from datum_compute.cli.render.documents import DriverStatus
from datum_compute.cli.render.listing import age_since
from datum_compute.cli.render.output import one_line
from datum_compute.client.client import Client

# The driver of a cell that does not respond.
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReportedDriver:
    """A driver, and the cells that use it with the same settings.

    ``words`` name the engine, or the reason why it does not respond. ``without_init`` counts the
    containers of these cells for which the engine had no init process.
    """

    driver: str
    why: str
    engine: str
    answers: bool
    words: str
    cells: tuple[str, ...] = ()
    without_init: int = 0
    last_heartbeat: str = ""  # of a cell that does not respond; empty if it is unknown

    @property
    def is_cell_unreachable(self) -> bool:
        return self.driver == _UNKNOWN and not self.answers

    @property
    def sentence(self) -> str:
        words = self.words.rstrip(".")
        if self.driver == "simulated":
            text = "simulated, no process runs"
        elif self.driver == "pods":
            text = "pods of the cell's cluster"
        elif self.driver != "containers":
            text = f"unknown: {words}"
        elif self.answers:
            text = f"containers of {self.words} at {self.engine}"
        else:
            text = f"containers, but {words}; running instances are not affected, none can start"
        return f"{text} ({self.why})" if self.why else text

    @property
    def document(self) -> DriverStatus:
        return DriverStatus(
            cells=list(self.cells),
            driver=self.driver,
            why=self.why,
            engine=self.engine or None,
            answers=self.answers,
            words=self.words,
            without_init=self.without_init,
        )


async def read_drivers(client: Client | PlaneGateway, namespace: str) -> list[ReportedDriver]:
    """Return the drivers; an empty list if the platform does not report them."""
    try:
        items = (await client.get_raw(drivers_path(namespace)))["items"]
    except (ApiError, Unreachable, KeyError):
        return []
    merged: dict[ReportedDriver, ReportedDriver] = {}
    for item in items:
        found = _read_driver(item)
        known = merged.get(found, found)
        cells = (*known.cells, str(item.get("cell", "")))
        without_init = known.without_init + int(item.get("withoutInit", 0))
        merged[found] = replace(known, cells=cells, without_init=without_init)
    return list(merged.values())


def describe_drivers(drivers: Sequence[ReportedDriver]) -> list[str]:
    """Return one line for each driver, with the names of the cells if they differ."""
    if len(drivers) == 1:
        return [f"Runtime: {drivers[0].sentence}"]
    return [f"Runtime of {', '.join(d.cells)}: {d.sentence}" for d in drivers]


def _read_driver(item: JsonObject) -> ReportedDriver:
    return ReportedDriver(
        driver=str(item.get("driver", "")),
        why=one_line(str(item.get("why", ""))),
        engine=str(item.get("engine", "")),
        answers=bool(item.get("answers")),
        words=one_line(str(item.get("words", ""))),
        last_heartbeat=str(item.get("lastHeartbeat", "")),
    )


# --- Cells that do not respond


@dataclass(frozen=True, slots=True)
class StaleReport:
    """The cells that do not respond, and the time of the oldest last heartbeat of them."""

    cells: tuple[str, ...] = ()
    as_of: str = ""  # empty if it is unknown

    def describe(self, now_s: float) -> str:
        """Return the end of a sentence; empty if all cells respond."""
        if not self.cells:
            return ""
        when = "the last report"
        if self.as_of:
            when = f"{self.as_of} ({age_since(self.as_of, now_s)} ago)"
        if len(self.cells) == 1:
            return f"as of {when}: cell {self.cells[0]} does not respond"
        return f"as of {when}: cells {', '.join(self.cells)} do not respond"


def stale_heartbeats(drivers: Sequence[ReportedDriver]) -> dict[str, str]:
    """Return the time of the last heartbeat of each cell that does not respond, by its name."""
    return {
        cell: driver.last_heartbeat
        for driver in drivers
        if driver.is_cell_unreachable
        for cell in driver.cells
    }


def stale_report(heartbeats: Mapping[str, str], instances: Iterable[Instance]) -> StaleReport:
    """Return which cells of these instances do not respond."""
    cells = sorted({i.metadata.labels.get(CELL, "") for i in instances} & set(heartbeats))
    times = [heartbeats[cell] for cell in cells]
    return StaleReport(tuple(cells), min(times) if times and all(times) else "")
