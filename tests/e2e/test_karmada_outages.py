"""Each real component of a federation with Karmada dies in the middle of a rollout; and hub and
Karmada are gone for a while, in which a cell goes on by itself (``make test-karmada OUTAGE_S=120``
for two minutes of it)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from testkit.processes.local_platform import eventually
from testkit.processes.programs import kill
from tests.e2e.processes import (
    COMPUTE,
    INSTANCES,
    SERVERS,
    SPACE,
    Api,
    condition,
    empty_project,
    workload,
)
from tests.e2e.topologies import CENTRE
from tests.karmada.hub import PARTS
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.karmada]

OLD, NEW = "x.example/web:1", "x.example/web:2"
DOZING = "dozing.example/web:1"  # falls asleep and wakes, in turn
ROLLED_S = 240  # generous: components restart one after another on a busy machine
OUTAGE_S = float(os.environ.get("OUTAGE_S", "30"))


@pytest.fixture
def project(karmada_topology: KubernetesTopology) -> Iterator[Api]:
    yield from empty_project(karmada_topology)


def kill_manager(topology: KubernetesTopology, part: str) -> None:
    kill(topology.managers.pop(part))


def kill_plane(topology: KubernetesTopology, plane: str) -> None:
    """Its kube-apiserver, and the controllers of Kubernetes beside it."""
    topology.servers.planes[plane].running.kill()


def kill_controllers(topology: KubernetesTopology, plane: str) -> None:
    """Its kube-controller-manager alone; somebody starts it again."""
    topology.servers.planes[plane].restart_controllers()


Kill = Callable[[KubernetesTopology], None]
VICTIMS: dict[str, Kill] = {
    **{part: lambda t, part=part: t.karmadas[0].kill(part) for part in PARTS},  # type: ignore[misc]
    "etcd": lambda t: t.servers.restart_etcd(),
    "the controllers of Kubernetes on the hub": lambda t: kill_controllers(t, "hub"),
    "the controllers of Kubernetes on the cell": lambda t: kill_controllers(t, "cell/dfw"),
    "the API server of the hub": lambda t: kill_plane(t, "hub"),
    "the API server of the cell": lambda t: kill_plane(t, "cell/dfw"),
    "our manager beside the hub": lambda t: kill_manager(t, CENTRE),
    "our manager beside the cell": lambda t: kill_manager(t, "dfw"),
}


def images(topology: KubernetesTopology, name: str) -> list[str]:
    """Of the machines of the cell that run."""
    return sorted(
        server["spec"]["containers"][0]["image"]
        for server in topology.api("cell/dfw").items(SERVERS)
        if server["metadata"]["name"].startswith(f"{name}-")
        and server.get("status", {}).get("phase") == "Running"
    )


def is_shown(project: Api, name: str, replicas: int, generation: int) -> bool:
    """What the user sees: all of them ready and up to date, said of this generation."""
    found = project.find(f"{SPACE}/workloads/{name}") or {}
    status = found.get("status", {})
    counts = (status.get("readyReplicas"), status.get("updatedReplicas"))
    observed = status.get("observedGeneration")
    return counts == (replicas, replicas) and observed == generation


def phase_of(cell: Api, name: str) -> str:
    found = [s for s in cell.items(SERVERS) if s["metadata"]["name"].startswith(f"{name}-")]
    return "".join(server.get("status", {}).get("phase", "") for server in found)


def ready_as(cell: Api, name: str) -> str:
    """Why the instance is ready; it is, asleep or not."""
    found = [i for i in cell.items(INSTANCES) if i["metadata"]["name"].startswith(f"{name}-")]
    said = [condition(instance, "Available") for instance in found]
    return "".join(reason for status, reason in said if status == "True")


def deploy(project: Api, name: str, replicas: int, image: str = OLD) -> None:
    body = workload(name, "DFW", replicas=replicas, image=image)
    project.create(f"{SPACE}/workloads", body)
    eventually(lambda: is_shown(project, name, replicas, 1), f"{name} serves", ROLLED_S)


def change_image(project: Api, name: str, replicas: int) -> None:
    spec = workload(name, "DFW", replicas=replicas, image=NEW)["spec"]
    project.patch(f"{SPACE}/workloads/{name}", {"spec": spec})


@pytest.mark.timeout(3 * ROLLED_S)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_rollout_comes_to_its_end_whichever_component_is_killed_in_it(
    karmada_topology: KubernetesTopology, project: Api, victim: str
) -> None:
    name = f"roll-{list(VICTIMS).index(victim)}"
    deploy(project, name, 3)
    change_image(project, name, 3)
    VICTIMS[victim](karmada_topology)
    karmada_topology.up()
    eventually(
        lambda: images(karmada_topology, name) == [NEW] * 3, "all are rolled", within_s=ROLLED_S
    )
    eventually(lambda: is_shown(project, name, 3, 2), "and the user sees it", within_s=ROLLED_S)


@pytest.mark.timeout(OUTAGE_S + 3 * ROLLED_S)
def test_a_cell_rolls_heals_sleeps_and_wakes_by_itself_while_hub_and_karmada_are_gone(
    karmada_topology: KubernetesTopology, project: Api
) -> None:
    deploy(project, "alone", 4)
    deploy(project, "dozer", 1, image=DOZING)
    cell = karmada_topology.api("cell/dfw")
    change_image(project, "alone", 4)
    eventually(lambda: NEW in str(cell.items(INSTANCES)), "the cell has heard of the new image")
    karmada_topology.kill(CENTRE)
    back_s = time.monotonic() + OUTAGE_S
    eventually(
        lambda: images(karmada_topology, "alone") == [NEW] * 4, "it rolls by itself", ROLLED_S
    )
    before = {i["metadata"]["uid"] for i in cell.items(INSTANCES)}
    lost = next(i for i in cell.items(INSTANCES) if i["metadata"]["name"].startswith("alone-"))
    space, broken = lost["metadata"]["namespace"], lost["metadata"]["name"]
    cell.delete(f"{COMPUTE}/namespaces/{space}/instances/{broken}")

    def is_healed() -> bool:
        found = cell.find(f"{COMPUTE}/namespaces/{space}/instances/{broken}")
        is_new = found is not None and found["metadata"]["uid"] not in before
        return is_new and condition(found, "Ready")[0] == "True"

    eventually(is_healed, "it heals by itself", ROLLED_S)
    for phase in ("Sleeping", "Running", "Sleeping"):
        eventually(lambda: phase_of(cell, "dozer") == phase, f"a machine is {phase}", ROLLED_S)  # noqa: B023
        reason = "Asleep" if phase == "Sleeping" else "Available"
        eventually(lambda: ready_as(cell, "dozer") == reason, f"and {reason} is said", ROLLED_S)  # noqa: B023
    eventually(lambda: time.monotonic() >= back_s, "the outage is over", OUTAGE_S)
    assert images(karmada_topology, "alone") == [NEW] * 4
    assert phase_of(cell, "dozer") in ("Sleeping", "Running")
    karmada_topology.up()
    eventually(lambda: is_shown(project, "dozer", 1, 1), "it was never lost", ROLLED_S)
    eventually(lambda: is_shown(project, "alone", 4, 2), "the user sees it", ROLLED_S)

    def is_known() -> bool:
        copies = karmada_topology.api("hub").items(INSTANCES)
        return [c["metadata"]["name"] for c in copies].count(broken) == 1

    eventually(is_known, "the hub has one copy of what was healed", ROLLED_S)
