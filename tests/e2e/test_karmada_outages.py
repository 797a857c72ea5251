"""Failures of the components of a federation with Karmada.

Each component is killed during a rollout. A cell works on its own while hub and Karmada are down,
for ``OUTAGE_S`` (``make test-karmada OUTAGE_S=120``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from testkit.processes.karmada import PARTS
from testkit.processes.local_platform import eventually
from testkit.processes.programs import kill
from tests.e2e.processes import (
    CENTER,
    COMPUTE,
    INSTANCES,
    NAMESPACE,
    SERVERS,
    Api,
    condition,
    project_with_cleanup,
    workload,
)
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.karmada]

OLD, NEW = "x.example/web:1", "x.example/web:2"
DOZING = "dozing.example/web:1"  # sleeps and wakes repeatedly
ROLLOUT_TIMEOUT_S = 240  # components restart one after another on a busy machine
OUTAGE_S = float(os.environ.get("OUTAGE_S", "30"))


@pytest.fixture
def project(karmada_topology: KubernetesTopology) -> Iterator[Api]:
    yield from project_with_cleanup(karmada_topology)


def kill_manager(topology: KubernetesTopology, part: str) -> None:
    kill(topology.managers.pop(part))


def kill_plane(topology: KubernetesTopology, plane: str) -> None:
    """Kill a kube-apiserver and its kube-controller-manager."""
    topology.servers.planes[plane].running.kill()


def kill_controllers(topology: KubernetesTopology, plane: str) -> None:
    """Kill and restart the kube-controller-manager of a plane."""
    topology.servers.planes[plane].restart_controllers()


Kill = Callable[[KubernetesTopology], None]
VICTIMS: dict[str, Kill] = {
    **{part: lambda t, part=part: t.karmadas[0].kill(part) for part in PARTS},  # type: ignore[misc]
    "etcd": lambda t: t.servers.restart_etcd(),
    "the controllers of Kubernetes on the hub": lambda t: kill_controllers(t, "hub"),
    "the controllers of Kubernetes on the cell": lambda t: kill_controllers(t, "cell/dfw"),
    "the API server of the hub": lambda t: kill_plane(t, "hub"),
    "the API server of the cell": lambda t: kill_plane(t, "cell/dfw"),
    "our manager beside the hub": lambda t: kill_manager(t, CENTER),
    "our manager beside the cell": lambda t: kill_manager(t, "dfw"),
}


def running_images(topology: KubernetesTopology, name: str) -> list[str]:
    """Return the images of the running machines of the cell."""
    return sorted(
        server["spec"]["containers"][0]["image"]
        for server in topology.api("cell/dfw").items(SERVERS)
        if server["metadata"]["name"].startswith(f"{name}-")
        and server.get("status", {}).get("phase") == "Running"
    )


def is_rolled_out(project: Api, name: str, replicas: int, generation: int) -> bool:
    """Return True if the project shows all replicas ready and updated for this generation."""
    found = project.find(f"{NAMESPACE}/workloads/{name}") or {}
    status = found.get("status", {})
    counts = (status.get("readyReplicas"), status.get("updatedReplicas"))
    observed = status.get("observedGeneration")
    return counts == (replicas, replicas) and observed == generation


def phase_of(cell: Api, name: str) -> str:
    found = [s for s in cell.items(SERVERS) if s["metadata"]["name"].startswith(f"{name}-")]
    return "".join(server.get("status", {}).get("phase", "") for server in found)


def available_reason(cell: Api, name: str) -> str:
    """Return the reason of the Available condition, empty if it is not True."""
    found = [i for i in cell.items(INSTANCES) if i["metadata"]["name"].startswith(f"{name}-")]
    conditions = [condition(instance, "Available") for instance in found]
    return "".join(reason for status, reason in conditions if status == "True")


def deploy(project: Api, name: str, replicas: int, image: str = OLD) -> None:
    body = workload(name, "DFW", replicas=replicas, image=image)
    project.create(f"{NAMESPACE}/workloads", body)
    eventually(
        lambda: is_rolled_out(project, name, replicas, 1), f"{name} is ready", ROLLOUT_TIMEOUT_S
    )


def change_image(project: Api, name: str, replicas: int) -> None:
    spec = workload(name, "DFW", replicas=replicas, image=NEW)["spec"]
    project.patch(f"{NAMESPACE}/workloads/{name}", {"spec": spec})


@pytest.mark.timeout(3 * ROLLOUT_TIMEOUT_S)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_rollout_completes_after_a_component_is_killed(
    karmada_topology: KubernetesTopology, project: Api, victim: str
) -> None:
    name = f"roll-{list(VICTIMS).index(victim)}"
    deploy(project, name, 3)
    change_image(project, name, 3)
    VICTIMS[victim](karmada_topology)
    karmada_topology.up()
    eventually(
        lambda: running_images(karmada_topology, name) == [NEW] * 3,
        "all machines run the new image",
        within_s=ROLLOUT_TIMEOUT_S,
    )
    eventually(
        lambda: is_rolled_out(project, name, 3, 2),
        "the project shows the rollout",
        within_s=ROLLOUT_TIMEOUT_S,
    )


@pytest.mark.timeout(OUTAGE_S + 3 * ROLLOUT_TIMEOUT_S)
def test_a_cell_rolls_out_repairs_sleeps_and_wakes_while_hub_and_karmada_are_down(
    karmada_topology: KubernetesTopology, project: Api
) -> None:
    deploy(project, "alone", 4)
    deploy(project, "dozer", 1, image=DOZING)
    cell = karmada_topology.api("cell/dfw")
    change_image(project, "alone", 4)
    eventually(lambda: NEW in str(cell.items(INSTANCES)), "the cell has the new image")
    karmada_topology.kill(CENTER)
    back_s = time.monotonic() + OUTAGE_S
    eventually(
        lambda: running_images(karmada_topology, "alone") == [NEW] * 4,
        "the rollout completes",
        ROLLOUT_TIMEOUT_S,
    )
    before = {i["metadata"]["uid"] for i in cell.items(INSTANCES)}
    lost = next(i for i in cell.items(INSTANCES) if i["metadata"]["name"].startswith("alone-"))
    space, broken = lost["metadata"]["namespace"], lost["metadata"]["name"]
    cell.delete(f"{COMPUTE}/namespaces/{space}/instances/{broken}")

    def is_healed() -> bool:
        found = cell.find(f"{COMPUTE}/namespaces/{space}/instances/{broken}")
        is_new = found is not None and found["metadata"]["uid"] not in before
        return is_new and condition(found, "Ready")[0] == "True"

    eventually(is_healed, "the deleted instance is replaced", ROLLOUT_TIMEOUT_S)
    for phase in ("Sleeping", "Running", "Sleeping"):
        eventually(
            lambda: phase_of(cell, "dozer") == phase,  # noqa: B023
            f"a machine is {phase}",
            ROLLOUT_TIMEOUT_S,
        )
        reason = "Asleep" if phase == "Sleeping" else "Available"
        eventually(
            lambda: available_reason(cell, "dozer") == reason,  # noqa: B023
            f"its reason is {reason}",
            ROLLOUT_TIMEOUT_S,
        )
    eventually(lambda: time.monotonic() >= back_s, "the outage is over", OUTAGE_S)
    assert running_images(karmada_topology, "alone") == [NEW] * 4
    assert phase_of(cell, "dozer") in ("Sleeping", "Running")
    karmada_topology.up()
    eventually(
        lambda: is_rolled_out(project, "dozer", 1, 1),
        "the dozing workload is available",
        ROLLOUT_TIMEOUT_S,
    )
    eventually(
        lambda: is_rolled_out(project, "alone", 4, 2),
        "the project shows the rollout",
        ROLLOUT_TIMEOUT_S,
    )

    def has_one_copy() -> bool:
        copies = karmada_topology.api("hub").items(INSTANCES)
        return [c["metadata"]["name"] for c in copies].count(broken) == 1

    eventually(has_one_copy, "the hub has one copy of the replaced instance", ROLLOUT_TIMEOUT_S)
