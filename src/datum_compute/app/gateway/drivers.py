"""What runs the instances of each cell, and whether its engine answers.

Who may read instances may ask: that none of them starts is told there, and the reason here. A cell
that does not answer has a row all the same.
"""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

from datum_compute.api.errors import ApiError
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.planes import PlaneName, member_name, plane_role
from datum_compute.app.gateway.ways import CellWays
from datum_compute.drivers.driver import DriverError
from datum_compute.drivers.queries import DriverReport

# Longer than a busy engine takes, and shorter than those wait who ask.
ANSWER_S = 8.0


class CellDriver(DriverReport, frozen=True, kw_only=True, omit_defaults=False):
    cell: str


class CellDrivers(ApiStruct, frozen=True, kw_only=True):
    items: list[CellDriver]


async def read_drivers(ways: CellWays, plane: PlaneName) -> CellDrivers:
    """Of the cell that is asked; on a project of all of them."""
    asked = [plane] if plane_role(plane) == "cell" else ways.planes()
    found = await asyncio.gather(*(_driver(ways, cell) for cell in asked))
    return CellDrivers(items=list(found))


async def _driver(ways: CellWays, plane: PlaneName) -> CellDriver:
    try:
        async with asyncio.timeout(ANSWER_S):
            told = await ways.driver(plane)
    except TimeoutError:
        words = f"cell {member_name(plane)} does not answer"
        told = DriverReport(driver="unknown", answers=False, words=words)
    except (ApiError, DriverError) as error:
        told = DriverReport(driver="unknown", answers=False, words=str(error))
    return CellDriver(
        cell=member_name(plane),
        driver=told.driver,
        why=told.why,
        engine=PurePosixPath(told.engine).name,  # its folder is a path on the host
        answers=told.answers,
        words=told.words,
        without_init=told.without_init,
    )
