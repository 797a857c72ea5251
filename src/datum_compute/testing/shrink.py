"""Makes a failing scenario small: few faults, few operations, a small world, short times.

Rules it keeps:
- What is left breaks the same invariant; another failure on the way is not followed.
- Every candidate is a scenario like any other, so the result replays with one command.
- It runs a bounded number of scenarios, and gives the smallest found so far when those are used up.

Order: faults (ddmin), operations (ddmin), faults again, then simpler worlds and values. To add a
way to simplify: a function in ``_SIMPLER`` that gives candidates, the boldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from datum_compute.testing.scenario import Scenario
from datum_compute.testing.trial import Failure, Try, tried

T = TypeVar("T")

RUNS_MAX = 150


@dataclass(frozen=True, slots=True)
class Shrunken:
    failure: Failure
    runs: int


def shrunken(failure: Failure, *, runs_max: int = RUNS_MAX, trial: Try = tried) -> Shrunken:
    search = _Search(failure, runs_max, trial)
    search.without_some("faults")
    search.without_some("operations")
    search.without_some("faults")
    while search.took_one_simpler():
        pass
    return Shrunken(search.failure, search.runs)


class _Search:
    """The smallest failure so far, and how many runs it took."""

    def __init__(self, failure: Failure, runs_max: int, trial: Try) -> None:
        self.failure = failure
        self.runs = 0
        self._runs_max = runs_max
        self._trial = trial

    def takes(self, candidate: Scenario) -> bool:
        """Whether the candidate still fails in the same way; then it is the new smallest."""
        if self.runs >= self._runs_max or candidate == self.failure.scenario:
            return False
        self.runs += 1
        found = self._trial(candidate)
        if not isinstance(found, Failure) or found.invariant != self.failure.invariant:
            return False
        self.failure = found
        return True

    def without_some(self, part: str) -> None:
        """ddmin: ever smaller pieces are left out, as long as it still fails."""
        present: Sequence[Any] = getattr(self.failure.scenario, part)
        size = len(present)
        while size >= 1:
            smaller = False
            for kept in _left_out(present, size):
                changed: Any = {part: kept}
                if self.takes(replace(self.failure.scenario, **changed)):
                    present, smaller = kept, True
                    break
            size = min(size, len(present)) if smaller else size // 2

    def took_one_simpler(self) -> bool:
        scenario = self.failure.scenario
        return any(self.takes(c) for simpler in _SIMPLER for c in simpler(scenario))


def _left_out(present: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(present), size):
        yield (*present[:start], *present[start + size :])


# --- simpler worlds and values


def _fewer_cells(scenario: Scenario) -> Iterator[Scenario]:
    """Without the last cell, if nobody names it."""
    *cells, last = scenario.layout.cells
    if cells and not _is_named(scenario, last):
        yield replace(scenario, layout=replace(scenario.layout, cells=tuple(cells)))


def _fewer_projects(scenario: Scenario) -> Iterator[Scenario]:
    *projects, last = scenario.layout.projects
    if projects and not _is_named(scenario, last):
        yield replace(scenario, layout=replace(scenario.layout, projects=tuple(projects)))


def _one_process(scenario: Scenario) -> Iterator[Scenario]:
    """Only where no fault names a host of its own."""
    if scenario.layout.processes != "one" and not scenario.faults:
        yield replace(scenario, layout=replace(scenario.layout, processes="one"))


def _fewer_replicas(scenario: Scenario) -> Iterator[Scenario]:
    for index, operation in enumerate(scenario.operations):
        for replicas in range(1, getattr(operation, "replicas", 1)):
            changed = _changed(operation, replicas=replicas)
            yield replace(scenario, operations=_with(scenario.operations, index, changed))


def _fewer_cities(scenario: Scenario) -> Iterator[Scenario]:
    for index, operation in enumerate(scenario.operations):
        cities = getattr(operation, "cities", ())
        for city in cities if len(cities) > 1 else ():
            changed = _changed(operation, cities=(city,))
            yield replace(scenario, operations=_with(scenario.operations, index, changed))


def _less_chaos(scenario: Scenario) -> Iterator[Scenario]:
    begins_s = max((s.at_s for s in (*scenario.operations, *scenario.faults)), default=0.0)
    for chaos_s in (begins_s + 1.0, begins_s + 10.0):
        if chaos_s < scenario.chaos_s:
            yield replace(scenario, chaos_s=round(chaos_s, 2))


def _brought_up_before(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.fresh:
        yield replace(scenario, fresh=False)


_SIMPLER: tuple[Callable[[Scenario], Iterator[Scenario]], ...] = (
    _less_chaos,
    _brought_up_before,
    _fewer_projects,
    _one_process,
    _fewer_cities,
    _fewer_cells,
    _fewer_replicas,
)


def _is_named(scenario: Scenario, name: str) -> bool:
    steps = (*scenario.operations, *scenario.faults)
    return any(name.lower() in repr(step).lower() for step in steps)


def _changed(operation: Any, **values: Any) -> Any:
    return replace(operation, **values)


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
