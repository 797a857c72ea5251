"""Every check finds its violation, and accepts the same scene without the violation.

A test named after an invariant (``test_i1_...``) describes the violation that the check must find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import (
    CLUSTER,
    CONSUMER,
    DEPLOYMENT,
    INSTANCE,
    LEASE,
    NAMESPACE,
    PROJECT,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.store.journal import Change, LoadedPlane, ObjectKey
from testkit.sim.actors.users import DesiredWorkload, canary
from testkit.sim.checks.convergence import find_leftovers, find_missing, summarize_state
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.invariants import Observer
from testkit.sim.checks.projects import i6_orphan_copies_are_quarantined
from testkit.sim.checks.state import ClusterState
from testkit.sim.provider import Provider

CELL = cell_plane("dfw")
ALPHA, BETA = project_plane("alpha"), project_plane("beta")
HOME = "ns-1"
LEAVING_SINCE = "2023-11-14T22:13:20Z"


class Scene:
    """A cluster state that tests write row by row; the observer checks each row."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.provider = Provider(lambda: self.now_s)
        self.state = ClusterState({CELL: self.provider}, lambda: self.now_s)
        self.observer = Observer(self.state, ("alpha", "beta"))
        self._versions: dict[str, int] = {}

    def put(self, plane: str, kind: KindInfo[Any], name: str, **parts: Any) -> None:
        version = self._next(plane)
        namespace = parts.pop("namespace", HOME)
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(version),
            **parts.pop("metadata", {}),
        }
        row = {"kind": kind.kind, "metadata": metadata, **parts}
        key = ObjectKey(kind.resource, namespace, name)
        self.observer.on_commit(1, [Change(plane, version, key, encode(row))])

    def drop(self, plane: str, kind: KindInfo[Any], name: str, namespace: str = HOME) -> None:
        key = ObjectKey(kind.resource, namespace, name)
        self.observer.on_commit(1, [Change(plane, self._next(plane), key, None)])

    def run_machine(self, name: str, uid: str, image: str = "web:1") -> None:
        self.provider.machines[f"{HOME}/{name}/{uid}"] = SimulatedMachine(
            number=1, image=image, runs_from_s=0.0
        )

    @property
    def violation(self) -> str:
        return str(self.observer.broken or "")

    def _next(self, plane: str) -> int:
        self._versions[plane] = self._versions.get(plane, 0) + 1
        return self._versions[plane]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def with_condition(type_: str, status: str = "True") -> JsonObject:
    return {"conditions": [{"type": type_, "status": status, "reason": "R", "message": "m"}]}


def instance_spec(image: str = "web:1") -> JsonObject:
    return {"runtime": {"sandbox": {"containers": [{"name": "app", "image": image}]}}}


def deployment_spec(replicas: int, image: str = "web:1") -> JsonObject:
    template = {"spec": instance_spec(image)}
    return {"scaleSettings": {"minReplicas": replicas}, "template": template}


def test_i1_two_machines_for_one_slot_of_the_same_cell(scene: Scene) -> None:
    other = scene.state.providers[cell_plane("iad")] = Provider(lambda: scene.now_s)
    scene.run_machine("poison", "a")
    other.machines[f"{HOME}/poison/b"] = SimulatedMachine(number=1, image="x", runs_from_s=0.0)
    scene.put(CELL, NAMESPACE, "x", namespace="")
    assert not scene.violation
    scene.run_machine("poison", "c")
    scene.put(CELL, NAMESPACE, "x", namespace="")
    assert scene.violation.startswith("I1")


def test_i7_available_long_after_its_machine(scene: Scene) -> None:
    scene.run_machine("web-0", "a")
    scene.put(CELL, INSTANCE, "web-0", spec=instance_spec(), status=with_condition("Available"))
    assert not scene.violation
    scene.provider.machines.clear()
    scene.now_s = 100.0
    scene.put(CELL, INSTANCE, "web-0", spec=instance_spec(), status=with_condition("Available"))
    assert "its machine is gone" in scene.violation


def test_i7_available_without_a_machine(scene: Scene) -> None:
    scene.put(CELL, INSTANCE, "web-0", spec=instance_spec(), status=with_condition("Available"))
    assert "never had a machine" in scene.violation


