"""Which hosts a world has, and what runs on each of them."""

from __future__ import annotations

from datum_compute.api.plane import HUB, cell_plane, project_plane
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.testing.host import Duties
from datum_compute.testing.layout import CENTRE, WorldLayout, host_of_cell, managers_of


def duties_of(layout: WorldLayout) -> list[Duties]:
    """Who runs what: the one process, or the centre, perhaps a manager, and the cells."""
    cells = tuple(cell_plane(cell) for cell in layout.cells)
    added = tuple(project_plane(name) for name in layout.revocable if name in layout.projects)
    central = tuple(plane for plane in layout.planes if plane not in cells)
    if layout.processes == "one":
        everything = (*registry.MANAGEMENT, *registry.HUB, *registry.CELL, *registry.NEIGHBOURS)
        return [Duties("all", layout.planes, True, everything, (), added)]
    of_cells = tuple(c for c in registry.NEIGHBOURS if c.role == "cell")
    of_centre = tuple(c for c in registry.NEIGHBOURS if c.role != "cell")
    managing = (*registry.MANAGEMENT, *registry.HUB)
    if layout.processes == "managers":
        found = [
            Duties(CENTRE, central, True, of_centre, cells, added),
            *(_managing(layout, name, managing) for name in managers_of(layout)),
        ]
    else:
        found = [Duties(CENTRE, central, True, (*managing, *of_centre), cells, added)]
    for cell in layout.cells:
        controllers = (*registry.CELL, *of_cells)
        name = host_of_cell(layout, cell)
        above = (HUB, *map(project_plane, layout.projects))  # and the claims of its instances
        found.append(Duties(name, (cell_plane(cell),), False, controllers, above))
    return found


def _managing(
    layout: WorldLayout, name: str, controllers: tuple[Controller[Context], ...]
) -> Duties:
    return Duties(name, (), False, controllers, layout.planes, candidate=layout.managers > 1)
