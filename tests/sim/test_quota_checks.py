"""The checks of quota at every commit: what they report, and what they accept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM, GRANT, INSTANCE, NAMESPACE, SERVER
from datum_compute.api.meta.codec import JsonObject
from testkit.sim.actors.users import DesiredWorkload
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.quota import i2_grants_are_used_up, is_quota_scarce
from testkit.sim.checks.state import IN_FLIGHT_S
from tests.sim.test_invariants import ALPHA, CELL, HOME, Scene, with_condition

TYPE = "compute.datumapis.com/instances"
CONSUMER = {"kind": "Project", "name": "alpha"}


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    buckets = [{"resourceType": TYPE, "buckets": [{"amount": 1}]}]
    spec = {"consumerRef": CONSUMER, "allowances": buckets}
    found.put(ALPHA, GRANT, "default", spec=spec)
    return found


def claim(scene: Scene, name: str, granted: str = "True") -> None:
    place = {labels.SOURCE_CLUSTER: "dfw", labels.INSTANCE_NAMESPACE: HOME}
    spec = {"consumerRef": CONSUMER, "requests": [{"resourceType": TYPE, "amount": 1}]}
    scene.put(
        ALPHA,
        CLAIM,
        f"instance-{name}",
        metadata={"labels": place},
        spec=spec,
        status=with_condition("Granted", granted),
    )


def gated(*gates: str) -> JsonObject:
    return {"controller": {"schedulingGates": [{"name": name} for name in gates]}}


def test_i2_more_is_granted_than_the_limit(scene: Scene) -> None:
    claim(scene, "web-0")
    claim(scene, "web-1", "False")
    assert not scene.violation
    claim(scene, "web-1")
    assert scene.violation.startswith("I2")


@pytest.mark.parametrize("late_s", [0.0, IN_FLIGHT_S])
def test_i2_accepts_a_decision_that_was_made_before_the_grant_was_deleted(
    scene: Scene, late_s: float
) -> None:
    claim(scene, "web-0", "False")
    scene.drop(ALPHA, GRANT, "default")
    scene.now_s += late_s
    claim(scene, "web-0")
    assert scene.violation.startswith("I2") == bool(late_s)


def test_i2_a_claim_is_released_while_its_machine_runs(scene: Scene) -> None:
    claim(scene, "web-0")
    scene.run_machine("web-0", "a")
    scene.drop(ALPHA, CLAIM, "instance-web-0")
    assert scene.violation.startswith("I2")


@pytest.mark.parametrize("has_instance", [True, False])
def test_i2_accepts_a_machine_that_a_late_write_started_without_an_instance(
    scene: Scene, has_instance: bool
) -> None:
    scene.state.writes_come_late = True
    claim(scene, "web-0")
    scene.put(CELL, SERVER, "web-0", metadata={"labels": {labels.INSTANCE_UID: "uid-web-0"}})
    scene.run_machine("web-0", "uid-web-0")
    if has_instance:
        scene.put(CELL, INSTANCE, "web-0", spec=gated())
    scene.drop(ALPHA, CLAIM, "instance-web-0")
    assert scene.violation.startswith("I2") == has_instance


def test_an_instance_of_an_operator_that_holds_quota_makes_it_scarce(scene: Scene) -> None:
    desired = {("alpha", "web"): DesiredWorkload("web:1", 1, ("DFW",))}
    expected = ExpectedState(desired, ("alpha",), ("dfw",), frozenset(), allowed=1)
    claim(scene, "web-0")
    claim(scene, "poison-0", "False")
    assert not is_quota_scarce(scene.state, expected)
    claim(scene, "web-0", "False")
    claim(scene, "poison-0")
    assert is_quota_scarce(scene.state, expected)
    assert not is_quota_scarce(scene.state, replace(expected, allowed=2))


@pytest.mark.parametrize(
    ("returned", "violation"),
    [
        (frozenset(), "I2: alpha runs 2 machines, 1 are allowed"),
        (frozenset({"dfw"}), ""),
    ],
)
def test_i2_more_machines_run_than_allowed_unless_they_returned_with_their_cell(
    scene: Scene, returned: frozenset[str], violation: str
) -> None:
    desired = {("alpha", "web"): DesiredWorkload("web:1", 2, ("DFW",))}
    expected = ExpectedState(
        desired, ("alpha",), ("dfw",), frozenset(), allowed=1, returned=returned
    )
    scene.put(ALPHA, NAMESPACE, "default", metadata={"uid": "1"})
    claim(scene, "web-0")
    claim(scene, "web-1", "False")
    scene.run_machine("web-0", "a")
    scene.run_machine("web-1", "b")
    assert i2_grants_are_used_up(scene.state, expected) == violation


@pytest.mark.parametrize(
    ("stopped", "violation"),
    [(False, "alpha runs 0 machines, 1 are desired and allowed"), (True, "")],
)
def test_i6_a_workload_runs_no_machine_unless_it_is_stopped(
    scene: Scene, stopped: bool, violation: str
) -> None:
    desired = {("alpha", "web"): DesiredWorkload("web:1", 1, ("DFW",), stopped=stopped)}
    expected = ExpectedState(desired, ("alpha",), ("dfw",), frozenset(), allowed=1)
    assert i2_grants_are_used_up(scene.state, expected) == violation


def test_i4_a_gate_is_removed_without_a_grant(scene: Scene) -> None:
    claim(scene, "web-0", "False")
    scene.put(CELL, INSTANCE, "web-0", spec=gated("Network", "Quota"))
    scene.put(CELL, INSTANCE, "web-0", spec=gated("Quota"))
    assert not scene.violation
    scene.put(CELL, INSTANCE, "web-0", spec=gated())
    assert scene.violation.startswith("I4")


def test_i4_a_gate_is_removed_with_its_grant_and_never_added_again(scene: Scene) -> None:
    claim(scene, "web-0")
    scene.put(CELL, INSTANCE, "web-0", spec=gated("Quota"))
    scene.put(CELL, INSTANCE, "web-0", spec=gated())
    assert not scene.violation
    scene.put(CELL, INSTANCE, "web-0", spec=gated("Quota"))
    assert scene.violation.startswith("I4")
