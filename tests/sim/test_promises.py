"""The checks of rollouts, deletions, namespaces, hot loops and exclusion find their violations.

A test named after an invariant describes the violation that the check must find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import BINDING, CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB
from datum_compute.controllers import registry
from datum_compute.runtime.controller import Done, Outcome
from testkit.sim.checks.invariants import WRITES_MAX, checked_reconcile, exclusion_checked
from testkit.sim.checks.promises import MOVE_OBSERVED_S
from testkit.sim.checks.state import IN_FLIGHT_S
from tests.sim.test_invariants import (
    ALPHA,
    CELL,
    HOME,
    Scene,
    deployment_spec,
    instance_spec,
    with_condition,
)

LEAVING = {"deletionTimestamp": "2023-11-14T22:13:20Z"}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def instance(scene: Scene, number: int, **metadata: Any) -> None:
    """Write an instance with the template ``web:1``, which may be older than that of its
    deployment."""
    own = {labels.DEPLOYMENT_NAME: "web", labels.INSTANCE_INDEX: str(number)}
    described = {"labels": own, **metadata}
    spec, status = instance_spec("web:1"), with_condition("Ready")
    scene.put(CELL, INSTANCE, f"web-{number}", spec=spec, status=status, metadata=described)


@pytest.mark.parametrize("fine", [True, False], ids=["surplus", "wanted"])
def test_i12_a_second_instance_is_deleted_while_one_terminates(scene: Scene, fine: bool) -> None:
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(2, "web:2"))
    for number in range(3):
        instance(scene, number)
    instance(scene, 2, **LEAVING)
    instance(scene, 1 if fine else 0, **LEAVING)
    assert not scene.violation
    if not fine:
        instance(scene, 1, **LEAVING)
    assert scene.violation.startswith("I12") != fine


@pytest.mark.parametrize("late_s", [0.0, IN_FLIGHT_S])
def test_i12_accepts_a_delete_that_was_planned_before_the_spec_changed(
    scene: Scene, late_s: float
) -> None:
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(1, "web:2"))
    for number in range(3):
        instance(scene, number)
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(3, "web:2"))
    scene.now_s += late_s
    for number in (2, 0):
        instance(scene, number, **LEAVING)
    assert scene.violation.startswith("I12") == bool(late_s)


def test_i12_ignores_instances_in_a_terminating_namespace(scene: Scene) -> None:
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(2, "web:2"))
    scene.put(CELL, NAMESPACE, HOME, namespace="", metadata=LEAVING)
    for number in (0, 1):
        instance(scene, number)
    for number in (0, 1):
        instance(scene, number, **LEAVING)
    assert not scene.violation


def workload(scene: Scene, image: str) -> None:
    placement = {"name": "a", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
    names = ("replicas", "readyReplicas", "updatedReplicas", "desiredReplicas")
    done: JsonObject = {**dict.fromkeys(names, 1), "observedGeneration": 1}
    spec = {"template": {"spec": instance_spec(image)}, "placements": [placement]}
    scene.put(ALPHA, WORKLOAD, "web", spec=spec, status=done)


@pytest.mark.parametrize(("image", "fine"), [("web:1", True), ("web:2", False)])
def test_i7_a_rollout_is_reported_as_complete_before_its_cell_has_the_spec(
    scene: Scene, image: str, fine: bool
) -> None:
    own = {labels.WORKLOAD_UID: "uid-web"}
    spec = deployment_spec(1, "web:1")
    city = {"labels": {labels.TOPOLOGY_CITY: "DFW"}}
    scene.put(HUB, CLUSTER, "dfw", namespace="", metadata=city)
    scene.put(CELL, DEPLOYMENT, "web-1", spec=spec, metadata={"labels": own})
    workload(scene, image)
    assert scene.violation.startswith("I7") != fine


@pytest.mark.parametrize(
    ("bound", "after_s", "fine"),
    [("dfw", MOVE_OBSERVED_S - 1, True), ("dfw", MOVE_OBSERVED_S, False), ("dfw-2", 0.0, False)],
    ids=["the-hub-does-not-know", "it-must-know", "it-knows"],
)
def test_i7_a_rollout_counts_on_the_former_cell_until_the_hub_observes_the_move(
    scene: Scene, bound: str, after_s: float, fine: bool
) -> None:
    for cell, city in (("dfw", "DFW"), ("dfw-2", "LIMBO"), ("dfw", "AWAY"), ("dfw-2", "DFW")):
        metadata = {"labels": {labels.TOPOLOGY_CITY: city}}
        scene.put(HUB, CLUSTER, cell, namespace="", metadata=metadata)
    own = {labels.WORKLOAD_UID: "uid-web"}
    scene.put(CELL, DEPLOYMENT, "web-1", spec=deployment_spec(1, "web:1"), metadata={"labels": own})
    resource = {"kind": DEPLOYMENT.kind, "name": "web-1", "namespace": HOME}
    binding = {"resource": resource, "clusters": [{"name": bound}]}
    scene.put(HUB, BINDING, "web-1-workloaddeployment", spec=binding)
    scene.now_s += after_s
    workload(scene, "web:1")
    assert scene.violation.startswith("I7") != fine


def test_i15_an_instance_is_deleted_before_its_machine(scene: Scene) -> None:
    instance(scene, 0, finalizers=["held"], ownerReferences=[{"uid": "of-web"}])
    scene.run_machine("web-0", "a")
    scene.drop(CELL, INSTANCE, "web-0")
    assert scene.violation.startswith("I15")


def test_i3_a_namespace_is_deleted_with_an_object_in_it(scene: Scene) -> None:
    scene.put(CELL, NAMESPACE, HOME, namespace="")
    instance(scene, 0)
    scene.drop(CELL, NAMESPACE, HOME, namespace="")
    assert scene.violation.startswith("I3")


def test_i3_an_object_is_created_in_a_deleted_namespace(scene: Scene) -> None:
    scene.put(CELL, NAMESPACE, HOME, namespace="")
    scene.drop(CELL, NAMESPACE, HOME, namespace="")
    assert not scene.violation
    instance(scene, 0)
    assert "in a deleted namespace" in scene.violation


@pytest.mark.parametrize(("every_s", "fine"), [(1.0, True), (0.01, False)])
def test_i20_an_object_is_written_too_often(scene: Scene, every_s: float, fine: bool) -> None:
    for _ in range(WRITES_MAX):
        scene.now_s += every_s
        scene.put(CELL, NAMESPACE, "x", namespace="")
    assert scene.violation.startswith("I20") != fine


async def waited(work: Awaitable[object]) -> None:
    await work


async def test_i20_a_key_is_reconciled_twice_at_once() -> None:
    violations: list[str] = []
    until = asyncio.Event()

    async def reconcile(_context: object, _key: str) -> Outcome:
        await until.wait()
        return Done()

    watched = checked_reconcile("machine", reconcile, violations.append)
    async with asyncio.TaskGroup() as group:
        for key in ("a", "b", "a"):
            group.create_task(waited(watched(None, key)))
        await asyncio.sleep(0)
        until.set()
    assert violations == ["I20: machine reconciles a twice at once on "]
    await watched(None, "a")
    assert len(violations) == 1


def test_controllers_are_restored_after_the_exclusion_check() -> None:
    controller = registry.CELL[0]
    original = controller.reconcile
    with exclusion_checked(print):
        assert controller.reconcile is not original
    assert controller.reconcile is original


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "not reported"])
def test_i7_a_terminating_instance_stays_ready_until_it_is_deleted(
    scene: Scene, reported: bool
) -> None:
    scene.state.only_machines_fail = True
    instance(scene, 0)
    instance(scene, 0, **LEAVING)
    scene.now_s += 1.0
    if reported:
        scene.put(CELL, INSTANCE, "web-0", status={}, metadata=LEAVING)
    scene.drop(CELL, INSTANCE, "web-0")
    assert scene.violation.startswith("I7") != reported


def test_i1_a_second_instance_has_the_same_slot(scene: Scene) -> None:
    own = {labels.DEPLOYMENT_UID: "1", labels.INSTANCE_INDEX: "0"}
    scene.put(CELL, INSTANCE, "web-0", spec=instance_spec("web:1"), metadata={"labels": own})
    other = {**own, labels.INSTANCE_INDEX: "1"}
    scene.put(CELL, INSTANCE, "web-1", spec=instance_spec("web:1"), metadata={"labels": other})
    assert not scene.violation
    scene.put(CELL, INSTANCE, "web-again", spec=instance_spec("web:1"), metadata={"labels": own})
    assert scene.violation.startswith("I1:")
