"""Managers that stand by: when the one that leads dies in a rollout, the next one goes on."""

from __future__ import annotations

import pytest

from testkit.processes.local_platform import eventually
from testkit.processes.programs import stop
from tests.e2e.processes import SPACE, Api, workload
from tests.e2e.topologies import CENTRE
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
# A lease of one that died has to run out.
PATIENCE_S = 60


def holder(api: Api, name: str) -> str:
    found = api.find(f"{LEASES}/{name}") or {}
    return str(found.get("spec", {}).get("holderIdentity") or "")


def updated(project: Api) -> int:
    status = (project.find(f"{SPACE}/workloads/passed-on") or {}).get("status", {})
    ready, new = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    return min(int(ready), int(new))


def test_the_next_manager_goes_on_in_the_middle_of_a_rollout(
    kubernetes_topology: KubernetesTopology,
) -> None:
    topology = kubernetes_topology
    hub, cell = topology.api("hub"), topology.api("cell/dfw")
    project = topology.api("project/default")
    for part in (CENTRE, "dfw"):
        assert stop(topology.managers.pop(part)) == 0
    first, leading_cell = topology.manager(CENTRE), topology.manager("dfw")
    started = [first, leading_cell]
    lease = "compute-manager-management"
    try:
        eventually(lambda: bool(holder(hub, lease)), "the first leads", PATIENCE_S)
        second, leader = topology.manager(CENTRE), holder(hub, lease)
        started.append(second)
        project.create(f"{SPACE}/workloads", workload("passed-on", "DFW", replicas=3))
        eventually(lambda: updated(project) == 3, "three serve", PATIENCE_S)
        assert holder(cell, "compute-manager-cell")
        newer = workload("passed-on", "DFW", replicas=3, image="x.example/web:2")["spec"]
        project.patch(f"{SPACE}/workloads/passed-on", {"spec": newer})
        first.kill()
        first.wait()
        eventually(lambda: holder(hub, lease) not in ("", leader), "the second leads", PATIENCE_S)
        eventually(lambda: updated(project) == 3, "the rollout is done", PATIENCE_S)
        project.delete(f"{SPACE}/workloads/passed-on")
        eventually(lambda: not project.names(f"{SPACE}/workloads"), "it is gone", PATIENCE_S)
        assert (stop(second), stop(leading_cell)) == (0, 0)
        assert holder(hub, lease) == "", "whoever stops gives its lease back"
    finally:
        for process in started:
            stop(process)
        topology.up()
