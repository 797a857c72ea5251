"""Single-cluster mode: one API server, one compute-manager beside it, and kubectl alone.

The API server is a plane of an embedded server without compute controllers, or a real
kube-apiserver (``make test-kubernetes``). The manager has the shipped account and role
(deploy/single-cluster).
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
    TIMEOUT_S,
    SingleCluster,
    install_crds,
    write_account_kubeconfig,
)

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

# Kubernetes also has a kind ResourceClaim.
CLAIMS = "resourceclaims.quota.miloapis.com"
OURS = f"workloads,workloaddeployments,instances,servers,{CLAIMS},networkbindings"


@contextmanager
def run_api_server(platform: LocalPlatform) -> Iterator[Kubectl]:
    """Run an API server without compute controllers, and yield the kubectl of its administrator."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers"]
    server = subprocess.Popen(
        [*command, "--state-dir", str(platform.state)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(platform.kubeconfig.exists, "the API server has started", within_s=TIMEOUT_S)
        admin = Kubectl(platform.kubeconfig, "platform")
        eventually(lambda: admin.run("get", "--raw", "/readyz").returncode == 0, "it is ready")
        yield admin
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=15) == 0


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=pytest.mark.kubernetes)])
def admin(request: pytest.FixtureRequest, stopped_platform: LocalPlatform) -> Iterator[Kubectl]:
    """kubectl of the administrator of an API server on which our kinds are installed."""
    if request.param == "kubernetes":
        found: Kubectl = request.getfixturevalue("real_plane")
        install_crds(found)
        yield found
    else:
        with run_api_server(stopped_platform) as found:
            yield found


@pytest.fixture
def cluster(admin: Kubectl, tmp_path: Path) -> Iterator[SingleCluster]:
    admin("apply", "-f", str(DEPLOY / "single-cluster"))
    admin("create", "namespace", "shop")
    found = SingleCluster(
        tmp_path / "manager",
        write_account_kubeconfig(admin, tmp_path / "one.kubeconfig"),
        admin,
    )
    found.state.mkdir()
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_a_workload_is_created_scaled_updated_and_deleted_with_kubectl(
    cluster: SingleCluster,
) -> None:
    kubectl = cluster.kubectl
    cluster.apply("web:1", 2)
    kubectl("wait", "--for=condition=Available", "workload/web", "--timeout=60s")
    cluster.wait_until_running("web:1", 2)
    (deployment,) = cluster.items("workloaddeployments")
    instances = cluster.items("instances")
    assert [i["metadata"]["ownerReferences"][0]["uid"] for i in instances] == [
        deployment["metadata"]["uid"]
    ] * 2
    assert deployment["status"]["readyReplicas"] == 2
    claims = {claim["metadata"]["name"] for claim in cluster.items(CLAIMS)}
    assert {f"instance-{i['metadata']['name']}" for i in instances} <= claims

    cluster.apply("web:1", 4)
    cluster.wait_until_running("web:1", 4)
    cluster.apply("web:1", 2)
    cluster.wait_until_running("web:1", 2)

    cluster.apply("web:2", 2)
    cluster.wait_until_running("web:2", 2)

    cluster.apply("fail.example/web:3", 2)
    cluster.wait_for_status("ImageUnavailable", "fail.example/web:3")
    assert "web:2" in cluster.images(), "old instances keep running while the new image fails"
    cluster.apply("web:4", 2)
    cluster.wait_until_running("web:4", 2)

    kubectl("delete", "workload/web", "--timeout=60s")
    eventually(lambda: not cluster.items(OURS), "all objects are deleted")


def test_quota_limits_instances_until_the_grant_is_raised_with_kubectl(
    cluster: SingleCluster,
) -> None:
    cluster.apply("web:1", 12)
    cluster.wait_for_status("PendingQuota", '"readyReplicas": 10')
    assert len(cluster.images()) == 10
    quota = cluster.admin.in_namespace("milo-system")
    grant = quota.json("get", "resourcegrant/compute-default")
    for allowance in grant["spec"]["allowances"]:
        allowance["buckets"][0]["amount"] *= 2
    quota("replace", "-f", "-", stdin=json.dumps(grant))
    cluster.wait_until_running("web:1", 12)


@pytest.mark.timeout(3 * TIMEOUT_S)
def test_a_killed_manager_is_replaced_without_lost_or_duplicate_machines(
    cluster: SingleCluster,
) -> None:
    cluster.apply("web:1", 3)
    eventually(
        lambda: bool(cluster.items("instances")), "instances are created", within_s=TIMEOUT_S
    )
    cluster.kill()
    cluster.start()
    cluster.wait_until_running("web:1", 3)
    cluster.apply("web:2", 3)
    eventually(
        lambda: "web:2" in json.dumps(cluster.items("instances")),
        "the rollout has started",
        TIMEOUT_S,
    )
    cluster.kill()
    cluster.start()
    cluster.wait_until_running("web:2", 3)
    assert len(cluster.items("servers")) == 3, "no machine was created twice"
    cluster.kubectl("delete", "workload/web", "--wait=false")
    cluster.kill()
    cluster.start()
    eventually(lambda: not cluster.items(OURS), "all objects are deleted", within_s=TIMEOUT_S)


def test_deleting_a_namespace_deletes_its_machines(cluster: SingleCluster) -> None:
    cluster.apply("web:1", 3)
    cluster.wait_until_running("web:1", 3)
    cluster.kubectl("delete", "namespace", "shop", "--timeout=60s")
    assert not cluster.kubectl.json("get", "servers", "--all-namespaces")["items"]
