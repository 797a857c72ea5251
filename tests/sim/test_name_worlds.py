"""Workloads that want the same names, one world for each case."""

from __future__ import annotations

import pytest

from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    DeleteWorkload,
    Operation,
    ScaleWorkload,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout

ONE = WorldLayout("one", ("alpha",), ("dfw",))
SPLIT = WorldLayout("split", ("alpha",), ("dfw", "iad"))
DFW = ("DFW",)
LONG = ("web-" + "x" * 50, "p" * 40)


def create(at_s: float, named: tuple[str, str], cities: tuple[str, ...] = DFW) -> CreateWorkload:
    name, placement = named
    return CreateWorkload(at_s, "alpha", name, "web:1", 2, cities, placement)


def run_world(layout: WorldLayout, operations: tuple[Operation, ...], *faults: f.Fault) -> Outcome:
    chaos_s = max(s.at_s + getattr(s, "for_s", 0.0) for s in (*operations, *faults)) + 15.0
    return run_scenario(Scenario(1, layout, operations, faults, chaos_s))


def names(outcome: Outcome, resource: str) -> set[str]:
    """Return the names of the objects of a resource in the project that were ever committed."""
    found = set()
    for line in outcome.trace:
        fields = line.split()
        if len(fields) > 4 and fields[1] == "project/alpha" and fields[3].startswith(resource):
            found.add(fields[4].rstrip(":").rpartition("/")[2])
    return found


@pytest.mark.parametrize("created_s", [0.0, 3.0])
def test_two_workloads_with_the_same_readable_name_have_different_deployments(
    created_s: float,
) -> None:
    first, second = ("web-a", "b"), ("web", "a-b")
    outcome = run_world(ONE, (create(0.0, first), create(created_s, second)))
    found = names(outcome, "workloaddeployments")
    assert "web-a-b-dfw" in found
    (other,) = found - {"web-a-b-dfw"}
    assert other.startswith(("web-dfw-", "web-a-dfw-"))
    assert len([line for line in outcome.final if "project/alpha instances" in line]) == 4


def test_a_workload_takes_over_the_name_of_one_that_is_being_deleted() -> None:
    gone, next_one = ("web-a", "b"), ("web", "a-b")
    operations = (create(0.0, gone), DeleteWorkload(5.0, "alpha", gone[0]), create(5.0, next_one))
    outcome = run_world(SPLIT, operations)
    assert names(outcome, "workloaddeployments") == {"web-a-b-dfw"}


@pytest.mark.parametrize("named", [("web", "default"), LONG])
@pytest.mark.parametrize("fault", [f.StopHost, f.IsolateHost])
def test_a_workload_is_created_again_while_the_cell_of_the_first_one_is_unreachable(
    fault: type[f.StopHost | f.IsolateHost], named: tuple[str, str]
) -> None:
    """I36: the cell publishes none of its instances under the second workload."""
    operations = (
        create(0.0, named, ("DFW", "IAD")),
        DeleteWorkload(8.0, "alpha", named[0]),
        create(20.0, named, ("DFW", "IAD")),
        ChangeImage(24.0, "alpha", named[0], "web:2"),
    )
    outcome = run_world(SPLIT, operations, fault(6.0, 60.0, "cell-dfw"))
    assert len([line for line in outcome.final if "project/alpha instances" in line]) == 4


def test_a_workload_is_created_again_at_full_quota_and_gets_the_released_quota() -> None:
    layout = WorldLayout("split", ("alpha",), ("dfw",), instances=2)
    named = ("web", "default")
    operations = (
        create(0.0, named),
        DeleteWorkload(6.0, "alpha", "web"),
        create(6.1, named),
        ScaleWorkload(20.0, "alpha", "web", 1),
    )
    outcome = run_world(layout, operations, f.StopHost(6.05, 5.0, "cell-dfw"))
    assert len([line for line in outcome.final if "project/alpha instances" in line]) == 1
