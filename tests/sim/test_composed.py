"""Faults that need each other, revoked planes, paused leaders: one world for each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORK
from testkit.sim.loop import stream
from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as c
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.fault_templates import FAULT_TEMPLATES
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    DeleteAll,
    DeleteObject,
    DeleteWorkload,
    DropField,
    Operation,
    RevokeProject,
    ScaleWorkload,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout

ONE = WorldLayout("one", ("alpha",), ("dfw",))
SPLIT = replace(ONE, processes="split")
CANDIDATES = replace(ONE, processes="managers", managers=2)
REVOCABLE = replace(ONE, projects=("alpha", "beta"), revocable=("beta",))

CREATE = CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",))
ROLL = ChangeImage(6.0, "alpha", "web", "web:2")
SHRINK = ScaleWorkload(6.5, "alpha", "web", 1)


def run_world(layout: WorldLayout, operations: tuple[Operation, ...], *faults: f.Fault) -> Outcome:
    chaos_s = max([0.0, *(s.at_s + getattr(s, "for_s", 0.0) for s in faults)]) + 15.0
    return run_scenario(Scenario(1, layout, (CREATE, *operations), faults, chaos_s))


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        (SPLIT, c.LoseHistory(5.5, 6.0, "centre", "cell-dfw")),
        (ONE, c.LoseHistory(5.5, 6.0, "all", "all")),
        (SPLIT, c.AnswerFromCache(6.2, 6.0, "centre", "cell-dfw", 10.0)),
        (SPLIT, c.ExpireToken(5.5, 8.0, "cell-dfw", "centre")),
        (SPLIT, c.RestorePlane(5.5, 4.0, "cell/dfw")),
        (ONE, c.RestorePlane(5.5, 4.0, "hub")),
        (SPLIT, c.TouchEverything(6.1, "hub")),
        (ONE, c.SlowDisk(5.5, 4.0, "all", 30.0)),
        (ONE, c.DeleteNewNamespace(0.0, "all")),
        (ONE, c.BurnMachines(5.5, 60.0, "dfw")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, c.ComposedFault) else "",
)
def test_the_world_converges_after(layout: WorldLayout, fault: f.Fault) -> None:
    outcome = run_world(layout, (ROLL, SHRINK), fault)
    assert outcome.sometimes[f"fault {type(fault).__name__}"] == 1


@pytest.mark.parametrize("resource", [DEPLOYMENT.resource, WORK.resource, INSTANCE.resource])
def test_objects_are_recreated_after_all_of_a_kind_were_deleted(resource: str) -> None:
    everything = DeleteAll(6.0, "hub", resource, "")
    dropped = tuple(DropField(8.0 + n, "hub", resource, n) for n in range(3))
    assert "web" in " ".join(run_world(SPLIT, (everything, *dropped)).final)


def test_an_object_recreated_during_a_watch_gap_is_not_mistaken_for_the_old_one() -> None:
    """F5: the object is deleted and recreated while the cell cannot watch the hub."""
    replaced = DeleteObject(6.0, "hub", DEPLOYMENT.resource, 0)
    run_world(SPLIT, (replaced,), c.LoseHistory(5.5, 6.0, "cell-dfw", "centre"))


def test_instances_of_a_wiped_cell_are_removed_from_the_hub() -> None:
    """The cell loses three instances, and one is desired: the hub shows one."""
    more, fewer = ScaleWorkload(3.0, "alpha", "web", 3), ScaleWorkload(7.0, "alpha", "web", 1)
    outcome = run_world(SPLIT, (more, fewer), f.EmptyHost(6.0, "cell-dfw"))
    assert sum("hub instances" in line for line in outcome.final) == 1


def test_a_deleted_workload_is_not_recreated_by_a_restored_hub() -> None:
    """F23: the workload is deleted after the backup was made."""
    gone = DeleteWorkload(6.0, "alpha", "web")
    assert run_world(SPLIT, (gone,), c.RestorePlane(5.5, 3.0, "hub")).final == ()


def test_the_status_of_a_cell_lost_with_a_new_copy_is_not_trusted() -> None:
    faults = (f.EmptyHost(5.5, "cell-dfw"), c.DieWithCopy(5.5, "cell-dfw"))
    outcome = run_scenario(Scenario(1, SPLIT, (CREATE,), faults, 45.0))
    assert outcome.sometimes["host lost"] == 1


def test_a_cell_replaces_lost_machines_while_the_center_is_down() -> None:
    """I19: a cell starts machines without the center."""
    away = f.StopHost(3.0, 90.0, "centre")
    run_world(SPLIT, (), away, f.LoseMachine(8.0, "dfw", 0), f.LoseMachine(9.0, "dfw", 1))


def test_another_manager_takes_over_from_a_paused_leader() -> None:
    """F16: each of the two managers is paused in turn; one of them is the leader."""
    outcomes = [
        run_world(CANDIDATES, (ROLL, SHRINK), f.PauseHost(5.8, 25.0, host))
        for host in ("manager", "manager-2")
    ]
    assert sum(outcome.sometimes.get("leadership lost", 0) for outcome in outcomes) == 1


@pytest.mark.parametrize("processes", ["one", "split", "managers"])
def test_a_revoked_project_leaves_nothing(processes: str) -> None:
    layout = WorldLayout(processes, ("alpha", "beta"), ("dfw",), revocable=("beta",))  # type: ignore[arg-type]
    host = "all" if processes == "one" else "centre"
    outcome = run_world(
        layout,
        (
            CreateWorkload(0.0, "beta", "db", "db:1", 2, ("DFW",)),
            RevokeProject(5.0, "beta"),
            CreateWorkload(5.2, "beta", "api", "api:1", 1, ("DFW",)),
        ),
        f.CrashAtCommit(5.0, host, 7, durable=True),
    )
    assert outcome.crashes >= 1
    assert any("project/beta is removed" in line for line in outcome.trace)
    assert not any("beta" in line for line in outcome.final)


def test_processes_that_restart_in_a_settled_world_write_nothing() -> None:
    """I24: restarts cause no writes."""
    outcome = run_scenario(Scenario(5, SPLIT, (CREATE,), (), 3.0))
    assert any("all processes restart" in line for line in outcome.trace)


def test_workloads_with_a_common_name_prefix_do_not_affect_each_other() -> None:
    other = CreateWorkload(0.0, "alpha", "web-0", "web:2", 1, ("DFW",))
    outcome = run_world(ONE, (other, DeleteWorkload(5.0, "alpha", "web")))
    assert [line.split()[2] for line in outcome.final if " workloads" in line] == ["default/web-0"]


def test_every_fault_template_applies_to_every_scenario() -> None:
    for seed in range(1, 60):
        for number, story in enumerate(FAULT_TEMPLATES):
            scenario = story(stream(seed, "workload", str(number)), scenario_of(seed))
            steps = (*scenario.operations, *scenario.faults)
            assert all(step.at_s <= scenario.chaos_s for step in steps)
            assert list(scenario.lines())
