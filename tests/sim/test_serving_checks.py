"""I28 and I29 find serving machines that are removed too early, and accept the excused cases."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from testkit.sim.checks.serving import find_removal_violation
from tests.sim.test_invariants import (
    CELL,
    HOME,
    Scene,
    deployment_spec,
    instance_spec,
    with_condition,
)

LEAVING = {"deletionTimestamp": "2023-11-14T22:13:20Z"}
CRASHING = "crash.example/web:2"


@pytest.fixture
def scene() -> Scene:
    """Two slots; the instance of the second was replaced. Both machines have run for a minute."""
    made = Scene()
    made.now_s = 60.0
    made.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(2, "web:2"))
    put_instance(made, 0, "web:1")
    put_instance(made, 1, "web:2")
    made.run_machine("web-0", "a")
    made.run_machine("web-1", "b", "web:2")
    return made


def put_instance(scene: Scene, number: int, image: str, ready: str = "True", **more: Any) -> None:
    own = {labels.DEPLOYMENT_NAME: "web", labels.INSTANCE_INDEX: str(number)}
    metadata = {"labels": own, **more}
    status, spec = with_condition("Ready", ready), instance_spec(image)
    scene.put(CELL, INSTANCE, f"web-{number}", spec=spec, status=status, metadata=metadata)


def put_server(scene: Scene, phase: str, reason: str = "", **metadata: Any) -> None:
    status = {"phase": phase, "reason": reason}
    described = {"uid": "a", "labels": {labels.INSTANCE_UID: "uid-web-0"}, **metadata}
    scene.put(CELL, SERVER, "web-0", status=status, metadata=described)


def stop_replacement(scene: Scene) -> None:
    del scene.provider.machines[f"{HOME}/web-1/b"]
    scene.run_machine("web-1", "b", CRASHING)


def test_an_instance_may_be_deleted_while_enough_others_serve(scene: Scene) -> None:
    put_instance(scene, 0, "web:1", **LEAVING)
    assert not scene.violation


@pytest.mark.parametrize(
    ("ready", "by_operator", "fine"),
    [
        ("True", False, False),
        ("Unknown", False, False),
        ("False", False, True),
        ("True", True, True),
    ],
)
def test_i28_a_serving_instance_is_deleted_while_a_replacement_crashes(
    scene: Scene, ready: str, by_operator: bool, fine: bool
) -> None:
    stop_replacement(scene)
    put_instance(scene, 0, "web:1", ready)
    if by_operator:
        scene.state.tampered[(CELL, "web-0")] = None
    put_instance(scene, 0, "web:1", ready, **LEAVING)
    assert scene.violation.startswith("I28") != fine
    assert bool(scene.violation) != fine


def test_i29_a_larger_budget_does_not_excuse_a_crashing_replacement(scene: Scene) -> None:
    spec = deployment_spec(2, "web:2")
    spec["scaleSettings"]["maxUnavailable"] = 2
    scene.put(CELL, DEPLOYMENT, "web", spec=spec)
    scene.now_s += 10
    stop_replacement(scene)
    put_instance(scene, 0, "web:1", **LEAVING)
    assert scene.violation.startswith("I29")


def test_a_machine_that_a_fault_killed_counts_as_serving(scene: Scene) -> None:
    scene.put(CELL, SERVER, "web-1", metadata={"uid": "b"})
    scene.provider.kill(f"{HOME}/web-1/b")
    put_instance(scene, 0, "web:1", **LEAVING)
    assert not scene.violation


def test_the_instance_of_an_undesired_slot_may_be_deleted(scene: Scene) -> None:
    scene.provider.machines.pop(f"{HOME}/web-0/a")
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(1, "web:2"))
    put_instance(scene, 1, "web:2", **LEAVING)
    assert not scene.violation


def test_recently_changed_settings_excuse_a_loss(scene: Scene) -> None:
    """The deletion was decided when one instance was desired; three are desired now."""
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(1, "web:2"))
    scene.now_s += 10
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(3, "web:2"))
    put_instance(scene, 0, "web:1", **LEAVING)
    assert not scene.violation


@pytest.mark.parametrize(("ran_s", "fine"), [(5.0, False), (30.0, True)])
def test_i29_a_replacement_must_serve_for_min_ready_seconds(
    scene: Scene, ran_s: float, fine: bool
) -> None:
    spec = deployment_spec(2, "web:2")
    spec["scaleSettings"]["minReadySeconds"] = 20
    scene.put(CELL, DEPLOYMENT, "web", spec=spec)
    scene.now_s = 1000.0 + ran_s
    machines, machine_id = scene.provider.machines, f"{HOME}/web-1/b"
    machines[machine_id] = replace(machines[machine_id], runs_from_s=1000.0)
    put_instance(scene, 0, "web:1", **LEAVING)
    assert scene.violation.startswith("I29") != fine


@pytest.mark.parametrize(
    ("phase", "reason", "runs", "fine"),
    [
        ("Pending", "Starting", True, False),
        ("Running", "NotReady", True, False),
        ("Unknown", "NotObserved", True, True),
        ("Sleeping", "", True, True),
        ("Pending", "Starting", False, True),
    ],
)
def test_i28_a_server_is_reported_as_down_while_its_machine_serves(
    scene: Scene, phase: str, reason: str, runs: bool, fine: bool
) -> None:
    put_server(scene, "Running")
    if not runs:
        scene.provider.machines.clear()
    put_server(scene, phase, reason)
    assert scene.violation.startswith("I28") != fine


def test_i28_accepts_that_a_server_which_is_being_stopped_serves_its_last_connections(
    scene: Scene,
) -> None:
    put_server(scene, "Running")
    stopping = {"phase": "Stopped", "reason": "Stopping"}
    metadata = {"uid": "a"}
    scene.put(CELL, SERVER, "web-0", spec={"suspended": True}, status=stopping, metadata=metadata)
    assert not scene.violation


def test_i28_a_machine_is_removed_while_its_instance_is_desired(scene: Scene) -> None:
    put_server(scene, "Running")
    machine_id = f"{HOME}/web-0/a"
    assert find_removal_violation(scene.state, CELL, machine_id).startswith("I28")
    put_instance(scene, 0, "web:9")
    assert not find_removal_violation(scene.state, CELL, machine_id), "it runs another image"
    put_instance(scene, 0, "web:1", **LEAVING)
    assert not find_removal_violation(scene.state, CELL, machine_id)


def put_deployment(scene: Scene, *, reported: bool = False, **scale: Any) -> None:
    """Put a deployment of one instance with the template web:2 and its surge slot."""
    spec = deployment_spec(1, "web:2")
    spec["scaleSettings"] |= scale
    status: dict[str, Any] = {"surge": {"templateHash": "t", "ordinals": "1", "created": "1"}}
    if reported:
        status |= with_condition("SurgeAvailable", "False")
    scene.put(CELL, DEPLOYMENT, "web", spec=spec, status=status)


@pytest.mark.parametrize(
    ("scale", "reported", "surge_serves", "fine"),
    [
        ({}, False, False, False),
        ({}, False, True, True),
        ({}, True, False, True),
        ({"maxUnavailable": 1}, False, False, True),
        ({"maxSurge": 0}, False, False, True),
    ],
    ids=["default", "surge serves", "surge unavailable", "unavailable allowed", "no surge"],
)
def test_i35_the_only_instance_is_deleted(
    scene: Scene, scale: dict[str, Any], reported: bool, surge_serves: bool, fine: bool
) -> None:
    put_deployment(scene, reported=reported, **scale)
    scene.now_s += 10
    if not surge_serves:
        put_instance(scene, 1, "web:2", **LEAVING)
        del scene.provider.machines[f"{HOME}/web-1/b"]
    put_instance(scene, 0, "web:1", **LEAVING)
    assert scene.violation.startswith("I35") != fine
    assert bool(scene.violation) != fine


@pytest.mark.parametrize("other_serves", [False, True])
def test_i35_the_surge_instance_is_deleted(scene: Scene, other_serves: bool) -> None:
    put_deployment(scene)
    scene.now_s += 10
    if not other_serves:
        del scene.provider.machines[f"{HOME}/web-0/a"]
    put_instance(scene, 1, "web:2", **LEAVING)
    assert scene.violation.startswith("I35") != other_serves
