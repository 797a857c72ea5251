"""A manager reads a renewed token file when its old token is revoked."""

from __future__ import annotations

import ssl
import urllib.error

import pytest

from testkit.processes.api_servers import ACCOUNTS_IN
from testkit.processes.local_platform import eventually
from tests.e2e.processes import COMPUTE, NAMESPACE, Api, condition, workload
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

PLANE = "cell/dfw"


def is_accepted(topology: KubernetesTopology, token: str) -> bool:
    plane = topology.planes[PLANE]
    trust = ssl.create_default_context(cafile=str(plane.authority))
    try:
        Api(plane.server, token, trust).request("GET", f"{COMPUTE}/instances")
    except urllib.error.HTTPError as error:
        return error.code != 401
    return True


def test_a_manager_uses_the_new_token_of_a_file(kubernetes_topology: KubernetesTopology) -> None:
    topology = kubernetes_topology
    admin = topology.planes[PLANE].admin.in_namespace(ACCOUNTS_IN)
    file = topology.folder / "dfw-cell-dfw.token"
    admin("create", "secret", "generic", "holds-a-token")
    bound = ("--bound-object-kind=Secret", "--bound-object-name=holds-a-token")
    first = admin("create", "token", "compute-cell", *bound).strip()
    second = topology.planes[PLANE].token("compute-cell")
    file.write_text(first)
    topology.managers["dfw"].kill()
    topology.managers["dfw"].wait()
    topology.up()
    project: Api = topology.api("project/default")
    project.create(f"{NAMESPACE}/workloads", workload("rotated", "DFW"))
    try:
        eventually(lambda: is_available(project), "it is available with the first token")
        admin("delete", "secret", "holds-a-token")
        eventually(lambda: not is_accepted(topology, first), "the first token is rejected")
        file.write_text(second)
        more = workload("rotated", "DFW", replicas=2)["spec"]
        project.patch(f"{NAMESPACE}/workloads/rotated", {"spec": more})
        eventually(
            lambda: ready_replicas(project) == 2, "the change is applied with the second token"
        )
        assert topology.managers["dfw"].poll() is None, "the same process"
    finally:
        project.delete(f"{NAMESPACE}/workloads/rotated")
        eventually(lambda: not project.names(f"{NAMESPACE}/workloads"), "the workload is deleted")


def is_available(project: Api) -> bool:
    return condition(project.find(f"{NAMESPACE}/workloads/rotated"), "Available")[0] == "True"


def ready_replicas(project: Api) -> int:
    found = project.find(f"{NAMESPACE}/workloads/rotated") or {}
    return int(found.get("status", {}).get("readyReplicas", 0))
