"""Stories of many planes: cells that must do without the centre, and what they owe it then.

Told on top of what ``stories.py`` has told or not, from a stream of their own. To add one: a
function as there, and its line in ``FEDERATION_TEMPLATES``.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from datum_compute.api.kinds import INSTANCE
from datum_compute.api.plane import cell_plane
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.drawing import CELLS, MANY_CELLS, draw_operations, draw_partitions
from testkit.sim.scenario.layout import host_of_cell, hosts_of
from testkit.sim.scenario.operations import (
    AllowFallback,
    CreateWorkload,
    DeleteObject,
    MoveBack,
    Operation,
    Scale,
)
from testkit.sim.scenario.sizes import LARGE, MEDIUM
from testkit.sim.scenario.stories import Template, split, with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

MANY_PERCENT = 8  # of partitioned worlds: those have twenty cells, and take their time


def with_federation_story(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(FEDERATION_TEMPLATES)(random, scenario)


def _left_alone(random: Random, scenario: Scenario) -> Scenario:
    """I19: the centre is away; meanwhile machines die and somebody deletes instances on the cell,
    which go and come back without anybody's consent."""
    scenario = replace(split(scenario), faults=(), operations=())
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    create = CreateWorkload(0.0, project, "db", "db:1", 2, (cell.upper(),))
    at_s, for_s = round(random.uniform(3, 6), 2), round(random.uniform(70, 120), 2)
    deleted = [
        DeleteObject(
            round(at_s + random.uniform(1, 10), 2), cell_plane(cell), INSTANCE.resource, pick
        )
        for pick in range(random.randint(1, 2))
    ]
    lost = f.LoseMachine(round(at_s + random.uniform(0, 10), 2), cell, random.randrange(100))
    stop = f.StopHost(at_s, for_s, hosts_of(scenario.layout)[0])
    return with_steps(scenario, (create, *deleted), (stop, lost))


def _debts_of_the_dead(random: Random, scenario: Scenario) -> Scenario:
    """Instances leave their cell while the centre is away, and the cell is killed before it could
    say so. The centre has other ideas when it is back."""
    scenario = replace(split(scenario), faults=(), operations=())
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    at_s, for_s = round(random.uniform(4, 6), 2), round(random.uniform(10, 40), 2)
    told = (
        CreateWorkload(0.0, project, "db", "db:1", 3, (cell.upper(),)),
        Scale(round(at_s - random.uniform(0, 0.2), 2), project, "db", 1),
        DeleteObject(
            round(at_s + 1, 2), cell_plane(cell), INSTANCE.resource, random.randrange(100)
        ),
    )
    killed_s = round(at_s + random.uniform(0.2, 4), 2)
    faults = (
        f.StopHost(at_s, for_s, hosts_of(layout)[0]),
        f.StopHost(killed_s, round(random.uniform(0.1, 5), 2), host_of_cell(layout, cell)),
    )
    return with_steps(scenario, told, faults)


def _fallen_back(random: Random, scenario: Scenario) -> Scenario:
    """I16: a city fails for a while or for good, and others take its share; perhaps one of those
    fails as well, and perhaps somebody moves it back."""
    scenario = replace(split(scenario), faults=(), operations=())
    layout = replace(scenario.layout, cells=CELLS)
    scenario = replace(scenario, layout=layout)
    first, *rest = random.sample(layout.cells, len(layout.cells))
    project, cities = random.choice(layout.projects), tuple(cell.upper() for cell in rest)
    at_s = round(random.uniform(4, 8), 2)
    told: tuple[Operation, ...] = (
        CreateWorkload(0.0, project, "db", "db:1", random.randint(1, 2), (first.upper(),)),
        AllowFallback(0.5, project, "db", cities, 30),
    )
    for_s = random.choice((round(random.uniform(20, 200), 2), f.FOR_EVER))
    fault = random.choice((f.StopHost, f.IsolateHost))
    faults: tuple[f.Fault, ...] = (fault(at_s, for_s, host_of_cell(layout, first)),)
    if random.random() < 0.4:
        also_s = round(at_s + random.uniform(0, 90), 2)
        lasts_s = round(random.uniform(20, 120), 2)
        faults += (f.StopHost(also_s, lasts_s, host_of_cell(layout, rest[0])),)
    back_s = round(at_s + (for_s if for_s != f.FOR_EVER else 100.0) + random.uniform(5, 60), 2)
    if random.random() < 0.8:
        told += (MoveBack(back_s, project, "db"),)
    return with_steps(scenario, told, faults)


def _partitioned(random: Random, scenario: Scenario) -> Scenario:
    """Three cells, or twenty now and then, and planes that do not hear each other in several ways
    at once while users work on workloads in many cities."""
    many = random.random() * 100 < MANY_PERCENT
    layout = replace(scenario.layout, processes="split", cells=MANY_CELLS if many else CELLS)
    window_s = random.choice((12.0, 40.0))
    size = LARGE if many else MEDIUM
    told = draw_operations(random, layout, size, window_s)
    faults = draw_partitions(random, layout, random.randint(3, 8), window_s)
    plain = replace(scenario, layout=layout, operations=(), faults=())
    return with_steps(plain, told, faults)


FEDERATION_TEMPLATES: tuple[Template, ...] = (
    _left_alone,
    _debts_of_the_dead,
    _fallen_back,
    _partitioned,
)
