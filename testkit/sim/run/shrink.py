"""Shrink a failing scenario: few faults and operations, no shuffling, a small world, short times.

- The result breaks the same invariant. Candidates with another failure are rejected.
- Every candidate is a normal scenario, so one command replays the result.
- The number of runs is bounded. The result is the smallest scenario found so far.

Order: faults (ddmin), operations (ddmin), faults again, then the schedule: in order if it still
fails, else shuffled for as short as possible. Then simpler worlds and values. To add a
simplification, add a function to ``_SIMPLER`` that yields candidates, the smallest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from testkit.sim.loop import NEVER, Span
from testkit.sim.run.trial import Failure, Try, run_trial
from testkit.sim.scenario.scenario import Scenario

T = TypeVar("T")

RUNS_MAX = 150
_CALM_S = 30.0  # after the calm begins; the schedule may still matter then
_SPAN_LEAST_S = 0.1


@dataclass(frozen=True, slots=True)
class ShrunkFailure:
    failure: Failure
    runs: int


def shrink(
    failure: Failure,
    *,
    runs_max: int = RUNS_MAX,
    trial: Try = run_trial,
    keep_shuffled: bool = False,
) -> ShrunkFailure:
    """Shrink a failing scenario. With ``keep_shuffled`` the schedule is not simplified, for callers
    that vary the schedule of the result."""
    search = _Search(failure, runs_max, trial)
    search.leave_out_parts("faults")
    search.leave_out_parts("operations")
    search.leave_out_parts("faults")
    if not keep_shuffled:
        search.shuffle_less()
    while search.simplify_once():
        pass
    return ShrunkFailure(search.failure, search.runs)


class _Search:
    """The smallest failure so far, and the number of runs."""

    def __init__(self, failure: Failure, runs_max: int, trial: Try) -> None:
        self.failure = failure
        self.runs = 0
        self._runs_max = runs_max
        self._trial = trial
        self._tried: dict[Scenario, None] = {}

    def accepts(self, candidate: Scenario) -> bool:
        """Return True if the candidate fails in the same way, and keep it as the smallest."""
        if candidate in self._tried or candidate == self.failure.scenario:
            return False
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        self._tried[candidate] = None
        found = self._trial(candidate)
        if not isinstance(found, Failure) or found.invariant != self.failure.invariant:
            return False
        self.failure = found
        return True

    def leave_out_parts(self, part: str) -> None:
        """Leave out smaller and smaller parts while the scenario still fails (ddmin)."""
        present: Sequence[Any] = getattr(self.failure.scenario, part)
        size = len(present)
        while size >= 1:
            smaller = False
            for kept in _left_out(present, size):
                changed: Any = {part: kept}
                if self.accepts(replace(self.failure.scenario, **changed)):
                    present, smaller = kept, True
                    break
            size = min(size, len(present)) if smaller else size // 2

    def shuffle_less(self) -> None:
        """Stop shuffling, or halve the span from its end or its beginning, while the scenario
        fails."""
        if self.failure.scenario.shuffled_s == NEVER or self._shuffles_only(NEVER):
            return
        begins_s, ends_s = 0.0, self.failure.scenario.chaos_s + _CALM_S
        if not self._shuffles_only((begins_s, ends_s)):
            return
        while ends_s - begins_s > _SPAN_LEAST_S:
            middle_s = round((begins_s + ends_s) / 2, 2)
            if self._shuffles_only((begins_s, middle_s)):
                ends_s = middle_s
            elif self._shuffles_only((middle_s, ends_s)):
                begins_s = middle_s
            else:
                return

    def _shuffles_only(self, span: Span) -> bool:
        return self.accepts(replace(self.failure.scenario, shuffled_s=span))

    def simplify_once(self) -> bool:
        scenario = self.failure.scenario
        return any(self.accepts(c) for simpler in _SIMPLER for c in simpler(scenario))


def _left_out(present: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(present), size):
        yield (*present[:start], *present[start + size :])


# --- simpler worlds and values


def _fewer_cells(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without its last cell, if no step names that cell."""
    *cells, last = scenario.layout.cells
    if cells and not _is_named(scenario, last):
        yield replace(scenario, layout=replace(scenario.layout, cells=tuple(cells)))


def _fewer_projects(scenario: Scenario) -> Iterator[Scenario]:
    *projects, last = scenario.layout.projects
    if projects and not _is_named(scenario, last):
        yield replace(scenario, layout=replace(scenario.layout, projects=tuple(projects)))


def _one_process(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario in one process, if no fault names a host."""
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
