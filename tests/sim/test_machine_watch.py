"""I19: a cell replaces a lost machine in time, unless an operator deleted the data it requires."""

from __future__ import annotations

import pytest

from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, SECRET
from testkit.sim.checks.machine_watch import KNOWN_S, find_machine_violation
from tests.sim.test_invariants import CELL, Scene, instance_spec


@pytest.fixture
def scene() -> Scene:
    """An instance that requires a Secret and may use a ConfigMap; its machine was just lost."""
    made = Scene()
    made.now_s = 100.0
    spec = instance_spec()
    spec["runtime"]["sandbox"]["containers"][0]["envFrom"] = [
        {"secretRef": {"name": "password"}},
        {"configMapRef": {"name": "settings", "optional": True}},
    ]
    made.put(CELL, SECRET, "password")
    made.put(CELL, CONFIG_MAP, "settings")
    made.put(CELL, INSTANCE, "web-0", spec=spec)
    made.run_machine("web-0", "a")
    assert not find_machine_violation(made.state)
    made.provider.machines.clear()
    return made


def complaint_after(scene: Scene, seconds: float) -> str:
    scene.now_s += seconds
    return find_machine_violation(scene.state)


def test_a_lost_machine_is_replaced_in_time(scene: Scene) -> None:
    assert not complaint_after(scene, KNOWN_S)
    assert complaint_after(scene, 1.0).startswith("I19")


def test_a_machine_waits_for_a_secret_that_an_operator_deleted(scene: Scene) -> None:
    scene.state.tampered[(CELL, "password")] = None
    scene.drop(CELL, SECRET, "password")
    assert not complaint_after(scene, 2 * KNOWN_S)


def test_a_machine_is_replaced_in_time_once_its_secret_is_back(scene: Scene) -> None:
    scene.state.tampered[(CELL, "password")] = None
    scene.drop(CELL, SECRET, "password")
    assert not complaint_after(scene, 2 * KNOWN_S)
    scene.put(CELL, SECRET, "password")
    assert not complaint_after(scene, KNOWN_S)
    assert complaint_after(scene, 1.0).startswith("I19")


def test_a_secret_that_the_platform_lost_is_no_excuse(scene: Scene) -> None:
    scene.drop(CELL, SECRET, "password")
    assert complaint_after(scene, 2 * KNOWN_S).startswith("I19")


def test_a_deleted_optional_source_is_no_excuse(scene: Scene) -> None:
    scene.state.tampered[(CELL, "settings")] = None
    scene.drop(CELL, CONFIG_MAP, "settings")
    assert complaint_after(scene, 2 * KNOWN_S).startswith("I19")
