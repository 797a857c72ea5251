"""Stories about the cells themselves: drained while people go on, leaving, joining again.

They draw from streams of their own, so that no scenario that was recorded before changes. To add
one: a function as here, and its line in ``CELL_TEMPLATES``.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from testkit.sim.scenario import faults as f
from testkit.sim.scenario.composed_operations import DrainCell
from testkit.sim.scenario.drawing import draw_faults, draw_operations
from testkit.sim.scenario.layout import CENTRE
from testkit.sim.scenario.membership_operations import LeaveCell, MoveCity, SecondCell
from testkit.sim.scenario.operations import ChangeImage, CreateWorkload, Operation, Scale
from testkit.sim.scenario.sizes import MEDIUM, SMALL
from testkit.sim.scenario.stories import Template, with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario


def with_membership_story(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(DRAIN_TEMPLATES)(random, scenario)


def _drained(random: Random, scenario: Scenario) -> Scenario:
    """Before, while and after workloads come to its city, and whatever else goes wrong."""
    layout = scenario.layout
    cell, project = random.choice(layout.cells), random.choice(layout.projects)
    at_s = round(random.uniform(1, 6), 2)
    during_s, for_s = round(at_s + random.uniform(0, 5), 2), round(random.uniform(2, 15), 2)
    told: tuple[Operation, ...] = (
        CreateWorkload(0.0, project, "kept", "kept:1", random.randint(1, 2), (cell.upper(),)),
        DrainCell(at_s, cell, for_s),
        Scale(during_s, project, "kept", random.randint(1, 3)),
        ChangeImage(round(during_s + 1, 2), project, "kept", "kept:2"),
        CreateWorkload(during_s, project, "held", "held:1", 1, (cell.upper(),)),
    )
    return with_steps(scenario, told, ())


DRAIN_TEMPLATES: tuple[Template, ...] = (_drained,)


# --- cells that come and go


def with_cells_that_come_and_go(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(CELL_TEMPLATES)(random, scenario)


def _leaving(random: Random, scenario: Scenario) -> Scenario:
    """A cell leaves while people work on what is there, and it or another one joins."""
    scenario, cell, spare = _joined(random, scenario)
    at_s, forced = round(random.uniform(1, 12), 2), random.random() < 0.5
    heir = random.choice((cell, spare))
    away_s = round(random.choice((0.0, random.uniform(0, 6), random.uniform(20, 60))), 2)
    told = LeaveCell(at_s, cell, heir, away_s, forced, random.random() < 0.5)
    return with_steps(scenario, (told,), _silence(random, cell, at_s) if forced else ())


def _second(random: Random, scenario: Scenario) -> Scenario:
    """A city has two cells for a while."""
    scenario, _, spare = _joined(random, scenario)
    at_s, for_s = round(random.uniform(1, 8), 2), round(random.uniform(0, 12), 2)
    told = SecondCell(at_s, spare, for_s, random.random() < 0.5)
    return with_steps(scenario, (told,), ())


def _there_and_back(random: Random, scenario: Scenario) -> Scenario:
    """A city goes to another cell and back, perhaps while the first does not hear of it."""
    scenario, cell, spare = _joined(random, scenario)
    at_s, for_s = round(random.uniform(1, 8), 2), round(random.uniform(0, 40), 2)
    told = MoveCity(at_s, spare, for_s)
    silent = _silence(random, cell, at_s) if random.random() < 0.7 else ()
    return with_steps(scenario, (told,), silent)


def _joined(random: Random, scenario: Scenario) -> tuple[Scenario, str, str]:
    """A world whose cells have joined, one of them, and a spare for its city. Nothing goes wrong
    there that nobody could tell from a cell that has left."""
    cell = random.choice(scenario.layout.cells)
    spare = f"{cell}-2"
    layout = replace(scenario.layout, processes="split", managers=1, joined=True, spares=(spare,))
    size = MEDIUM if random.random() < 0.2 else SMALL
    window_s = random.choice((4.0, 12.0))
    told = draw_operations(random, layout, size, window_s)
    bent = [x for x in draw_faults(random, layout, size, window_s) if not _is_fatal(x)]
    scenario = replace(scenario, layout=layout, operations=told, faults=tuple(bent))
    return replace(scenario, chaos_s=window_s + 10.0), cell, spare


def _is_fatal(fault: f.Fault) -> bool:
    """For ever; or a disk is wiped; or certificates are not valid yet, or any more."""
    if isinstance(fault, f.EmptyHost):
        return True
    skewed = isinstance(fault, f.SkewClock) and fault.host == CENTRE
    return skewed or getattr(fault, "for_s", 0.0) == f.FOR_EVER


def _silence(random: Random, cell: str, at_s: float) -> tuple[f.Fault, ...]:
    """Of the cell, from before to some time after."""
    begins_s = round(max(0.0, at_s - random.uniform(0, 5)), 2)
    return (f.IsolateHost(begins_s, round(random.uniform(5, 90), 2), f"cell-{cell}"),)


CELL_TEMPLATES: tuple[Template, ...] = (_leaving, _leaving, _second, _there_and_back)
