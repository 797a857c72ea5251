"""Cells that leave, join again and replace each other: one world for each case."""

from __future__ import annotations

from random import Random

import pytest

from datum_compute.api.kinds import DEPLOYMENT
from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.feature_templates import CELL_TEMPLATES
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import (
    CreateWorkload,
    DeleteObject,
    DeleteWorkload,
    LeaveCell,
    MoveCity,
    Operation,
    SecondCell,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout

JOINED = WorldLayout("split", ("alpha",), ("dfw",), joined=True, spares=("dfw-2",))
OURS = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))


def run_world(operation: Operation, *faults: f.Fault) -> Outcome:
    """Run the operation and the faults. The settled workload runs only on the cell that serves its
    city."""
    chaos_s = max(s.at_s + getattr(s, "for_s", 0.0) for s in (operation, *faults)) + 15.0
    return run_scenario(Scenario(1, JOINED, (OURS, operation), faults, chaos_s))


def test_a_spare_replaces_a_cell_that_leaves_and_no_claim_remains() -> None:
    """Regression: claims that the cell had not released were kept forever, and its last status made
    the workload Available before the spare had started its machine."""
    outcome = run_world(LeaveCell(5.0, "dfw", "dfw-2", 1.0))
    assert any("cell/dfw-2" in line and "Ready=True" in line for line in outcome.trace)


def test_nothing_runs_twice_when_the_first_of_two_cells_of_a_city_leaves() -> None:
    """Regression: the second cell started the machine before the first had removed its own."""
    outcome = run_world(SecondCell(5.0, "dfw-2", 3.0, stays=True))
    assert any("cell/dfw-2" in line and "Ready=True" in line for line in outcome.trace)


@pytest.mark.parametrize("kept", [False, True], ids=["wiped", "kept"])
def test_an_unreachable_cell_leaves_by_force_and_joins_again(kept: bool) -> None:
    silence = f.IsolateHost(3.0, 60.0, "cell-dfw")
    run_world(LeaveCell(40.0, "dfw", "dfw", 1.0, forced=True, kept=kept), silence)


def test_a_city_may_move_back_while_its_first_cell_is_unreachable() -> None:
    run_world(MoveCity(5.0, "dfw-2", 20.0), f.IsolateHost(4.0, 50.0, "cell-dfw"))


def test_some_worlds_have_joined_cells_and_no_permanent_faults() -> None:
    calm, seeds = scenario_of(7), range(9)
    for world in [story(Random(seed), calm) for story in CELL_TEMPLATES for seed in seeds]:
        assert world.layout.joined
        assert all(getattr(fault, "for_s", 0.0) != f.FOR_EVER for fault in world.faults)
    assert 1 <= sum(scenario_of(seed).layout.joined for seed in range(1, 200)) < 40


def test_deleting_with_cascade_orphan_leaves_nothing() -> None:
    layout = WorldLayout("split", ("alpha",), ("dfw",))
    operations = (
        OURS,
        DeleteObject(4.0, "hub", DEPLOYMENT.resource, 0, orphan=True),
        DeleteWorkload(9.0, "alpha", "web", orphan=True),
        CreateWorkload(9.2, "alpha", "web", "web:2", 1, ("DFW",)),
        DeleteObject(14.0, "cell/dfw", DEPLOYMENT.resource, 0, orphan=True),
    )
    run_scenario(Scenario(1, layout, operations, (), 30.0))
