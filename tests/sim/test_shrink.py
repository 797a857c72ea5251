"""The shrinker returns small scenarios that fail in the same way, after bounded runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from testkit.sim.loop import ALWAYS, NEVER
from testkit.sim.run.shrink import shrink
from testkit.sim.run.trial import Failure, Trial
from testkit.sim.run.world import Outcome
from testkit.sim.scenario.faults import CloseWatches, CrashAtCommit, ForgetHistory
from testkit.sim.scenario.operations import CreateWorkload, DeleteWorkload, ScaleWorkload
from testkit.sim.scenario.scenario import Scenario, WorldLayout

CREATE = CreateWorkload(0.0, "alpha", "web", "web:1", 3, ("DFW", "IAD"))
SCALE = ScaleWorkload(2.0, "alpha", "web", 4)
DELETE = DeleteWorkload(5.0, "alpha", "web")
CRASH = CrashAtCommit(1.0, "all", 3, durable=True)
FORGET = ForgetHistory(3.0, "all")
LARGE = Scenario(
    seed=1,
    layout=WorldLayout("one", ("alpha", "beta"), ("dfw", "iad", "ams")),
    operations=(CREATE, SCALE, DELETE),
    faults=(*(CloseWatches(float(n), "all", "all") for n in range(6)), CRASH, FORGET),
    chaos_s=40.0,
)
PASSED = Outcome(0, 0, 0.0, (), {}, ())


def failing_if(
    breaks: Callable[[Scenario], str], tries: list[Scenario]
) -> Callable[[Scenario], Trial]:
    """Return a trial in which a scenario fails with the invariant that ``breaks`` returns for
    it."""

    def trial(scenario: Scenario) -> Trial:
        tries.append(scenario)
        invariant = breaks(scenario)
        return Failure(scenario, invariant, "broken") if invariant else PASSED

    return trial


def test_the_result_contains_only_what_the_failure_requires() -> None:
    def breaks(scenario: Scenario) -> str:
        needed = CRASH in scenario.faults and FORGET in scenario.faults
        deletes = any(isinstance(o, DeleteWorkload) for o in scenario.operations)
        return "I6" if needed and deletes else ""

    found = shrink(Failure(LARGE, "I6", "broken"), trial=failing_if(breaks, []))
    small = found.failure.scenario
    assert small.faults == (CRASH, FORGET)
    assert small.operations == (DELETE,)
    assert small.layout == WorldLayout("one", ("alpha",), ("dfw",))
    assert small.chaos_s == 6.0
    assert small.shuffled_s == NEVER


def test_values_are_simplified_while_the_scenario_fails() -> None:
    def breaks(scenario: Scenario) -> str:
        creates = [o for o in scenario.operations if isinstance(o, CreateWorkload)]
        return "I1" if any(o.replicas >= 2 for o in creates) else ""

    found = shrink(Failure(LARGE, "I1", "broken"), trial=failing_if(breaks, []))
    (create,) = found.failure.scenario.operations
    assert isinstance(create, CreateWorkload)
    assert (create.replicas, len(create.cities)) == (2, 1)
    assert found.failure.scenario.faults == ()


def test_the_span_of_shuffling_is_shortened_to_what_the_failure_requires() -> None:
    def breaks(scenario: Scenario) -> str:
        begins_s, ends_s = scenario.shuffled_s
        return "I6" if FORGET in scenario.faults and begins_s <= 3.1 < ends_s else ""

    found = shrink(Failure(LARGE, "I6", "broken"), trial=failing_if(breaks, []))
    begins_s, ends_s = found.failure.scenario.shuffled_s
    assert begins_s <= 3.1 < ends_s
    assert ends_s - begins_s < 0.2


def test_the_schedule_is_kept_on_request() -> None:
    trial = failing_if(lambda scenario: "I6" if FORGET in scenario.faults else "", [])
    found = shrink(Failure(LARGE, "I6", ""), trial=trial, keep_shuffled=True)
    assert found.failure.scenario.shuffled_s == ALWAYS


def test_a_candidate_with_another_failure_is_ignored() -> None:
    def breaks(scenario: Scenario) -> str:
        return "I6" if CRASH in scenario.faults else "I9"

    found = shrink(Failure(LARGE, "I6", "broken"), trial=failing_if(breaks, []))
    assert found.failure.invariant == "I6"
    assert found.failure.scenario.faults == (CRASH,)


@pytest.mark.parametrize("runs_max", [0, 1, 7, 1000])
def test_the_search_is_bounded_and_returns_the_smallest_scenario_so_far(runs_max: int) -> None:
    tries: list[Scenario] = []
    trial = failing_if(lambda scenario: "I6" if FORGET in scenario.faults else "", tries)
    found = shrink(Failure(LARGE, "I6", "broken"), runs_max=runs_max, trial=trial)
    assert len(set(tries)) == len(tries) == found.runs <= runs_max
    assert FORGET in found.failure.scenario.faults


def test_a_minimal_scenario_is_unchanged() -> None:
    small = replace(LARGE, operations=(), faults=(FORGET,), chaos_s=4.0, shuffled_s=NEVER)
    small = replace(small, layout=WorldLayout("one", ("alpha",), ("dfw",)))
    trial = failing_if(lambda scenario: "I6" if FORGET in scenario.faults else "", [])
    assert shrink(Failure(small, "I6", "broken"), trial=trial).failure.scenario == small
