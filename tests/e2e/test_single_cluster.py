"""Single-cluster mode: one API server, one compute-manager beside it, and kubectl alone.

The API server is a plane of an embedded server that runs no compute controllers. The manager has
the account and the role that are shipped for a cluster of one's own (deploy/single-cluster).
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.platform import BIN, LocalPlatform, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "single-cluster"
OURS = "workloads,workloaddeployments,instances,servers,resourceclaims,networkbindings"


@dataclass
class SingleCluster:
    """A namespace of it, and the manager, which can be killed and started again."""

    state: Path
    kubeconfig: Path
    admin: Kubectl
    managers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def kubectl(self) -> Kubectl:
        return self.admin.within("shop")

    def start(self) -> None:
        command = [
            str(BIN / "compute-manager"),
            "--enable-management-controllers",
            "--enable-cell-controllers",
            f"--kubeconfig={self.kubeconfig}",
            f"--state-dir={self.state}",
            "--leader-election-name=one",
        ]
        with (self.state / "manager.log").open("ab") as log:
            self.managers.append(subprocess.Popen(command, stderr=log))

    def kill(self) -> None:
        self.managers[-1].send_signal(signal.SIGKILL)
        assert self.managers[-1].wait(timeout=15) == -signal.SIGKILL

    def stop(self) -> int:
        self.managers[-1].send_signal(signal.SIGTERM)
        return self.managers[-1].wait(timeout=15)

    # --- what kubectl shows

    def apply(self, image: str, replicas: int) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(workload(image, replicas)))

    def items(self, kinds: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kubectl.json("get", kinds)["items"]
        return found

    def images(self) -> list[str]:
        """Of the machines that run."""
        return [
            server["spec"]["containers"][0]["image"]
            for server in self.items("servers")
            if server.get("status", {}).get("phase") == "Running"
        ]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.json("get", "workload", "web").get("status", {})
        return found

    def until_runs(self, image: str, replicas: int) -> None:
        def holds() -> bool:
            counts = self.status()
            told = (counts.get("readyReplicas"), counts.get("updatedReplicas"))
            return self.images() == [image] * replicas and told == (replicas, replicas)

        eventually(holds, f"{replicas} of {image} run", within_s=60)

    def until_says(self, *words: str) -> None:
        eventually(
            lambda: all(word in json.dumps(self.status()) for word in words),
            f"the workload says {words}",
            within_s=60,
        )


def workload(image: str, replicas: int) -> dict[str, Any]:
    container = {"name": "app", "image": image}
    scale = {"minReplicas": replicas}
    placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": "web"},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [placement],
        },
    }


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
        eventually(platform.kubeconfig.exists, "the API server has begun", within_s=60)
        admin = Kubectl(platform.kubeconfig, "platform")
        eventually(lambda: admin.run("get", "--raw", "/readyz").returncode == 0, "it is ready")
        yield admin
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=15) == 0


@pytest.fixture
def cluster(stopped: LocalPlatform, tmp_path: Path) -> Iterator[SingleCluster]:
    with served(stopped) as admin:
        admin("apply", "-f", str(DEPLOY))
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


def account_kubeconfig(admin: Kubectl, path: Path) -> Path:
    """One context, of the shipped account: it names no plane."""
    config = json.loads(admin("config", "view", "--raw", "--minify", "-o", "json"))
    token = admin("create", "token", "compute-manager", "-n", "kube-system").strip()
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["name"] = config["current-context"] = "one"
    path.write_text(json.dumps(config))
    return path


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
    claims = {claim["metadata"]["name"] for claim in cluster.items("resourceclaims")}
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


def test_a_manager_that_is_killed_in_the_middle_is_replaced_without_a_trace(
    cluster: SingleCluster,
) -> None:
    cluster.apply("web:1", 3)
    eventually(lambda: bool(cluster.items("instances")), "it has begun", within_s=60)
    cluster.kill()
    cluster.start()
    cluster.until_runs("web:1", 3)
    cluster.apply("web:2", 3)
    eventually(lambda: "web:2" in json.dumps(cluster.items("instances")), "the roll has begun")
    cluster.kill()
    cluster.start()
    cluster.until_runs("web:2", 3)
    cluster.kubectl("delete", "workload/web", "--wait=false")
    cluster.kill()
    cluster.start()
    eventually(lambda: not cluster.items(OURS), "nothing is left", within_s=90)


def test_a_namespace_goes_with_everything_in_it(cluster: SingleCluster) -> None:
    cluster.apply("web:1", 3)
    cluster.until_runs("web:1", 3)
    cluster.kubectl("delete", "namespace", "shop", "--timeout=60s")
    assert not cluster.kubectl.json("get", "servers", "--all-namespaces")["items"]
