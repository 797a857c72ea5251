"""The checks of projects find their violations."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import (
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    NAMESPACE,
    PROJECT,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, PLATFORM
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.projects import (
    i5_deleted_projects_leave_nothing,
    i16_nothing_runs_without_access,
    i36_one_workload_for_each_object,
)
from testkit.sim.checks.state import ClusterState, RowChange, Rows
from tests.sim.test_invariants import ALPHA, CELL, HOME, Scene

CORE = ExpectedState({}, ("alpha",), ("dfw",), frozenset())


@pytest.fixture
def scene() -> Scene:
    """A project with access and one machine."""
    scene = Scene()
    scene.put(PLATFORM, PROJECT, "alpha", namespace="")
    scene.put(ALPHA, NAMESPACE, "default", namespace="")
    of_alpha = {"labels": {labels.UPSTREAM_CLUSTER: "cluster-alpha"}}
    for plane in (HUB, CELL):
        scene.put(plane, NAMESPACE, HOME, namespace="", metadata=of_alpha)
    consumer(scene)
    scene.run_machine("web-0", "a")
    return scene


def consumer(scene: Scene, phase: str = "Active", **spec: Any) -> None:
    refs = {"serviceRef": {"name": "compute"}, "consumerProjectRef": {"name": "alpha"}}
    status = {"phase": phase}
    scene.put(PLATFORM, CONSUMER, "sc", namespace="", spec={**refs, **spec}, status=status)


def test_objects_of_an_existing_project_are_no_violation(scene: Scene) -> None:
    assert i5_deleted_projects_leave_nothing(scene.state, CORE) == ""
    assert i16_nothing_runs_without_access(scene.state, CORE) == ""


def test_i5_each_leftover_of_a_project_is_a_violation(scene: Scene) -> None:
    scene.drop(PLATFORM, PROJECT, "alpha", namespace="")
    assert "project/alpha" in i5_deleted_projects_leave_nothing(scene.state, CORE)
    del scene.state.rows[ALPHA]
    assert "consumer sc" in i5_deleted_projects_leave_nothing(scene.state, CORE)
    scene.drop(PLATFORM, CONSUMER, "sc", namespace="")
    assert "hub namespaces" in i5_deleted_projects_leave_nothing(scene.state, CORE)
    scene.drop(HUB, NAMESPACE, HOME, namespace="")
    assert "cell/dfw namespaces" in i5_deleted_projects_leave_nothing(scene.state, CORE)


@pytest.mark.parametrize(
    ("phase", "spec"), [("Denied", {}), ("PendingApproval", {}), ("Active", {"suspended": True})]
)
def test_i16_a_machine_without_access_is_a_violation(
    scene: Scene, phase: str, spec: dict[str, Any]
) -> None:
    consumer(scene, phase, **spec)
    assert "alpha has no access" in i16_nothing_runs_without_access(scene.state, CORE)


@pytest.mark.parametrize(("after", "fine"), [("then", True), ("now", False), (None, False)])
def test_i8_the_time_of_the_first_grant_is_kept(after: str | None, fine: bool) -> None:
    scene = Scene()
    for entitled_at in ("then", after):
        status = {"entitledAt": entitled_at} if entitled_at else {}
        scene.put(ALPHA, ENTITLEMENT, "compute", namespace="", status=status)
    assert (scene.violation == "") == fine


def instance_row(workload: str, owner: str = "") -> JsonObject:
    owners = [{"name": owner, "uid": f"uid-{owner}"}] if owner else []
    metadata = {"uid": "u", "labels": {labels.WORKLOAD_UID: workload}, "ownerReferences": owners}
    return {"metadata": metadata}


def row_change(before: JsonObject | None, after: JsonObject) -> RowChange:
    key = ObjectKey(INSTANCE.resource, "ns-1", "web-default-dfw-0")
    return RowChange(0.0, HUB, 1, key, before, after, b"")


def test_an_object_that_changes_its_workload_is_found() -> None:
    state = ClusterState({}, lambda: 0.0, rows={HUB: {}})
    first, second = instance_row("one"), instance_row("two")
    assert i36_one_workload_for_each_object(state, row_change(None, first)) == ""
    assert i36_one_workload_for_each_object(state, row_change(first, first)) == ""
    found = i36_one_workload_for_each_object(state, row_change(first, second))
    assert "was of workload one, now of two" in found


def test_an_instance_under_a_deployment_of_another_workload_is_found() -> None:
    deployment: JsonObject = {
        "metadata": {"uid": "uid-web"},
        "spec": {"workloadRef": {"uid": "one"}},
    }
    rows: dict[str, Rows] = {HUB: {ObjectKey(DEPLOYMENT.resource, "ns-1", "web"): deployment}}
    state = ClusterState({}, lambda: 0.0, rows=rows)
    own, foreign = instance_row("one", "web"), instance_row("two", "web")
    assert i36_one_workload_for_each_object(state, row_change(None, own)) == ""
    found = i36_one_workload_for_each_object(state, row_change(None, foreign))
    assert "of workload two is owned by one of one" in found
