"""Stories of processes that restart, or find something else than they left.

Most are rollouts that meet a restart of the cell process, the centre or the engine. Most of those
roll out an image that never serves, or only after a while, so that the rollout stands half way when
somebody restarts. In the end an image comes that serves.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from datum_compute.api.kinds import SERVER
from datum_compute.api.plane import cell_plane
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.layout import host_of_cell, hosts_of
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    EditObject,
    FleetingNamespace,
    Operation,
    RollCarefully,
)
from testkit.sim.scenario.stories import Template, split, with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

# Registries whose images behave in ways of their own (drivers/behaviours.py); "" is the usual one.
_REGISTRIES = (
    *("", "crash.example/", "fail.example/", "stuck.example/", "exit.example/"),
    *("flaky.example/", "slow.example/"),
)
_NAME = "db"


def with_restart_story(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(RESTART_TEMPLATES)(random, replace(scenario, operations=(), faults=()))


def _interrupted_rollout(random: Random, scenario: Scenario) -> Scenario:
    """Processes or the engine restart while a rollout is half way."""
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    at_s = round(random.choice((random.uniform(0.3, 2), random.uniform(3, 6))), 2)
    told: list[Operation] = [
        CreateWorkload(0.0, project, _NAME, "db:1", random.choice((2, 2, 2, 3)), (cell.upper(),)),
        ChangeImage(at_s, project, _NAME, f"{random.choice(_REGISTRIES)}db:2"),
    ]
    if random.random() < 0.4:
        min_ready_s, most = random.choice((0, 2, 10)), random.choice((1, 1, 2))
        told.append(RollCarefully(0.2, project, _NAME, min_ready_s, most))
    restarts = [
        _restart(random, scenario, cell, round(at_s + random.uniform(0.05, late_s), 2))
        for late_s in random.choice(((1.0,), (1.0, 1.0), (1.0, 40.0), (40.0,)))
    ]
    over_s = max(fault.at_s + getattr(fault, "for_s", 0.0) for fault in restarts)
    told.append(ChangeImage(round(over_s + random.uniform(1, 60), 2), project, _NAME, "db:3"))
    return with_steps(scenario, tuple(told), tuple(restarts))


def _edited_while_lost(random: Random, scenario: Scenario) -> Scenario:
    """Somebody edits a Server whose machine has just died, so that the edit starts the next one."""
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    at_s = round(random.uniform(3, 8), 2)
    create = CreateWorkload(0.0, project, _NAME, "db:1", 1, (cell.upper(),))
    edit = EditObject(
        round(at_s + random.uniform(0.1, 5), 2), cell_plane(cell), SERVER.resource, "spec", 0
    )
    return with_steps(scenario, (create, edit), (f.LoseMachine(at_s, cell, 0),))


def _emptied_with_news(random: Random, scenario: Scenario) -> Scenario:
    """A cell returns empty, and gets a new namespace before the hub watches it again."""
    scenario = split(scenario)
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    at_s, city = round(random.uniform(3, 15), 2), (cell.upper(),)
    create = CreateWorkload(0.0, project, _NAME, "db:1", 1, city)
    change = ChangeImage(round(at_s + random.uniform(5, 15), 2), project, _NAME, "db:2")
    home = FleetingNamespace(
        round(at_s - random.uniform(0, 0.1), 2), project, "fleeting-0", city, 20.0
    )
    emptied = f.EmptyHost(at_s, host_of_cell(scenario.layout, cell))
    return with_steps(scenario, (create, home, change), (emptied,))


def _restart(random: Random, scenario: Scenario, cell: str, at_s: float) -> f.Fault:
    """Of the process that owns the driver, mostly."""
    owner = host_of_cell(scenario.layout, cell)
    host = random.choice((owner, owner, owner, random.choice(hosts_of(scenario.layout))))
    return random.choice(
        (
            f.StopHost(at_s, round(random.uniform(0.2, 5), 2), host),
            f.StopHost(at_s, round(random.uniform(0.2, 5), 2), host),
            f.CrashAtCommit(at_s, host, random.randint(1, 12), random.random() < 0.5),
            f.ProviderAway(at_s, round(random.uniform(1, 60), 2), cell),
        )
    )


RESTART_TEMPLATES: tuple[Template, ...] = (
    *(_interrupted_rollout,) * 6,
    _edited_while_lost,
    _emptied_with_news,
)
