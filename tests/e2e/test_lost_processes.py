"""Processes that die or fall silent at the worst moment: nothing is lost, nothing is claimed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CLUSTERS,
    DEPLOYMENTS,
    INSTANCES,
    SERVERS,
    SPACE,
    WORKS,
    Api,
    condition,
    named,
    workload,
)
from tests.e2e.topologies import CENTRE, Topology

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def available(project: Api, name: str) -> tuple[str, str]:
    return condition(project.find(f"{SPACE}/workloads/{name}"), "Available")


def settled(project: Api, name: str, instances: int) -> bool:
    shown = named(project, INSTANCES, name)
    ready = [condition(i, "Ready")[0] for i in shown]
    return available(project, name)[0] == "True" and ready == ["True"] * instances


def until_empty(topology: Topology, name: str) -> None:
    """Confirmed is gone with our propagator; with Karmada the cell has only taken note of it."""
    cell = topology.api("cell/dfw", manager=True)
    if topology.propagator == "karmada":
        eventually(lambda: not named(cell, SERVERS, name), "it is gone", topology.patience_s)
    assert named(cell, SERVERS, name) == []


# Whatever has happened by then, the process dies at this moment.
STEPS: dict[str, Callable[[Topology, Api, str], bool]] = {
    "at once": lambda _topology, _project, _name: True,
    "when the hub knows it": lambda topology, _project, name: bool(
        named(topology.api("hub", manager=True), DEPLOYMENTS, name)
    ),
    "when it serves": lambda _topology, project, name: available(project, name)[0] == "True",
}


@pytest.mark.parametrize("victim", [CENTRE, "dfw"])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_goes_on_where_it_was(
    topology: Topology, project: Api, victim: str, step: str
) -> None:
    name = f"killed-{list(STEPS).index(step)}-{victim}"
    project.create(f"{SPACE}/workloads", workload(name, "DFW", "ORD", replicas=2))
    eventually(lambda: STEPS[step](topology, project, name), step)
    topology.kill(victim)
    topology.up()
    eventually(lambda: settled(project, name, 4), "all four instances serve", topology.patience_s)
    for cell in ("dfw", "ord"):
        servers = named(topology.api(f"cell/{cell}", manager=True), SERVERS, name)
        assert len(servers) == 2, "none was made twice"


def test_a_cell_that_was_killed_while_it_removed_something_finishes(
    topology: Topology, project: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("removed", "DFW", replicas=2))
    eventually(lambda: settled(project, "removed", 2), "it serves", topology.patience_s)
    project.delete(f"{SPACE}/workloads/removed")
    topology.kill("dfw")
    topology.up()
    hub = topology.api("hub", manager=True)
    eventually(
        lambda: not named(hub, WORKS, "removed"), "the cell has confirmed", topology.patience_s
    )
    until_empty(topology, "removed")


def test_a_silent_cell_makes_its_city_unknown_and_no_other(
    topology: Topology, project: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("silent", "DFW"))
    eventually(lambda: settled(project, "silent", 1), "it serves", topology.patience_s)
    topology.pause("dfw")
    eventually(
        lambda: available(project, "silent") == ("Unknown", "CellUnreachable"),
        "nobody claims to know",
        topology.patience_s,
    )
    (instance,) = named(project, INSTANCES, "silent")
    eventually(
        lambda: condition(named(project, INSTANCES, "silent")[0], "Ready")[0] == "Unknown",
        "nor of its instance",
    )
    project.create(f"{SPACE}/workloads", workload("other", "ORD"))
    eventually(lambda: settled(project, "other", 1), "another city is not held up", 15)
    topology.resume("dfw")
    eventually(lambda: settled(project, "silent", 1), "it recovers", topology.patience_s)
    (after,) = named(project, INSTANCES, "silent")
    assert after["metadata"]["uid"] == instance["metadata"]["uid"]


def test_a_deletion_does_not_wait_for_a_dead_cell_and_is_made_good_later(
    topology: Topology, project: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("orphan", "DFW"))
    eventually(lambda: settled(project, "orphan", 1), "it serves", topology.patience_s)
    hub = topology.api("hub", manager=True)
    topology.kill("dfw")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "False",
        "the cell is missed",
        topology.patience_s,
    )
    destroyed = topology.run("destroy", "orphan", "-y")
    assert destroyed.returncode == 0, destroyed.stderr
    assert "Not confirmed: dfw does not answer" in destroyed.stderr, "and it says so"
    assert named(project, DEPLOYMENTS, "orphan") == []
    assert named(hub, DEPLOYMENTS, "orphan") == []
    assert named(hub, WORKS, "orphan"), "the tombstone says that nobody has confirmed"
    topology.up()
    eventually(
        lambda: not named(hub, WORKS, "orphan"), "the cell has confirmed", topology.patience_s
    )
    until_empty(topology, "orphan")


def test_a_cell_runs_on_and_restarts_without_its_hub(topology: Topology, project: Api) -> None:
    project.create(f"{SPACE}/workloads", workload("alone", "DFW"))
    eventually(lambda: settled(project, "alone", 1), "it serves", topology.patience_s)
    cell = topology.api("cell/dfw", manager=True)
    (before,) = named(cell, SERVERS, "alone")
    topology.kill(CENTRE)
    topology.kill("dfw")
    topology.start("dfw")
    (during,) = named(cell, SERVERS, "alone")
    assert during["status"]["phase"] == "Running"
    topology.up()
    eventually(lambda: settled(project, "alone", 1), "the project sees it", topology.patience_s)
    (after,) = named(cell, SERVERS, "alone")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_hub_that_falls_silent_in_a_rollout_loses_nothing(
    topology: Topology, project: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("rolled", "DFW", replicas=2))
    eventually(lambda: settled(project, "rolled", 2), "it serves", topology.patience_s)
    newer = workload("rolled", "DFW", replicas=2, image="x.example/web:2")["spec"]
    project.patch(f"{SPACE}/workloads/rolled", {"spec": newer})
    topology.pause(CENTRE)
    cell = topology.api("cell/dfw", manager=True)
    assert len(named(cell, SERVERS, "rolled")) <= 2
    topology.resume(CENTRE)

    def is_rolled() -> bool:
        images = [s["spec"]["containers"][0]["image"] for s in named(cell, SERVERS, "rolled")]
        return images == ["x.example/web:2"] * 2 and settled(project, "rolled", 2)

    eventually(is_rolled, "the new template is everywhere", 2 * topology.patience_s)
