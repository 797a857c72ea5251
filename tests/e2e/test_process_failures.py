"""Processes that are killed or suspended: no state is lost, and unknown state is not reported."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CENTER,
    CLUSTERS,
    DEPLOYMENTS,
    INSTANCES,
    NAMESPACE,
    SERVERS,
    WORKS,
    Api,
    Object,
    Processes,
    condition,
    objects_of,
    workload,
)
from tests.e2e.topologies import Topology

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def available(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{NAMESPACE}/workloads/{name}"), "Available")


def is_settled(project: Api, name: str, instances: int) -> bool:
    shown = objects_of(project, INSTANCES, name)
    ready = [condition(i, "Ready")[0] for i in shown]
    return available(project, name)[0] == "True" and ready == ["True"] * instances


def wait_until_removed(topology: Topology, name: str) -> None:
    """With our propagator a confirmed deletion is complete; Karmada confirms its acceptance."""
    cell = topology.api("cell/dfw", manager=True)
    if topology.propagator == "karmada":
        eventually(lambda: not objects_of(cell, SERVERS, name), "it is gone", topology.timeout_s)
    assert objects_of(cell, SERVERS, name) == []


# Conditions after which the process is killed.
STEPS: dict[str, Callable[[Topology, Api, str], bool]] = {
    "immediately": lambda _topology, _project, _name: True,
    "when it is on the hub": lambda topology, _project, name: bool(
        objects_of(topology.api("hub", manager=True), DEPLOYMENTS, name)
    ),
    "when it is available": lambda _topology, project, name: available(project, name)[0] == "True",
}


@pytest.mark.parametrize("victim", [CENTER, "dfw"])
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_process_continues_after_its_restart(
    topology: Topology, project: Api, victim: str, step: str
) -> None:
    name = f"killed-{list(STEPS).index(step)}-{victim}"
    project.create(f"{NAMESPACE}/workloads", workload(name, "DFW", "ORD", replicas=2))
    eventually(lambda: STEPS[step](topology, project, name), step)
    topology.kill(victim)
    topology.up()
    eventually(
        lambda: is_settled(project, name, 4), "all four instances are ready", topology.timeout_s
    )
    for cell in ("dfw", "ord"):
        servers = objects_of(topology.api(f"cell/{cell}", manager=True), SERVERS, name)
        assert len(servers) == 2, "no instance was created twice"


def test_a_cell_killed_during_a_deletion_completes_it(topology: Topology, project: Api) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("removed", "DFW", replicas=2))
    eventually(lambda: is_settled(project, "removed", 2), "it is ready", topology.timeout_s)
    project.delete(f"{NAMESPACE}/workloads/removed")
    topology.kill("dfw")
    topology.up()
    hub = topology.api("hub", manager=True)
    eventually(
        lambda: not objects_of(hub, WORKS, "removed"),
        "the cell has confirmed the deletion",
        topology.timeout_s,
    )
    wait_until_removed(topology, "removed")


def doctor_results(topology: Topology) -> dict[str, Object]:
    """Return the results of ``doctor`` by the name of the check."""
    found = topology.run("doctor", "-o", "json")
    return {item["check"]: item for item in json.loads(found.stdout)["items"]}


def test_an_unresponsive_cell_makes_only_its_city_unknown(topology: Topology, project: Api) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("silent", "DFW"))
    eventually(lambda: is_settled(project, "silent", 1), "it is ready", topology.timeout_s)
    topology.pause("dfw")
    if isinstance(topology, Processes):  # elsewhere simulated machines have no driver to query
        verdict = doctor_results(topology)["workload silent"]
        assert verdict["state"] != "ok", "also before the cell is reported as unreachable"
        assert "dfw" in verdict["text"]
        assert verdict["asOf"] != ""
    eventually(
        lambda: available(project, "silent") == ("Unknown", "CellUnreachable"),
        "the workload is unknown",
        topology.timeout_s,
    )
    (instance,) = objects_of(project, INSTANCES, "silent")
    eventually(
        lambda: condition(objects_of(project, INSTANCES, "silent")[0], "Ready")[0] == "Unknown",
        "its instance is unknown",
    )
    project.create(f"{NAMESPACE}/workloads", workload("other", "ORD"))
    eventually(lambda: is_settled(project, "other", 1), "another city is not delayed", 15)
    topology.resume("dfw")
    eventually(lambda: is_settled(project, "silent", 1), "it recovers", topology.timeout_s)
    (after,) = objects_of(project, INSTANCES, "silent")
    assert after["metadata"]["uid"] == instance["metadata"]["uid"]


def test_a_deletion_does_not_wait_for_a_dead_cell_which_catches_up_later(
    topology: Topology, project: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("orphan", "DFW"))
    eventually(lambda: is_settled(project, "orphan", 1), "it is ready", topology.timeout_s)
    hub = topology.api("hub", manager=True)
    topology.kill("dfw")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "False",
        "the cell is not Ready",
        topology.timeout_s,
    )
    destroyed = topology.run("destroy", "orphan", "-y")
    assert destroyed.returncode == 0, destroyed.stderr
    assert "Not confirmed: cell dfw is unreachable" in destroyed.stderr, (
        "the missing confirmation is reported"
    )
    assert objects_of(project, DEPLOYMENTS, "orphan") == []
    assert objects_of(hub, DEPLOYMENTS, "orphan") == []
    assert objects_of(hub, WORKS, "orphan"), "the tombstone stays until the cell confirms"
    topology.up()
    eventually(
        lambda: not objects_of(hub, WORKS, "orphan"),
        "the cell has confirmed the deletion",
        topology.timeout_s,
    )
    wait_until_removed(topology, "orphan")


def test_a_cell_restarts_and_runs_without_its_hub(topology: Topology, project: Api) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("alone", "DFW"))
    eventually(lambda: is_settled(project, "alone", 1), "it is ready", topology.timeout_s)
    cell = topology.api("cell/dfw", manager=True)
    (before,) = objects_of(cell, SERVERS, "alone")
    topology.kill(CENTER)
    topology.kill("dfw")
    topology.start("dfw")
    (during,) = objects_of(cell, SERVERS, "alone")
    assert during["status"]["phase"] == "Running"
    topology.up()
    eventually(
        lambda: is_settled(project, "alone", 1),
        "the project shows it as available",
        topology.timeout_s,
    )
    (after,) = objects_of(cell, SERVERS, "alone")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_rollout_completes_after_the_center_was_suspended(
    topology: Topology, project: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("rolled", "DFW", replicas=2))
    eventually(lambda: is_settled(project, "rolled", 2), "it is ready", topology.timeout_s)
    newer = workload("rolled", "DFW", replicas=2, image="x.example/web:2")["spec"]
    project.patch(f"{NAMESPACE}/workloads/rolled", {"spec": newer})
    topology.pause(CENTER)
    cell = topology.api("cell/dfw", manager=True)
    assert len(objects_of(cell, SERVERS, "rolled")) <= 2
    topology.resume(CENTER)

    def is_rolled() -> bool:
        images = [s["spec"]["containers"][0]["image"] for s in objects_of(cell, SERVERS, "rolled")]
        return images == ["x.example/web:2"] * 2 and is_settled(project, "rolled", 2)

    eventually(is_rolled, "all machines run the new image", 2 * topology.timeout_s)