def test_i8_an_observed_generation_that_does_not_exist_or_decreases(scene: Scene) -> None:
    scene.put(ALPHA, WORKLOAD, "web", status={"observedGeneration": 2})
    assert "observed 2 of 1" in scene.violation
    back = Scene()
    back.put(ALPHA, WORKLOAD, "web", status={"observedGeneration": 1})
    back.put(ALPHA, WORKLOAD, "web", status={})
    assert "after" in back.violation


@pytest.mark.parametrize(
    ("observed", "copy", "fine"),
    [
        (4, {"generation": 4, "deletionTimestamp": LEAVING_SINCE}, True),
        (5, {"generation": 4, "deletionTimestamp": LEAVING_SINCE}, False),
        (4, {"generation": 4}, False),
    ],
    ids=["as-the-copy", "ahead-of-the-copy", "copy-stays"],
)
def test_i8_the_hub_may_mirror_the_generation_of_a_deleted_copy(
    scene: Scene, observed: int, copy: JsonObject, fine: bool
) -> None:
    def report(generation: int) -> None:
        status = {"observedGeneration": generation}
        scene.put(HUB, DEPLOYMENT, "web", metadata={"generation": 3}, status=status)

    report(3)
    scene.put(CELL, DEPLOYMENT, "web", metadata=copy)
    report(observed)
    report(1)  # the next copy starts at generation 1
    assert scene.violation.startswith("I8") != fine


def test_i9_versions_that_do_not_increase(scene: Scene) -> None:
    scene.put(HUB, NAMESPACE, "x", namespace="")
    scene._versions[HUB] = 0
    scene.put(HUB, NAMESPACE, "x", namespace="")
    assert scene.violation.startswith("I9")


@pytest.mark.parametrize(
    ("replicas", "deleted", "ready", "restored", "violation"),
    [
        (3, 0, "True", False, "ready and current"),
        (1, 1, "True", False, "before web-2"),
        (1, 2, "True", False, ""),
        (3, 0, "False", False, ""),
        (3, 0, "True", True, ""),
    ],
    ids=["ready", "not the highest ordinal", "surplus", "not ready", "older template of the hub"],
)
def test_i14_a_deleted_instance_must_be_surplus_or_not_ready(
    scene: Scene, replicas: int, deleted: int, ready: str, restored: bool, violation: str
) -> None:
    def put_instance(number: int, **more: str) -> None:
        own = {labels.DEPLOYMENT_NAME: "web", labels.INSTANCE_INDEX: str(number)}
        metadata = {"labels": own, **more}
        status, spec = with_condition("Ready", ready), instance_spec()
        scene.put(CELL, INSTANCE, f"web-{number}", spec=spec, status=status, metadata=metadata)

    if restored:
        scene.state.restored[HUB] = None
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(replicas))
    for number in range(3):
        put_instance(number)
    put_instance(deleted, deletionTimestamp=LEAVING_SINCE)
    assert violation in scene.violation
    assert bool(scene.violation) == bool(violation)


@pytest.mark.parametrize(
    ("in_deployment", "in_instance", "violation"),
    [("t2", "t1", ""), ("", "t2", "ready and current"), ("t2", "t2", "ready and current")],
    ids=["earlier restart", "restart lost by the deployment", "last restart"],
)
def test_i14_compares_the_restart_that_the_workload_records_for_the_city(
    scene: Scene, in_deployment: str, in_instance: str, violation: str
) -> None:
    restarts = [{"cityCode": "IAD", "at": "t3"}, {"cityCode": "DFW", "at": "t2"}]
    scene.put(ALPHA, WORKLOAD, "web", namespace="default", spec={"restarts": restarts})
    spec = deployment_spec(1)
    spec["template"]["metadata"] = {"annotations": {labels.CITY_RESTARTED_AT: in_deployment}}
    spec |= {"cityCode": "DFW", "workloadRef": {"name": "web", "uid": "uid-web"}}
    scene.put(CELL, DEPLOYMENT, "web", spec=spec)
    metadata: JsonObject = {
        "labels": {labels.DEPLOYMENT_NAME: "web", labels.INSTANCE_INDEX: "0"},
        "annotations": {labels.CITY_RESTARTED_AT: in_instance},
    }
    ready, instance = with_condition("Ready"), instance_spec()
    scene.put(CELL, INSTANCE, "web-0", spec=instance, status=ready, metadata=metadata)
    metadata = {**metadata, "deletionTimestamp": LEAVING_SINCE}
    scene.put(CELL, INSTANCE, "web-0", spec=instance, status=ready, metadata=metadata)
    assert violation in scene.violation
    assert bool(scene.violation) == bool(violation)


