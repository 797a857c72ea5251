"""The cells that can be asked about their instances, and which of them to ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from datum_compute.api.errors import NotFound, ServiceUnavailable
from datum_compute.api.gateway import NO_PROCESS
from datum_compute.api.planes import PlaneName
from datum_compute.api.remotecommand import ExecWish
from datum_compute.drivers.logs import LogPage, LogQuery
from datum_compute.drivers.queries import (
    SIMULATED,
    CrashReport,
    DriverReport,
    ExecSession,
    ImageCheck,
    Usage,
)


class CellWay(Protocol):
    """A cell, of this process or of another. ``server`` is ``namespace/name`` on its plane; the
    answer is None, or a page without a cursor, if the cell knows nothing of it."""

    async def log_page(self, server: str, wish: LogQuery) -> LogPage: ...

    async def usage(self, server: str) -> Usage | None: ...

    async def crashes(self, server: str) -> list[CrashReport]: ...

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck: ...

    async def execute(self, server: str, wish: ExecWish) -> ExecSession | None: ...

    async def driver(self) -> DriverReport: ...


class CellWays:
    """Those of this process from the start; others come and go with their membership. ``silent``
    are cells of this process whose machines are simulated; ``why`` is how the driver of this
    process was chosen."""

    def __init__(
        self,
        inside: Mapping[PlaneName, CellWay],
        silent: Collection[PlaneName] = (),
        why: str = "",
    ) -> None:
        self._ways: dict[PlaneName, CellWay] = dict(inside)
        self._inside = frozenset(inside)
        self._silent = silent
        self._why = why

    def add(self, plane: PlaneName, way: CellWay) -> None:
        self._ways[plane] = way

    def remove(self, plane: PlaneName) -> None:
        self._ways.pop(plane, None)

    def knows(self, plane: PlaneName) -> bool:
        """Whether there is such a cell, even one that only pretends."""
        return plane in self._ways or plane in self._silent

    def planes(self) -> list[PlaneName]:
        """Every cell there is, in order."""
        return sorted({*self._ways, *self._silent})

    async def driver(self, plane: PlaneName) -> DriverReport:
        """What runs its instances; of this process it is known why."""
        if plane in self._silent:
            return replace(SIMULATED, why=self._why)
        (way,) = self.to(plane)
        told = await way.driver()
        return replace(told, why=self._why) if plane in self._inside else told

    def to(self, plane: PlaneName | None) -> list[CellWay]:
        """That of the plane; all of them, in order, if nobody knows which it is."""
        if plane is None and self._ways:
            return [self._ways[known] for known in sorted(self._ways)]
        if plane is None or plane in self._silent:
            raise NotFound(NO_PROCESS)
        if plane not in self._ways:
            raise ServiceUnavailable(f"{plane} cannot be reached now; try again")
        return [self._ways[plane]]
