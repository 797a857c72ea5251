"""I19: a cell replaces a lost machine in time, unless an operator deleted the data it requires."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, SECRET
from datum_compute.api.meta.objects import KindInfo
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


def test_i19_a_lost_machine_is_not_replaced_in_time(scene: Scene) -> None:
    assert not complaint_after(scene, KNOWN_S)
    assert complaint_after(scene, 1.0).startswith("I19")


def test_a_machine_waits_for_a_secret_that_an_operator_deleted(scene: Scene) -> None:
    scene.state.tampered[(CELL, "password")] = None
    scene.drop(CELL, SECRET, "password")
    assert not complaint_after(scene, 2 * KNOWN_S)
    scene.put(CELL, SECRET, "password")
    assert not complaint_after(scene, KNOWN_S)
    assert complaint_after(scene, 1.0).startswith("I19")


@pytest.mark.parametrize(
    ("kind", "name", "by_operator"),
    [(SECRET, "password", False), (CONFIG_MAP, "settings", True)],
    ids=["lost by the platform", "optional"],
)
def test_i19_data_missing_for_another_reason_is_no_excuse(
    scene: Scene, kind: KindInfo[Any], name: str, by_operator: bool
) -> None:
    if by_operator:
        scene.state.tampered[(CELL, name)] = None
    scene.drop(CELL, kind, name)
    assert complaint_after(scene, 2 * KNOWN_S).startswith("I19")
