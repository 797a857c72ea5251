"""Stories of sleep: visitors come and go while instances fall asleep, and other things happen.

They draw from a stream of their own. To add one: a function, and its line in ``SLEEP_TEMPLATES``.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from datum_compute.api.scaletozero import SleepMode
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.layout import host_of_cell, hosts_of
from testkit.sim.scenario.operations import ChangeImage, CreateWorkload, Operation, Scale
from testkit.sim.scenario.sleep_operations import LetSleep, Visit
from testkit.sim.scenario.stories import Template, split, with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

# Shorter than what a world is given to settle: it sleeps before silence is asked of it.
IDLE_MS = (500, 1000, 2000)


Sleepers = tuple[CreateWorkload, LetSleep]


def with_sleep_story(random: Random, scenario: Scenario) -> Scenario:
    if scenario.layout.joined:
        return scenario
    return random.choice(SLEEP_TEMPLATES)(random, scenario)


def _come_and_go(random: Random, scenario: Scenario) -> Scenario:
    """Whatever else goes wrong."""
    scenario, told = _sleepers(random, scenario)
    return with_steps(scenario, (*told, *_visits(random, told, 3.0, 20.0)), ())


def _left_idle(random: Random, scenario: Scenario) -> Scenario:
    """I19: the centre is away, and sleepers wake all the same."""
    scenario = replace(split(scenario), faults=(), operations=())
    scenario, told = _sleepers(random, scenario)
    at_s, for_s = round(random.uniform(6, 9), 2), round(random.uniform(20, 60), 2)
    stop = f.StopHost(at_s, for_s, hosts_of(scenario.layout)[0])
    visits = _visits(random, told, at_s, at_s + for_s)
    return with_steps(scenario, (*told, *visits), (stop,))


def _killed_asleep(random: Random, scenario: Scenario) -> Scenario:
    """The process of the cell dies while its machines sleep, wake or fall asleep."""
    scenario, told = _sleepers(random, replace(scenario, faults=()))
    host = host_of_cell(scenario.layout, told[0].cities[0].lower())
    stops = tuple(
        f.StopHost(round(random.uniform(4, 20), 2), round(random.uniform(0.1, 3), 2), host)
        for _ in range(random.randint(1, 3))
    )
    return with_steps(scenario, (*told, *_visits(random, told, 3.0, 25.0)), stops)


def _rolled_asleep(random: Random, scenario: Scenario) -> Scenario:
    """Sleepers are replaced, scaled and visited meanwhile."""
    scenario, told = _sleepers(random, replace(scenario, faults=(), operations=()))
    project = told[0].project
    changes: tuple[Operation, ...] = (
        ChangeImage(round(random.uniform(6, 14), 2), project, "idle", "idle:3"),
        Scale(round(random.uniform(6, 20), 2), project, "idle", random.randint(1, 3)),
    )
    return with_steps(scenario, (*told, *changes, *_visits(random, told, 3.0, 22.0)), ())


def _sleepers(random: Random, scenario: Scenario) -> tuple[Scenario, Sleepers]:
    """A workload that sleeps, in a world in which cells publish ports."""
    scenario = replace(scenario, layout=replace(scenario.layout, published=True))
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    mode: SleepMode = random.choice(("pause", "stop"))
    return scenario, (
        CreateWorkload(0.0, project, "idle", "idle:1", random.randint(1, 2), (cell.upper(),)),
        LetSleep(0.3, project, "idle", "idle:2", random.choice(IDLE_MS), mode),
    )


def _visits(random: Random, told: Sleepers, from_s: float, until_s: float) -> tuple[Visit, ...]:
    return tuple(
        _visit(random, told, round(random.uniform(from_s, until_s), 2))
        for _ in range(random.randint(3, 8))
    )


def _visit(random: Random, told: Sleepers, at_s: float) -> Visit:
    """Alone, many at once, or again and again in the very moment of falling asleep."""
    create, sleep = told
    stays_s = random.choice((0.0, 0.2, 0.2, 3.0))
    again_s = sleep.idle_ms / 1000 + stays_s + random.choice((0.0, 0.02, 0.05, 0.08))
    return Visit(
        at_s,
        create.cities[0].lower(),
        random.randrange(100),
        random.choice((1, 5, 5, 15)),
        round(random.choice((0.0, 0.3, again_s, again_s)), 3),
        stays_s,
    )


SLEEP_TEMPLATES: tuple[Template, ...] = (_come_and_go, _left_idle, _killed_asleep, _rolled_asleep)
