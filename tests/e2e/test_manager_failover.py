"""A standby manager takes over when the leader is killed during a rollout."""

from __future__ import annotations

import pytest

from testkit.processes.local_platform import eventually
from testkit.processes.programs import stop
from tests.e2e.processes import CENTER, NAMESPACE, Api, workload
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
# The lease of a killed leader has to expire.
TIMEOUT_S = 60


def lease_holder(api: Api, name: str) -> str:
    found = api.find(f"{LEASES}/{name}") or {}
    return str(found.get("spec", {}).get("holderIdentity") or "")


def updated_replicas(project: Api) -> int:
    status = (project.find(f"{NAMESPACE}/workloads/passed-on") or {}).get("status", {})
    ready, new = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    return min(int(ready), int(new))


def test_a_standby_manager_completes_the_rollout_of_a_killed_leader(
    kubernetes_topology: KubernetesTopology,
) -> None:
    topology = kubernetes_topology
    hub, cell = topology.api("hub"), topology.api("cell/dfw")
    project = topology.api("project/default")
    for part in (CENTER, "dfw"):
        assert stop(topology.managers.pop(part)) == 0
    first, leading_cell = topology.manager(CENTER), topology.manager("dfw")
    start_process = [first, leading_cell]
    lease = "compute-manager-management"
    try:
        eventually(lambda: bool(lease_holder(hub, lease)), "the first leads", TIMEOUT_S)
        second, leader = topology.manager(CENTER), lease_holder(hub, lease)
        start_process.append(second)
        project.create(f"{NAMESPACE}/workloads", workload("passed-on", "DFW", replicas=3))
        eventually(lambda: updated_replicas(project) == 3, "three replicas are ready", TIMEOUT_S)
        assert lease_holder(cell, "compute-manager-cell")
        newer = workload("passed-on", "DFW", replicas=3, image="x.example/web:2")["spec"]
        project.patch(f"{NAMESPACE}/workloads/passed-on", {"spec": newer})
        first.kill()
        first.wait()
        eventually(
            lambda: lease_holder(hub, lease) not in ("", leader), "the second leads", TIMEOUT_S
        )
        eventually(lambda: updated_replicas(project) == 3, "the rollout is done", TIMEOUT_S)
        project.delete(f"{NAMESPACE}/workloads/passed-on")
        eventually(
            lambda: not project.names(f"{NAMESPACE}/workloads"),
            "the workload is deleted",
            TIMEOUT_S,
        )
        assert (stop(second), stop(leading_cell)) == (0, 0)
        assert lease_holder(hub, lease) == "", "a stopped leader releases its lease"
    finally:
        for process in start_process:
            stop(process)
        topology.up()
