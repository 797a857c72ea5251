"""The story of a quota that several wait for: what is given back is enough for one of them only.

It draws from a stream of its own, and is told in worlds whose quota is tight.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from testkit.sim.scenario.operations import CreateWorkload, DeleteWorkload, Operation, Scale
from testkit.sim.scenario.stories import with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

_HOLDER, _WAITING = "first", ("next", "last")


def with_contenders(random: Random, scenario: Scenario) -> Scenario:
    """One workload has all there is and gives one back, while two others wait."""
    layout = scenario.layout
    project, allowed = random.choice(layout.projects), layout.instances
    cities = (random.choice(layout.cells).upper(),)
    waiting = (
        CreateWorkload(round(random.uniform(3, 5), 2), project, name, f"{name}:1", 1, cities)
        for name in _WAITING
    )
    at_s = round(random.uniform(7, 12), 2)
    gives_back: Operation = DeleteWorkload(at_s, project, _HOLDER)
    if allowed > 1:
        gives_back = Scale(at_s, project, _HOLDER, allowed - 1)
    holder = CreateWorkload(0.0, project, _HOLDER, f"{_HOLDER}:1", allowed, cities)
    told = (holder, *waiting, gives_back)
    return with_steps(replace(scenario, operations=()), told, ())
