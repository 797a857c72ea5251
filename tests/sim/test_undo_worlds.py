"""Worlds in which users restart a workload and undo changes."""

from __future__ import annotations

import pytest

from testkit.sim.run.world import run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    Operation,
    RestartCity,
    RestartWorkload,
    UndoRollout,
)
from testkit.sim.scenario.scenario import CENTER, Scenario, WorldLayout

OURS = ("alpha", "web")
RESTARTED: tuple[Operation, ...] = (
    ChangeImage(5.0, *OURS, "web:2"),
    RestartWorkload(10.0, *OURS),
    UndoRollout(15.0, *OURS),
)


def a_world(operations: tuple[Operation, ...], *faults: f.Fault) -> Scenario:
    layout = WorldLayout("split", ("alpha",), ("dfw",))
    create = CreateWorkload(0.0, *OURS, "web:1", 2, ("DFW",))
    return Scenario(1, layout, (create, *operations), faults, 60.0)


@pytest.mark.parametrize(
    ("operations", "faults"),
    [
        (RESTARTED, ()),
        ((RestartCity(4.0, *OURS, "DFW"), *RESTARTED, RestartWorkload(20.0, *OURS)), ()),
        (RESTARTED, (f.StopHost(9.0, 8.0, CENTER),)),
        (RESTARTED, (f.StopHost(14.0, 12.0, "cell-dfw"),)),
        ((*RESTARTED, UndoRollout(15.1, *OURS), UndoRollout(22.0, *OURS)), ()),
    ],
    ids=["undo", "restarts of a city", "center stops", "cell stops", "undo again"],
)
def test_a_world_with_restarts_and_undo_converges(
    operations: tuple[Operation, ...], faults: tuple[f.Fault, ...]
) -> None:
    outcome = run_scenario(a_world(operations, *faults))
    assert "default/web" in " ".join(outcome.final)
