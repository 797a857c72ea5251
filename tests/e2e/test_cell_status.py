"""What cells report to the hub: version, heartbeat and capacity. Requests to instances."""

from __future__ import annotations

import json
import time
import urllib.error
from collections import Counter

import pytest

from datum_compute.api.gateway import GatewayReason, instance_path
from datum_compute.app.heartbeat import is_karmada
from testkit.processes.local_platform import eventually
from tests.e2e.processes import CLUSTERS, COMPUTE, NAMESPACE, Api, Object, workload
from tests.e2e.topologies import Topology
from tests.kubernetes.topology import CAPACITY, HEARTBEAT_S, KubernetesTopology

pytestmark = pytest.mark.e2e

LEASE = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/dfw"


@pytest.fixture
def hub(topology: Topology) -> Api:
    return topology.api("hub", manager=True)


def status_of(hub: Api) -> Object:
    found = hub.find(f"{CLUSTERS}/dfw") or {}
    status: Object = found.get("status", {})
    return status


def test_the_cluster_reports_the_version_of_its_cell(topology: Topology, hub: Api) -> None:
    served = topology.api("cell/dfw", manager=True).request("GET", "/version")["gitVersion"]
    eventually(
        lambda: status_of(hub).get("kubernetesVersion") == served,
        "the version is reported",
        within_s=30,
    )


def test_a_cell_renews_its_lease(topology: Topology, hub: Api) -> None:
    if topology.propagator == "karmada":
        pytest.skip("Karmada probes its members and has no Lease for them")

    def renew_time() -> str:
        return str((hub.find(LEASE) or {}).get("spec", {}).get("renewTime", ""))

    eventually(lambda: renew_time() != "", "the lease exists", within_s=30)
    first = renew_time()
    eventually(lambda: renew_time() > first, "the lease is renewed", within_s=30)


def test_the_cluster_reports_capacity_and_allocated_instances(
    topology: Topology, project: Api, hub: Api
) -> None:
    if topology.propagator == "karmada":
        pytest.skip("Karmada counts nodes and pods of its members, not instances")
    project.create(f"{NAMESPACE}/workloads", workload("counted", "DFW", replicas=3))

    def summary() -> Object:
        found: Object = status_of(hub).get("resourceSummary", {})
        return found

    def allocated_instances() -> int:
        return int(summary().get("allocated", {}).get("instances", "0"))

    eventually(lambda: allocated_instances() >= 3, "its instances are counted", topology.timeout_s)
    if isinstance(topology, KubernetesTopology):
        assert summary()["allocatable"] == dict([CAPACITY.split("=")])


def test_a_cell_reports_its_status_only_until_karmada_does(topology: Topology, hub: Api) -> None:
    if not isinstance(topology, KubernetesTopology):
        pytest.skip("only a kube-apiserver writes the audit log that this test reads")

    def writes() -> Counter[str]:
        return topology.servers.planes["hub"].writes("compute-cell", "clusters", "leases")

    if topology.propagator != "karmada":
        assert set(writes()) == {"create leases", "patch clusters", "patch leases"}
        return
    eventually(lambda: is_karmada({"status": status_of(hub)}), "Karmada reports the cell", 60)
    time.sleep(2 * HEARTBEAT_S)  # a report that is in flight may still arrive
    before = writes()
    time.sleep(3 * HEARTBEAT_S)
    assert writes() == before


def test_a_log_request_reaches_the_cell_of_the_instance(topology: Topology, project: Api) -> None:
    """The cell responds that its instances are simulated."""
    project.create(f"{NAMESPACE}/workloads", workload("logged", "ORD"))

    def names() -> list[str]:
        return [n for n in project.names(f"{COMPUTE}/instances") if n.startswith("logged-")]

    eventually(lambda: len(names()) == 1, "its instance is listed", topology.timeout_s)
    with pytest.raises(urllib.error.HTTPError) as refused:
        topology.gateway().request("GET", instance_path("default", names()[0], "log"))
    with refused.value as response:
        (cause,) = json.loads(response.read())["details"]["causes"]
        assert (response.code, cause["reason"]) == (404, GatewayReason.INSTANCES_SIMULATED)
