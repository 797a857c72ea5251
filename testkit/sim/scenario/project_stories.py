"""Draws what happens to projects while the world runs: one more of them, its access, its end.

Told on top of whatever else a world has drawn, from a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Literal

from testkit.sim.scenario.composed_faults import RestorePlane
from testkit.sim.scenario.faults import EmptyHost
from testkit.sim.scenario.operations import Operation
from testkit.sim.scenario.project_operations import (
    CreateProject,
    Decide,
    DeleteProject,
    DeployIn,
    GateCompute,
    RenewAccess,
    RequestAccess,
)

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

NEWCOMER = "gamma"
_PROJECT_TAIL_S = 15.0
_Against = Literal["Denied", "Suspended", "Removed"]
_AGAINST: tuple[_Against, ...] = ("Denied", "Suspended", "Removed")


def with_newcomer(random: Random, scenario: Scenario) -> Scenario:
    """Not where a plane goes back to a backup: nobody can tell there what was let go since. Nor
    where a cell comes back empty: with what newcomers write its versions are soon as high as those
    that readers remember, and nobody can tell that it is another one."""
    if any(isinstance(fault, RestorePlane | EmptyHost) for fault in scenario.faults):
        return scenario
    told = _life(random, scenario)
    return replace(
        scenario,
        operations=tuple(sorted((*scenario.operations, *told), key=lambda step: step.at_s)),
        chaos_s=round(max(scenario.chaos_s, told[-1].at_s + _PROJECT_TAIL_S), 2),
    )


def _turn(
    random: Random, later: Callable[[], float], deployed: Callable[[], DeployIn]
) -> list[Operation]:
    """Access is taken away and perhaps given back, or asked for anew."""
    turn = random.random()
    if turn < 0.25:
        return []
    if turn < 0.5:
        return [RenewAccess(later(), NEWCOMER), deployed()]
    against = random.choice(_AGAINST)
    told: list[Operation] = [Decide(later(), NEWCOMER, against)]
    if turn < 0.85:
        told.append(Decide(later(), NEWCOMER, "Resumed" if against == "Suspended" else "Approved"))
        told.append(deployed())
    return told


def _life(random: Random, scenario: Scenario) -> list[Operation]:
    at_s, gated = round(random.uniform(0, 3), 2), random.random() < 0.5

    def later() -> float:
        nonlocal at_s
        at_s = round(at_s + random.uniform(0.2, 4), 2)
        return at_s

    def deployed() -> DeployIn:
        city = random.choice(scenario.layout.cells).upper()
        return DeployIn(later(), NEWCOMER, random.choice(("db", "api")), 1, (city,))

    told: list[Operation] = [CreateProject(at_s, NEWCOMER)]
    if gated:
        told.append(GateCompute(later(), NEWCOMER, True))
    told.append(RequestAccess(later(), NEWCOMER))
    if gated:
        told.append(Decide(later(), NEWCOMER, random.choice(("Approved", "Approved", "Denied"))))
    told.append(deployed())
    told += _turn(random, later, deployed)
    if random.random() < 0.5:
        told.append(DeleteProject(later(), NEWCOMER))
        if random.random() < 0.5:
            told += [CreateProject(later(), NEWCOMER), RequestAccess(later(), NEWCOMER), deployed()]
    return told
