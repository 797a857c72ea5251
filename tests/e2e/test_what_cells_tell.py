"""What the hub and the gateway know of cells, whatever they are made of: that they live, what they
have and run; and who has written it."""

from __future__ import annotations

import json
import time
import urllib.error
from collections import Counter

import pytest

from datum_compute.api.gateway import GatewayReason, instance_path
from datum_compute.app.heartbeat import is_karmada
from testkit.processes.local_platform import eventually
from tests.e2e.processes import CLUSTERS, COMPUTE, SPACE, Api, Object, workload
from tests.e2e.topologies import Topology
from tests.kubernetes.topology import CAPACITY, HEARTBEAT_S, KubernetesTopology

pytestmark = pytest.mark.e2e

HEARD = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/dfw"


@pytest.fixture
def hub(topology: Topology) -> Api:
    return topology.api("hub", manager=True)


def status_of(hub: Api) -> Object:
    found = hub.find(f"{CLUSTERS}/dfw") or {}
    status: Object = found.get("status", {})
    return status


def test_the_hub_says_which_version_a_cell_is_of(topology: Topology, hub: Api) -> None:
    served = topology.api("cell/dfw", manager=True).ask("GET", "/version")["gitVersion"]
    eventually(
        lambda: status_of(hub).get("kubernetesVersion") == served, "it is known", within_s=30
    )


def test_a_cell_is_heard_again_and_again(topology: Topology, hub: Api) -> None:
    if topology.propagator == "karmada":
        pytest.skip("Karmada asks its members, and keeps no Lease of them")

    def heard() -> str:
        return str((hub.find(HEARD) or {}).get("spec", {}).get("renewTime", ""))

    eventually(lambda: heard() != "", "it was heard", within_s=30)
    first = heard()
    eventually(lambda: heard() > first, "it is heard again", within_s=30)


def test_the_hub_knows_what_a_cell_has_and_runs(topology: Topology, project: Api, hub: Api) -> None:
    if topology.propagator == "karmada":
        pytest.skip("Karmada counts nodes and pods of its members, and not instances")
    project.create(f"{SPACE}/workloads", workload("counted", "DFW", replicas=3))

    def summary() -> Object:
        found: Object = status_of(hub).get("resourceSummary", {})
        return found

    def counted() -> int:
        return int(summary().get("allocated", {}).get("instances", "0"))

    eventually(lambda: counted() >= 3, "its instances are counted", topology.patience_s)
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
    time.sleep(2 * HEARTBEAT_S)  # a report that had begun may still arrive
    before = writes()
    time.sleep(3 * HEARTBEAT_S)
    assert writes() == before


def test_a_question_about_an_instance_reaches_its_cell(topology: Topology, project: Api) -> None:
    """Which answers that its machines only pretend."""
    project.create(f"{SPACE}/workloads", workload("asked", "ORD"))

    def names() -> list[str]:
        return [n for n in project.names(f"{COMPUTE}/instances") if n.startswith("asked-")]

    eventually(lambda: len(names()) == 1, "its instance is known", topology.patience_s)
    with pytest.raises(urllib.error.HTTPError) as refused:
        topology.gateway().ask("GET", instance_path("default", names()[0], "log"))
    with refused.value as answer:
        (cause,) = json.loads(answer.read())["details"]["causes"]
        assert (answer.code, cause["reason"]) == (404, GatewayReason.INSTANCES_SIMULATED)
