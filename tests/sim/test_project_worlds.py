"""Projects that are created, lose access and are deleted during faults: one world for each case."""

from __future__ import annotations

import pytest

from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    CreateProject,
    CreateWorkload,
    Decide,
    DeleteProject,
    DeployIn,
    GateCompute,
    Operation,
    RenewAccess,
    RequestAccess,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout

SPLIT = WorldLayout("split", ("alpha",), ("dfw",))
MANAGED = WorldLayout("managers", ("alpha",), ("dfw",))
OURS = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))
BEGUN = (
    CreateProject(0.1, "gamma"),
    RequestAccess(0.5, "gamma"),
    DeployIn(1.0, "gamma", "api", 1, ("DFW",)),
)


def run_world(layout: WorldLayout, operations: tuple[Operation, ...], *faults: f.Fault) -> Outcome:
    chaos_s = max(s.at_s + getattr(s, "for_s", 0.0) for s in (*operations, *faults)) + 15.0
    return run_scenario(Scenario(1, layout, (OURS, *operations), faults, chaos_s))


def test_a_project_is_deleted_while_a_cell_is_down_and_leaves_nothing() -> None:
    """Regression: the deletion waited forever for a claim that only the cell could release."""
    away = f.StopHost(6.0, 100.0, "cell-dfw")
    outcome = run_world(SPLIT, (*BEGUN, DeleteProject(9.0, "gamma")), away)
    (gone,) = [line for line in outcome.trace if "project gamma is gone" in line]
    assert float(gone.split()[0]) < 106.0


@pytest.mark.parametrize("layout", [SPLIT, MANAGED])
def test_access_is_granted_and_revoked_in_every_layout(layout: WorldLayout) -> None:
    operations = (
        *BEGUN,
        GateCompute(4.0, "gamma", True),
        Decide(5.0, "gamma", "Denied"),
        Decide(8.0, "gamma", "Approved"),
        DeployIn(9.0, "gamma", "api", 1, ("DFW",)),
        RenewAccess(12.0, "gamma"),
        Decide(14.0, "gamma", "Approved"),
        DeployIn(15.0, "gamma", "db", 1, ("DFW",)),
    )
    outcome = run_world(layout, operations)
    pictured = " ".join(outcome.final)
    assert "project/gamma workloads.compute.datumapis.com default/db" in pictured
    assert "project/gamma workloads.compute.datumapis.com default/api" in pictured
    assert "project/alpha workloads.compute.datumapis.com default/web" in pictured


def test_a_revocation_continues_after_a_crash() -> None:
    crash = f.StopHost(5.05, 3.0, "centre")
    outcome = run_world(SPLIT, (*BEGUN, Decide(5.0, "gamma", "Suspended")), crash)
    (workload,) = [
        line for line in outcome.final if "gamma workloads.compute.datumapis.com" in line
    ]
    assert "Available=False/ProjectSuspended" in workload


def test_an_approval_of_a_terminating_request_is_recorded_as_without_effect() -> None:
    """It depends on faults whether an approval reaches the request before it is gone (I21)."""
    removed, approved = Decide(5.0, "gamma", "Removed"), Decide(5.45, "gamma", "Approved")
    outcome = run_world(SPLIT, (*BEGUN, removed, approved))
    assert outcome.effects == (
        ("gamma", "deploy api", True),
        ("gamma", "Removed", True),
        ("gamma", "Approved", False),
    )