def test_i14_accepts_the_removal_of_an_outdated_instance_in_a_surge_ordinal(scene: Scene) -> None:
    """A scale-down to one replica leaves the ordinal of its surge instance to an old instance."""
    scene.put(CELL, DEPLOYMENT, "web", spec=deployment_spec(1, "web:2"))

    def put_instance(number: int, image: str, **more: str) -> None:
        own = {labels.DEPLOYMENT_NAME: "web", labels.INSTANCE_INDEX: str(number)}
        spec, status = instance_spec(image), with_condition("Ready")
        metadata = {"labels": own, **more}
        scene.put(CELL, INSTANCE, f"web-{number}", spec=spec, status=status, metadata=metadata)

    for number, image in enumerate(("web:1", "web:1", "web:2")):
        put_instance(number, image)
    put_instance(1, "web:1", deletionTimestamp=LEAVING_SINCE)
    assert not scene.violation


def test_i15_a_server_is_deleted_before_its_machine(scene: Scene) -> None:
    scene.put(CELL, SERVER, "web-0")
    scene.run_machine("web-0", "uid-web-0")
    scene.drop(CELL, SERVER, "web-0")
    assert scene.violation.startswith("I15")


def _copy_on_the_cell(scene: Scene) -> None:
    notes = {labels.WORK_NAMESPACE: "karmada-es-dfw", labels.WORK_NAME: "web-work"}
    spec = deployment_spec(1)
    scene.put(CELL, DEPLOYMENT, "web", spec=spec, metadata={"annotations": notes})


def test_i15_a_tombstone_is_deleted_before_the_copy(scene: Scene) -> None:
    scene.put(HUB, WORK, "web-work", namespace="karmada-es-dfw")
    _copy_on_the_cell(scene)
    scene.drop(HUB, WORK, "web-work", namespace="karmada-es-dfw")
    assert scene.violation.startswith("I15")


@pytest.mark.parametrize(
    ("tombstone", "answers", "fine"),
    [(False, "False", False), (True, "True", False), (True, "False", True)],
)
def test_i15_a_project_deployment_is_deleted_while_a_cell_has_its_copy(
    scene: Scene, tombstone: bool, answers: str, fine: bool
) -> None:
    leaving = {"deletionTimestamp": LEAVING_SINCE} if tombstone else {}
    scene.put(HUB, WORK, "web-work", namespace="karmada-es-dfw", metadata=leaving)
    scene.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready", answers))
    _copy_on_the_cell(scene)
    target = {"annotations": {labels.FEDERATION_NAMESPACE: HOME}}
    scene.put(ALPHA, DEPLOYMENT, "web", namespace="default", metadata=target, spec={})
    scene.now_s = 1000.0
    scene.drop(ALPHA, DEPLOYMENT, "web", namespace="default")
    assert (not scene.violation) == fine


@pytest.mark.parametrize(
    ("written_again", "violation"),
    [("nothing", ""), ("work", "no Work is terminating"), ("deployment", "no Work is terminating")],
)
def test_i15_accepts_that_a_restored_hub_has_no_record_of_a_copy(
    scene: Scene, written_again: str, violation: str
) -> None:
    scene.put(HUB, WORK, "web-work", namespace="karmada-es-dfw")
    _copy_on_the_cell(scene)
    target = {"annotations": {labels.FEDERATION_NAMESPACE: HOME}}
    scene.put(ALPHA, DEPLOYMENT, "web", namespace="default", metadata=target, spec={})
    scene.state.restore({HUB: LoadedPlane(version=1, objects={})})
    if written_again == "work":
        scene.put(HUB, WORK, "web-work", namespace="karmada-es-dfw")
    if written_again == "deployment":
        scene.put(HUB, DEPLOYMENT, "web", spec=deployment_spec(1))
    assert not scene.violation
    scene.drop(ALPHA, DEPLOYMENT, "web", namespace="default")
    assert scene.violation.endswith(violation)
    assert bool(scene.violation) == bool(violation)


