"""I32 to I34 find a suspension that loses something, and whole worlds stop, resume and converge."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.suspension import (
    find_removed_machine,
    i34_machines_have_distinct_addresses,
)
from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    ChangeImage,
    CreateWorkload,
    Operation,
    StartWorkload,
    StopWorkload,
    SuspendProject,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout
from tests.sim.test_invariants import CELL, HOME, Scene, deployment_spec, instance_spec

EMPTY = ExpectedState({}, ("alpha",), ("dfw",), frozenset())
MACHINE = f"{HOME}/web-0/uid-web-0"


def put_halted(scene: Scene, address: str = "10.0.0.4", **metadata: Any) -> None:
    """Write a stopped deployment, its instance and its Server, 100 s after the stop."""
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(1))
    scene.put(CELL, DEPLOYMENT, "web", spec={**deployment_spec(1), "stopped": True})
    scene.now_s += 100.0
    spec = {**instance_spec(), "controller": {"stopped": True}}
    interfaces = [{"addresses": [{"address": address}]}]
    scene.put(
        CELL, INSTANCE, "web-0", spec=spec, status={"networkInterfaces": interfaces}, **metadata
    )
    scene.put(CELL, SERVER, "web-0", spec={"suspended": True}, **metadata)


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    put_halted(scene)
    return scene


def test_a_stop_without_a_loss_is_no_violation(scene: Scene) -> None:
    put_halted(scene)
    assert not scene.violation


@pytest.mark.parametrize("kind", [INSTANCE, SERVER])
def test_i32_a_stopped_instance_keeps_its_objects(scene: Scene, kind: Any) -> None:
    scene.put(CELL, kind, "web-0", metadata={"deletionTimestamp": "now"})
    assert scene.violation.startswith("I32")


def test_i32_a_stopped_instance_keeps_its_addresses(scene: Scene) -> None:
    put_halted(scene, "10.0.0.5")
    assert scene.violation.startswith("I32")


def test_i32_a_deleted_deployment_may_lose_its_instances(scene: Scene) -> None:
    scene.put(CELL, DEPLOYMENT, "web", metadata={"deletionTimestamp": "now"})
    scene.put(CELL, INSTANCE, "web-0", metadata={"deletionTimestamp": "now"})
    assert not scene.violation


def test_i33_the_machine_of_a_live_server_is_not_removed(scene: Scene) -> None:
    labels = {"labels": {"compute.datumapis.com/instance-uid": "uid-web-0"}}
    put_halted(scene, metadata=labels)
    scene.run_machine("web-0", "uid-web-0")
    assert find_removed_machine(scene.state, CELL, MACHINE).startswith("I33")
    assert find_removed_machine(scene.state, CELL, f"{HOME}/web-0/other") == ""
    scene.drop(CELL, SERVER, "web-0")
    assert find_removed_machine(scene.state, CELL, MACHINE) == ""


def test_i34_a_stopped_machine_keeps_its_address_to_itself(scene: Scene) -> None:
    for name in ("web-0", "web-1"):
        scene.run_machine(name, f"uid-{name}")
        machine = scene.provider.machines[f"{HOME}/{name}/uid-{name}"]
        taken = msgspec.structs.replace(machine, addresses=["10.0.0.4"], suspended_from_s=0.0)
        scene.provider.machines[f"{HOME}/{name}/uid-{name}"] = taken
    assert "10.0.0.4" in i34_machines_have_distinct_addresses(scene.state, EMPTY)


# --- worlds

LAYOUT = WorldLayout("split", ("alpha",), ("dfw",))
OURS = CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",))


def run_world(operations: tuple[Operation, ...], *faults: f.Fault) -> Outcome:
    return run_scenario(Scenario(1, LAYOUT, (OURS, *operations), faults, 60.0))


@pytest.mark.parametrize(
    "steps",
    [
        (StopWorkload(5.0, "alpha", "web"), StartWorkload(25.0, "alpha", "web")),
        (SuspendProject(5.0, "alpha", 20.0),),
        (StopWorkload(5.0, "alpha", "web"), SuspendProject(7.0, "alpha", 20.0)),
        (SuspendProject(5.0, "alpha", f.FOR_EVER), ChangeImage(9.0, "alpha", "web", "web:2")),
    ],
    ids=["stop and start", "suspend and resume", "both", "forever"],
)
def test_a_world_converges_while_a_cell_is_unreachable(steps: tuple[Operation, ...]) -> None:
    outcome = run_world(steps, f.StopHost(4.0, 15.0, "cell-dfw"))
    assert "default/web" in " ".join(outcome.final)
