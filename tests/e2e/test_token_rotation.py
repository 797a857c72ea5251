"""Tokens in files are renewed by others: a manager goes on with the new one when one ends."""

from __future__ import annotations

import ssl
import urllib.error

import pytest

from testkit.processes.api_servers import ACCOUNTS_IN
from testkit.processes.local_platform import eventually
from tests.e2e.processes import COMPUTE, SPACE, Api, condition, workload
from tests.kubernetes.topology import KubernetesTopology

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

PLANE = "cell/dfw"


def is_known(topology: KubernetesTopology, token: str) -> bool:
    plane = topology.planes[PLANE]
    trust = ssl.create_default_context(cafile=str(plane.authority))
    try:
        Api(plane.server, token, trust).ask("GET", f"{COMPUTE}/instances")
    except urllib.error.HTTPError as error:
        return error.code != 401
    return True


def test_a_manager_goes_on_with_the_next_token(kubernetes_topology: KubernetesTopology) -> None:
    topology = kubernetes_topology
    admin = topology.planes[PLANE].admin.within(ACCOUNTS_IN)
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
    project.create(f"{SPACE}/workloads", workload("rotated", "DFW"))
    try:
        eventually(lambda: is_there(project), "it serves, by the first token")
        admin("delete", "secret", "holds-a-token")
        eventually(lambda: not is_known(topology, first), "the first token is good for nothing")
        file.write_text(second)
        more = workload("rotated", "DFW", replicas=2)["spec"]
        project.patch(f"{SPACE}/workloads/rotated", {"spec": more})
        eventually(lambda: ready(project) == 2, "it works, by the second")
        assert topology.managers["dfw"].poll() is None, "the same process"
    finally:
        project.delete(f"{SPACE}/workloads/rotated")
        eventually(lambda: not project.names(f"{SPACE}/workloads"), "it is gone")


def is_there(project: Api) -> bool:
    return condition(project.find(f"{SPACE}/workloads/rotated"), "Available")[0] == "True"


def ready(project: Api) -> int:
    found = project.find(f"{SPACE}/workloads/rotated") or {}
    return int(found.get("status", {}).get("readyReplicas", 0))
