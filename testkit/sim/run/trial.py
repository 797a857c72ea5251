"""One scenario tried: what it showed, or which rule it broke."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from testkit.sim.run.world import Outcome, WorldBroken, run_scenario
from testkit.sim.scenario.scenario import Scenario

_NUMBERED = re.compile(r"I\d+\b")


@dataclass(frozen=True, slots=True)
class Failure:
    """``invariant`` is its number, or the name of the error for what has none."""

    scenario: Scenario
    invariant: str
    message: str
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What is kept of a run among thousands: no trace, which can be had again from the seed."""

    seed: int
    faults: tuple[str, ...]  # by name
    commits: int = 0
    virtual_s: float = 0.0
    sometimes: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None


Trial = Outcome | Failure
Try = Callable[[Scenario], Trial]


def tried(scenario: Scenario, run: Callable[[Scenario], Outcome] = run_scenario) -> Trial:
    try:
        return run(scenario)
    except WorldBroken as broken:
        return Failure(scenario, _invariant_of(broken.cause), str(broken), broken.trace)


def summary_of(scenario: Scenario, trial: Trial) -> Summary:
    faults = tuple(type(fault).__name__ for fault in scenario.faults)
    if isinstance(trial, Failure):
        return Summary(scenario.seed, faults, failure=replace(trial, trace=()))
    return Summary(scenario.seed, faults, trial.commits, trial.virtual_s, trial.sometimes)


def _invariant_of(cause: BaseException) -> str:
    numbered = _NUMBERED.match(str(cause))
    return numbered.group() if numbered else type(cause).__name__
