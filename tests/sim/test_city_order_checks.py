"""Checks of the order in which cities get a template (I30, I31)."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.kinds import DEPLOYMENT, REVISION, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, encode, to_json
from datum_compute.planning.workload.templates import template_hash
from datum_compute.store.journal import Change, ObjectKey
from testkit.builders import a_template
from testkit.sim.checks.city_order import CityOrderWatch
from testkit.sim.checks.state import ClusterState

PROJECT = "project/alpha"
CITIES = ("DFW", "LHR")
COMPLETE = {"type": "Progressing", "status": "True", "reason": "RolloutComplete"}


class World:
    """Rows that the test commits, and the violations of the check."""

    def __init__(self, **rollout: str) -> None:
        self.now = 100.0
        self.state = ClusterState({}, lambda: self.now)
        self.watch = CityOrderWatch()
        self.version = 0
        self.policy = rollout
        self.set_workload("web:1")
        for city in CITIES:
            self.set_deployment(city, "web:1")
            self.complete(city, "web:1")

    def commit(self, plane: str, resource: str, name: str, row: JsonObject) -> str:
        self.version += 1
        namespace = "default"
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(self.version)}
        row["metadata"] = {**metadata, "generation": 1, **row.get("metadata", {})}
        key = ObjectKey(resource, namespace, name)
        entry = Change(plane, self.version, key, encode(row))
        (change,) = self.state.apply([entry])
        return self.watch.violation(self.state, change)

    def set_workload(self, image: str, **status: Any) -> None:
        placement = {"name": "main", "cityCodes": CITIES, "scaleSettings": {"minReplicas": 1}}
        spec = {
            "template": to_json(a_template(image)),
            "placements": [placement],
            "rollout": self.policy,
        }
        row: JsonObject = {"metadata": {"uid": "u"}, "spec": spec, "status": status}
        self.commit(PROJECT, WORKLOAD.resource, "web", row)

    def set_deployment(self, city: str, image: str, **status: Any) -> str:
        row = a_deployment(city, image)
        return self.commit(PROJECT, DEPLOYMENT.resource, f"web-{city}", {**row, "status": status})

    def complete(self, city: str, image: str) -> None:
        row = a_deployment(city, image)
        row["status"] = {"conditions": [{**COMPLETE, "observedGeneration": 1}]}
        self.commit(f"cell/{city.lower()}", DEPLOYMENT.resource, f"web-{city}", row)


def a_deployment(city: str, image: str) -> JsonObject:
    spec = {
        "workloadRef": {"name": "web", "uid": "u"},
        "placementName": "main",
        "cityCode": city,
        "template": to_json(a_template(image)),
        "scaleSettings": {"minReplicas": 1},
    }
    return {"metadata": {"uid": f"uid-{city}"}, "spec": spec}


def test_a_template_in_the_second_city_is_a_violation_before_the_first_has_completed_it() -> None:
    world = World()
    waiting = {"placement": "main", "city": "LHR", "state": "Waiting"}
    world.set_workload("web:2", rollout={"cities": [waiting]})
    assert world.set_deployment("DFW", "web:2") == ""
    assert "I30" in world.set_deployment("LHR", "web:2")


def test_a_template_in_the_second_city_is_correct_after_the_first_has_completed_it() -> None:
    world = World()
    world.set_workload("web:2")
    world.set_deployment("DFW", "web:2")
    world.complete("DFW", "web:2")
    assert world.set_deployment("LHR", "web:2") == ""


def test_all_cities_may_change_at_once_when_the_order_is_parallel() -> None:
    world = World(cityOrder="Parallel")
    world.set_workload("web:2")
    assert world.set_deployment("LHR", "web:2") == ""


def test_a_skipped_city_does_not_count() -> None:
    world = World()
    world.set_workload("web:2")
    gone = {"type": "Available", "status": "Unknown", "reason": "CellUnreachable"}
    world.set_deployment("DFW", "web:1", conditions=[gone])
    world.now += 60.0
    assert world.set_deployment("LHR", "web:2") == ""
    world = World()
    world.set_workload("web:2")
    world.set_deployment("DFW", "web:1", conditions=[gone])
    world.set_deployment("DFW", "web:1")
    world.now += 60.0
    assert "I30" in world.set_deployment("LHR", "web:2")


@pytest.mark.parametrize(("image", "is_correct"), [("web:1", True), ("web:7", False)])
def test_a_rollback_restores_the_template_of_its_revision(image: str, is_correct: bool) -> None:
    world = World()
    spec = {
        "workloadRef": {"name": "web", "uid": "u"},
        "revision": 1,
        "templateHash": template_hash(a_template("web:1")),
        "template": to_json(a_template("web:1")),
        "placements": [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}],
    }
    world.commit(PROJECT, REVISION.resource, "web-1", {"metadata": {"uid": "r"}, "spec": spec})
    world.set_deployment("DFW", "web:2")
    failed = {"failedTemplateHash": template_hash(a_template("web:2")), "failedRevision": 2}
    world.set_workload("web:2", rollout={**failed, "runningRevision": 1})
    violation = world.set_deployment("DFW", image)
    assert ("I31" not in violation) is is_correct
