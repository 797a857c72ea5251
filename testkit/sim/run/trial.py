"""One run of a scenario with its result, and exhaustive crash tests of a small scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from testkit.sim.run.world import Outcome, WorldBroken, run_scenario
from testkit.sim.scenario.faults import CrashAtCommit
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    DeleteWorkload,
    ScaleWorkload,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout, hosts_of

_NUMBERED = re.compile(r"I\d+\b")


@dataclass(frozen=True, slots=True)
class Failure:
    """A scenario that violates a rule. ``invariant`` is its number, or the class name of an error
    without one."""

    scenario: Scenario
    invariant: str
    message: str
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a search over thousands of seeds keeps of a run. The trace can be recreated from the
    seed."""

    seed: int
    faults: tuple[str, ...]  # by name
    commits: int = 0
    virtual_s: float = 0.0
    sometimes: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None


Trial = Outcome | Failure
Try = Callable[[Scenario], Trial]


def run_trial(scenario: Scenario, run: Callable[[Scenario], Outcome] = run_scenario) -> Trial:
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


_LAYOUTS = (
    WorldLayout("one", ("alpha",), ("dfw",)),
    WorldLayout("split", ("alpha",), ("dfw",)),
)


def small_scenario(layout: WorldLayout) -> Scenario:
    """Return the whole life cycle: deploy, change the image, scale, delete."""
    return Scenario(
        seed=1,
        layout=layout,
        operations=(
            CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
            ChangeImage(6.0, "alpha", "web", "web:2"),
            ScaleWorkload(12.0, "alpha", "web", 1),
            DeleteWorkload(18.0, "alpha", "web"),
        ),
        faults=(),
        chaos_s=24.0,
    )


def small_scenarios() -> list[Scenario]:
    return [small_scenario(layout) for layout in _LAYOUTS]


def crash_points() -> Iterator[Scenario]:
    """For each layout, host and commit, yield a crash right before it is durable and right
    after."""
    for scenario in small_scenarios():
        commits = run_scenario(scenario).commits
        for host in hosts_of(scenario.layout):
            for number in range(1, _last_commit(scenario, host, commits) + 1):
                for durable in (False, True):
                    yield _with_crash(scenario, host, number, durable=durable)


def _with_crash(scenario: Scenario, host: str, number: int, *, durable: bool) -> Scenario:
    return replace(scenario, faults=(CrashAtCommit(0.0, host, number, durable),))


def _last_commit(scenario: Scenario, host: str, commits: int) -> int:
    """Count the commits of the host, by searching for the last at which it crashes."""
    low, high = 0, commits
    if len(hosts_of(scenario.layout)) == 1:
        return commits
    while low < high:
        middle = (low + high + 1) // 2
        if run_scenario(_with_crash(scenario, host, middle, durable=True)).crashes:
            low = middle
        else:
            high = middle - 1
    return low
