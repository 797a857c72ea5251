"""I19: a cell process that restarts while the center is down continues with its stored state."""

from __future__ import annotations

import pytest

from datum_compute.api.kinds import INSTANCE
from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import ChangeImage, CreateWorkload, DeleteObject, Operation
from testkit.sim.scenario.scenario import Scenario, WorldLayout

PLAIN = WorldLayout("split", ("alpha",), ("dfw",))
JOINED = WorldLayout("split", ("alpha",), ("dfw",), joined=True)
OURS = CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",))
AWAY_S, BACK_S = 10.0, 110.0
AWAY = f.StopHost(AWAY_S, BACK_S - AWAY_S, "centre")


def run_world(layout: WorldLayout, *operations: Operation, restart_s: float) -> Outcome:
    restarted = f.StopHost(restart_s, 1.0, "cell-dfw")
    return run_scenario(Scenario(1, layout, (OURS, *operations), (AWAY, restarted), BACK_S + 20.0))


def ready_alone(outcome: Outcome, after_s: float) -> set[str]:
    """Return the ordinals that the cell reported as ready while the center was down."""
    found = set()
    for line in outcome.trace:
        at_s, plane, _, resource, *rest = (*line.split(), "", "", "")
        is_instance = plane == "cell/dfw" and resource == INSTANCE.resource
        if is_instance and after_s < float(at_s) < BACK_S and " Ready=True" in line:
            found.add(rest[0].rstrip(":").rpartition("-")[2])
    return found


@pytest.mark.parametrize("layout", [PLAIN, JOINED], ids=["plain", "joined"])
def test_deleted_instances_are_recreated_while_the_center_is_down(layout: WorldLayout) -> None:
    """Regression: the quota of the slot could not be read, so the slot stayed empty until the
    center was back."""
    deleted = [DeleteObject(20.0 + n, "cell/dfw", INSTANCE.resource, n) for n in (0, 1)]
    outcome = run_world(layout, *deleted, restart_s=12.0)
    assert ready_alone(outcome, 20.0) == {"0", "1"}


def test_a_rollout_that_reached_the_cell_continues_without_the_center() -> None:
    outcome = run_world(JOINED, ChangeImage(9.7, "alpha", "web", "web:2"), restart_s=10.1)
    assert "0" in ready_alone(outcome, 11.0)
