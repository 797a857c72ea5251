"""A rollout with surge: a temporary instance serves while the only instance is replaced."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import INSTANCES, NAMESPACE, Api, Object, objects_of, workload
from tests.e2e.topologies import Topology, cell

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAME = "surged"
CITIES = ("dfw", "ord")
# Long enough that samples catch the surge instance.
MIN_READY_S = 5


def a_workload(image: str) -> Object:
    """One replica in each of two cities, which are updated one after the other."""
    body = workload(NAME, "DFW", "ORD", image=image)
    (placement,) = body["spec"]["placements"]
    placement["scaleSettings"]["minReadySeconds"] = MIN_READY_S
    return body


def is_true(obj: Object, type_: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)


@dataclass
class Samples:
    """What a client observes of a workload and of its instances in the cells."""

    topology: Topology
    project: Api
    surge_replicas: list[int] = field(default_factory=list)
    # Cities in which a surge instance was ready, in this order.
    surge_cities: list[str] = field(default_factory=list)
    # Cities in which a sample found no ready instance.
    interrupted: set[str] = field(default_factory=set)

    def take(self) -> Object:
        """Take a sample. Return the status of the workload."""
        for city in CITIES:
            ready = [
                i["metadata"]["name"]
                for i in objects_of(cell(self.topology, city), INSTANCES, NAME)
                if is_true(i, "Ready")
            ]
            if not ready:
                self.interrupted.add(city)
            if any(name.endswith("-1") for name in ready) and city not in self.surge_cities:
                self.surge_cities.append(city)
        found = self.project.find(f"{NAMESPACE}/workloads/{NAME}") or {}
        status: Object = found["status"]
        assert is_true(found, "Available")
        self.surge_replicas.append(status["surgeReplicas"])
        is_current = status["observedGeneration"] == found["metadata"]["generation"]
        return status if is_current else {}

    def is_rolled_out(self) -> bool:
        cities = self.take().get("rollout", {}).get("cities", ())
        return bool(self.surge_cities) and [c["state"] for c in cities] == ["Done", "Done"]


def test_a_surge_instance_serves_while_the_only_instance_is_replaced(
    topology: Topology, project: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", a_workload("x.example/web:1"))
    samples = Samples(topology, project)

    def is_started() -> bool:
        found = project.find(f"{NAMESPACE}/workloads/{NAME}") or {}
        available: int = found.get("status", {}).get("availableReplicas", 0)
        return available == len(CITIES)

    eventually(is_started, "both cities serve", 60)
    before = instances_of(topology)
    project.patch(f"{NAMESPACE}/workloads/{NAME}", {"spec": a_workload("x.example/web:2")["spec"]})
    eventually(samples.is_rolled_out, "both cities are updated", 120)
    assert samples.interrupted == set()
    assert samples.surge_cities == ["dfw", "ord"]
    assert set(samples.surge_replicas) == {0, 1}, "the cities follow each other"
    after = instances_of(topology)
    assert after.keys() == before.keys(), "the surge instances are gone"
    assert not set(after.values()) & set(before.values()), "all instances are replaced"


def instances_of(topology: Topology) -> dict[str, str]:
    """Return the uids of the instances in the cells, by name."""
    return {
        i["metadata"]["name"]: i["metadata"]["uid"]
        for city in CITIES
        for i in objects_of(cell(topology, city), INSTANCES, NAME)
    }