def test_i17_an_object_of_one_project_on_the_plane_of_another(scene: Scene) -> None:
    scene.put(ALPHA, WORKLOAD, "web", spec={"env": canary("alpha")})
    assert not scene.violation
    scene.put(BETA, WORKLOAD, "web", spec={"env": canary("alpha")})
    assert scene.violation.startswith("I17")


def test_i18_a_token_in_an_object(scene: Scene) -> None:
    scene.put(HUB, CLUSTER, "dfw", namespace="", status={"message": "token-of-hub"})
    assert scene.violation.startswith("I18")


def test_i23_available_without_a_ready_replica(scene: Scene) -> None:
    scene.put(ALPHA, WORKLOAD, "web", status={**with_condition("Available"), "readyReplicas": 1})
    assert not scene.violation
    scene.put(ALPHA, WORKLOAD, "api", status=with_condition("Available"))
    assert scene.violation.startswith("I23")


def test_renewing_a_lease_is_not_counted_as_a_write(scene: Scene) -> None:
    scene.put(HUB, NAMESPACE, "x", namespace="")
    scene.put(HUB, LEASE, "leader")
    assert scene.state.writes == 1


# --- settled worlds

IDENTITY = {labels.UPSTREAM_CLUSTER: "cluster-alpha", labels.UPSTREAM_NAMESPACE: "default"}
COUNTS = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "currentReplicas",
    "desiredReplicas",
)


def expected(**changes: Any) -> ExpectedState:
    defaults = {
        "desired": {("alpha", "web"): DesiredWorkload("web:1", 1, ("DFW",))},
        "lost": frozenset(),
    }
    return ExpectedState(**{**defaults, "projects": ("alpha",), "cells": ("dfw",), **changes})


@pytest.fixture
def settled(scene: Scene) -> Scene:
    """A settled world: one workload with one instance, consistent on all planes."""
    scene.run_machine("web-0", "uid-web-0")
    scene.put(CELL, SERVER, "web-0")
    status = {**dict.fromkeys(COUNTS, 1), **with_condition("Available"), "observedGeneration": 1}
    scene.put(ALPHA, WORKLOAD, "web", namespace="default", status=status)
    scene.put(ALPHA, NAMESPACE, "default", namespace="", metadata={"uid": "1"})
    for plane, namespace in ((CELL, HOME), (HUB, HOME), (ALPHA, "default")):
        scene.put(
            plane,
            INSTANCE,
            "web-0",
            namespace=namespace,
            spec=instance_spec(),
            status=with_condition("Ready"),
            metadata={"labels": {labels.CITY_CODE: "DFW", **IDENTITY}},
        )
    scene.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready"))
    scene.put(PLATFORM, PROJECT, "alpha", namespace="")
    access = {"serviceRef": {"name": "compute"}, "consumerProjectRef": {"name": "alpha"}}
    scene.put(PLATFORM, CONSUMER, "sc-1", namespace="", spec=access, status={"phase": "Active"})
    assert find_missing(scene.state, expected()) == ""
    return scene


def _report_counts(scene: Scene, count: int) -> None:
    status = dict.fromkeys(COUNTS, count)
    scene.put(ALPHA, WORKLOAD, "web", namespace="default", status=status)


def _report_cluster_as_not_ready(scene: Scene) -> None:
    scene.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready", "False"))


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (lambda scene: scene.run_machine("web-0", "uid-web-0", "web:2"), "machines run"),
        (lambda scene: scene.run_machine("web-1", "uid-web-1"), "machines run"),
        (lambda scene: scene.drop(CELL, SERVER, "web-0"), "has no server"),
        (lambda scene: _report_counts(scene, 0), "it reports"),
        (lambda scene: _report_counts(scene, 1), "older generation"),
        (lambda scene: scene.put(HUB, INSTANCE, "web-1", spec=instance_spec()), "the hub shows"),
        (lambda scene: scene.drop(ALPHA, INSTANCE, "web-0", "default"), "projects show"),
        (_report_cluster_as_not_ready, "wrong Ready condition of dfw"),
    ],
    ids=[
        *("machine with the wrong image", "surplus machine", "i3: machine without a server"),
        *("wrong counts", "older generation", "surplus copy", "missing copy"),
        "reachable cell shown as not ready",
    ],
)
def test_i6_an_inconsistent_world_is_not_settled(
    settled: Scene, change: Callable[[Scene], None], violation: str
) -> None:
    change(settled)
    assert violation in find_missing(settled.state, expected())


