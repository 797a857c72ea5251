"""Which hosts a world has, and what runs on each of them."""

from __future__ import annotations

from datum_compute.api.plane import HUB, cell_plane, project_plane
from datum_compute.app.wiring import EVERYTHING
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from testkit.sim.host import Duties
from testkit.sim.scenario.layout import CENTRE, WorldLayout, host_of_cell, managers_of


def duties_of(layout: WorldLayout) -> list[Duties]:
    """Who runs what: the one process, or the centre, perhaps a manager, and the cells."""
    cells = tuple(cell_plane(cell) for cell in layout.all_cells)
    central = tuple(plane for plane in layout.planes if plane not in cells)
    if layout.processes == "one":
        everything = (*EVERYTHING, *_publishing(layout))
        return [Duties("all", layout.planes, True, everything, (), publishes=layout.published)]
    of_cells = tuple(c for c in registry.NEIGHBOURS if c.role == "cell")
    of_centre = tuple(c for c in registry.NEIGHBOURS if c.role != "cell")
    of_centre += registry.FOLLOW_PROJECTS
    managing = (*registry.MANAGEMENT, *registry.HUB)
    if layout.processes == "managers":
        found = [
            Duties(CENTRE, central, True, of_centre, cells),
            *(
                _managing(layout, name, (*managing, *registry.FOLLOW_PROJECTS))
                for name in managers_of(layout)
            ),
        ]
    else:
        elsewhere = () if layout.joined else cells
        controllers = (*managing, *of_centre)
        found = [Duties(CENTRE, central, True, controllers, elsewhere, members=layout.joined)]
    if layout.joined:
        return [*found, *(_joining(layout, cell) for cell in layout.all_cells)]
    for cell in layout.cells:
        controllers = (*registry.CELL, *of_cells, *registry.FOLLOW_HOMES, *_publishing(layout))
        name = host_of_cell(layout, cell)
        above = (HUB, *map(project_plane, layout.projects))  # and the claims of its instances
        own = (cell_plane(cell),)
        found.append(Duties(name, own, False, controllers, above, publishes=layout.published))
    return found


def _joining(layout: WorldLayout, cell: str) -> Duties:
    name, plane = host_of_cell(layout, cell), cell_plane(cell)
    controllers = (*registry.BESIDE_CELL, *_publishing(layout))
    return Duties(name, (plane,), False, controllers, (), joins=cell, publishes=layout.published)


def _publishing(layout: WorldLayout) -> tuple[Controller[Context], ...]:
    return registry.PUBLISHING if layout.published else ()


def _managing(
    layout: WorldLayout, name: str, controllers: tuple[Controller[Context], ...]
) -> Duties:
    return Duties(name, (), False, controllers, layout.planes, candidate=layout.managers > 1)
