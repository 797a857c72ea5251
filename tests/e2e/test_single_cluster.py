"""Single-cluster mode: one API server, one compute-manager beside it, and kubectl alone.

The API server is a plane of an embedded server that runs no compute controllers, or a real
kube-apiserver (``make test-kubernetes``). The manager has the account and the role that are shipped
for a cluster of one's own (deploy/single-cluster).
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import BIN, LocalPlatform, eventually
from testkit.processes.single_cluster import (
    DEPLOY,
    PATIENCE_S,
    SingleCluster,
    account_kubeconfig,
    installed,
)

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

# Kubernetes has resource claims of its own.
CLAIMS = "resourceclaims.quota.miloapis.com"
OURS = f"workloads,workloaddeployments,instances,servers,{CLAIMS},networkbindings"


@contextmanager
def served(platform: LocalPlatform) -> Iterator[Kubectl]:
    """An API server without compute controllers; its administrator's kubectl."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers"]
    server = subprocess.Popen(
        [*command, "--state-dir", str(platform.state)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(platform.kubeconfig.exists, "the API server has begun", within_s=PATIENCE_S)
        admin = Kubectl(platform.kubeconfig, "platform")
        eventually(lambda: admin.run("get", "--raw", "/readyz").returncode == 0, "it is ready")
        yield admin
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=15) == 0


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=pytest.mark.kubernetes)])
def admin(request: pytest.FixtureRequest, stopped: LocalPlatform) -> Iterator[Kubectl]:
    """Of an API server that knows our kinds and nothing else of us."""
    if request.param == "kubernetes":
        found: Kubectl = request.getfixturevalue("real_plane")
        installed(found)
        yield found
    else:
        with served(stopped) as found:
            yield found


@pytest.fixture
def cluster(admin: Kubectl, tmp_path: Path) -> Iterator[SingleCluster]:
    admin("apply", "-f", str(DEPLOY / "single-cluster"))
    admin("create", "namespace", "shop")
    found = SingleCluster(
        tmp_path / "manager",
        account_kubeconfig(admin, tmp_path / "one.kubeconfig"),
        admin,
    )
    found.state.mkdir()
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_a_workload_lives_on_one_api_server_with_kubectl_alone(cluster: SingleCluster) -> None:
    kubectl = cluster.kubectl
    cluster.apply("web:1", 2)
    kubectl("wait", "--for=condition=Available", "workload/web", "--timeout=60s")
    cluster.until_runs("web:1", 2)
    (deployment,) = cluster.items("workloaddeployments")
    instances = cluster.items("instances")
    assert [i["metadata"]["ownerReferences"][0]["uid"] for i in instances] == [
        deployment["metadata"]["uid"]
    ] * 2
    assert deployment["status"]["readyReplicas"] == 2
    claims = {claim["metadata"]["name"] for claim in cluster.items(CLAIMS)}
    assert {f"instance-{i['metadata']['name']}" for i in instances} <= claims

    cluster.apply("web:1", 4)
    cluster.until_runs("web:1", 4)
    cluster.apply("web:1", 2)
    cluster.until_runs("web:1", 2)

    cluster.apply("web:2", 2)
    cluster.until_runs("web:2", 2)

    cluster.apply("fail.example/web:3", 2)
    cluster.until_says("ImageUnavailable", "fail.example/web:3")
    assert "web:2" in cluster.images(), "what worked is not given up for what does not"
    cluster.apply("web:4", 2)
    cluster.until_runs("web:4", 2)

    kubectl("delete", "workload/web", "--timeout=60s")
    eventually(lambda: not cluster.items(OURS), "nothing is left")


def test_quota_holds_and_more_of_it_is_given_with_kubectl(cluster: SingleCluster) -> None:
    cluster.apply("web:1", 12)
    cluster.until_says("PendingQuota", '"readyReplicas": 10')
    assert len(cluster.images()) == 10
    quota = cluster.admin.within("milo-system")
    grant = quota.json("get", "resourcegrant/compute-default")
    for allowance in grant["spec"]["allowances"]:
        allowance["buckets"][0]["amount"] *= 2
    quota("replace", "-f", "-", stdin=json.dumps(grant))
    cluster.until_runs("web:1", 12)


@pytest.mark.timeout(3 * PATIENCE_S)
def test_a_manager_that_is_killed_in_the_middle_is_replaced_without_a_trace(
    cluster: SingleCluster,
) -> None:
    cluster.apply("web:1", 3)
    eventually(lambda: bool(cluster.items("instances")), "it has begun", within_s=PATIENCE_S)
    cluster.kill()
    cluster.start()
    cluster.until_runs("web:1", 3)
    cluster.apply("web:2", 3)
    eventually(
        lambda: "web:2" in json.dumps(cluster.items("instances")), "the roll has begun", PATIENCE_S
    )
    cluster.kill()
    cluster.start()
    cluster.until_runs("web:2", 3)
    assert len(cluster.items("servers")) == 3, "no machine was made twice"
    cluster.kubectl("delete", "workload/web", "--wait=false")
    cluster.kill()
    cluster.start()
    eventually(lambda: not cluster.items(OURS), "nothing is left", within_s=PATIENCE_S)


def test_a_namespace_goes_with_everything_in_it(cluster: SingleCluster) -> None:
    cluster.apply("web:1", 3)
    cluster.until_runs("web:1", 3)
    cluster.kubectl("delete", "namespace", "shop", "--timeout=60s")
    assert not cluster.kubectl.json("get", "servers", "--all-namespaces")["items"]
