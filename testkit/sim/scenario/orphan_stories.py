"""Deletes with ``--cascade=orphan``: those that a world has drawn, and one or two more.

From a stream of its own, on top of whatever else is told.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from datum_compute.api.kinds import BINDING, DEPLOYMENT, INSTANCE
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import HUB, cell_plane, project_plane
from testkit.sim.scenario.operations import CreateWorkload, DeleteObject, DeleteWorkload, Operation
from testkit.sim.scenario.stories import with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario


def with_orphans(random: Random, scenario: Scenario) -> Scenario:
    told = tuple(_orphaned(random, operation) for operation in scenario.operations)
    return with_steps(replace(scenario, operations=told), _more(random, scenario), ())


def _orphaned(random: Random, operation: Operation) -> Operation:
    if isinstance(operation, DeleteWorkload | DeleteObject) and random.random() < 0.7:
        return replace(operation, orphan=True)
    return operation


def _more(random: Random, scenario: Scenario) -> tuple[Operation, ...]:
    """A workload of its own is deleted so, perhaps made again; and something that is owned."""
    layout, at_s = scenario.layout, round(random.uniform(1, 8), 2)
    project, city = random.choice(layout.projects), random.choice(layout.cells).upper()
    first = CreateWorkload(0.0, project, "gone", "gone:1", random.randint(1, 2), (city,))
    deleted = DeleteWorkload(at_s, project, "gone", orphan=True)
    told: tuple[Operation, ...] = (first, deleted)
    if random.random() < 0.5:
        again_s = round(at_s + random.uniform(0, 3), 2)
        told += (replace(first, at_s=again_s, image="gone:2"),)
    places: list[tuple[str, KindInfo[Any]]] = [
        (HUB, DEPLOYMENT),
        (HUB, BINDING),
        *((project_plane(name), DEPLOYMENT) for name in layout.projects),
        *((cell_plane(c), kind) for c in layout.cells for kind in (DEPLOYMENT, INSTANCE)),
    ]
    if random.random() < 0.6:
        plane, kind = random.choice(places)
        also_s = round(random.uniform(1, 8), 2)
        told += (DeleteObject(also_s, plane, kind.resource, random.randrange(100), orphan=True),)
    return told