@pytest.mark.parametrize(
    ("at", "is_settled"), [("t1", True), ("t0", False)], ids=["last restart", "earlier restart"]
)
def test_i6_the_instances_of_a_restarted_city_have_its_last_restart(
    settled: Scene, at: str, is_settled: bool
) -> None:
    restarted = DesiredWorkload("web:1", 1, ("DFW",), restarts=(("DFW", "t1"),))
    own = {labels.CITY_CODE: "DFW", labels.WORKLOAD_NAME: "web", **IDENTITY}
    metadata = {"labels": own, "annotations": {labels.CITY_RESTARTED_AT: at}}
    status = with_condition("Ready")
    settled.put(CELL, INSTANCE, "web-0", spec=instance_spec(), status=status, metadata=metadata)
    missing = find_missing(settled.state, expected(desired={("alpha", "web"): restarted}))
    assert ("was restarted at" not in missing) == is_settled


def test_i22_a_workload_that_is_not_ready_needs_a_reason(settled: Scene) -> None:
    lost = expected(lost=frozenset({"dfw"}))
    silent = {"desiredReplicas": 1}
    settled.put(ALPHA, WORKLOAD, "web", namespace="default", status=silent)
    assert "has no reason" in find_missing(settled.state, lost)
    settled.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready", "False"))
    reported = {**silent, **with_condition("Available", "False")}
    settled.put(ALPHA, WORKLOAD, "web", namespace="default", status=reported)
    assert "has no reason" not in find_missing(settled.state, lost)


def test_i7_an_instance_shown_as_ready_on_a_lost_cell(settled: Scene) -> None:
    lost = expected(lost=frozenset({"dfw"}))
    settled.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready", "False"))
    reported = {"desiredReplicas": 1, **with_condition("Available", "Unknown")}
    settled.put(ALPHA, WORKLOAD, "web", namespace="default", status=reported)
    assert "its cell is lost" in find_missing(settled.state, lost)
    city = {"labels": {labels.CITY_CODE: "DFW"}}
    settled.put(
        ALPHA,
        INSTANCE,
        "web-0",
        namespace="default",
        metadata=city,
        spec=instance_spec(),
        status=with_condition("Ready", "Unknown"),
    )
    assert find_missing(settled.state, lost) == ""


def test_i5_leftovers_of_a_deleted_workload(scene: Scene) -> None:
    scene.put(HUB, WORK, "one", spec={"name": "web-default"})
    assert "works.work.karmada.io" in find_leftovers(scene.state, expected(desired={}))
    scene.drop(HUB, WORK, "one")
    assert find_leftovers(scene.state, expected(desired={})) == ""
    scene.run_machine("web-0", "a")
    assert "web-0" in find_leftovers(scene.state, expected(desired={}))


def test_i21_the_summary_omits_versions_and_contains_conditions(settled: Scene) -> None:
    before = summarize_state(settled.state, expected())
    settled.put(HUB, CLUSTER, "dfw", namespace="", status=with_condition("Ready"))
    assert summarize_state(settled.state, expected()) == before
    settled.put(
        ALPHA, WORKLOAD, "web", namespace="default", status=with_condition("Available", "False")
    )
    assert summarize_state(settled.state, expected()) != before


def test_i6_an_orphan_copy_must_be_quarantined(settled: Scene) -> None:
    settled.put(HUB, INSTANCE, "stray", spec=instance_spec())
    assert "stray has no source" in i6_orphan_copies_are_quarantined(settled.state, expected())
    marked = {"annotations": {labels.QUARANTINE_FINGERPRINT: "seen"}}
    settled.put(HUB, INSTANCE, "stray", spec=instance_spec(), metadata=marked)
    assert i6_orphan_copies_are_quarantined(settled.state, expected()) == ""
