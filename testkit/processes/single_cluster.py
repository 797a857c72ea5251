"""One API server for all planes, and a manager with the shipped account (deploy/single-cluster)."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import BIN, eventually

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
# After a kill the next manager waits until the lease has expired.
TIMEOUT_S = 150


@dataclass
class SingleCluster:
    """The namespace ``shop``, and the manager, which can be killed and restarted."""

    state: Path
    kubeconfig: Path
    admin: Kubectl
    managers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    flags: tuple[str, ...] = ()

    @property
    def kubectl(self) -> Kubectl:
        return self.admin.in_namespace("shop")

    def start(self) -> None:
        command = [
            str(BIN / "compute-manager"),
            "--enable-management-controllers",
            "--enable-cell-controllers",
            "--mode=single",
            f"--kubeconfig={self.kubeconfig}",
            f"--state-dir={self.state}",
            "--leader-election-name=one",
            *self.flags,
        ]
        with (self.state / "manager.log").open("ab") as log:
            self.managers.append(subprocess.Popen(command, stderr=log))

    def kill(self) -> None:
        self.managers[-1].send_signal(signal.SIGKILL)
        assert self.managers[-1].wait(timeout=15) == -signal.SIGKILL

    def stop(self) -> int:
        self.managers[-1].send_signal(signal.SIGTERM)
        return self.managers[-1].wait(timeout=15)

    def apply(self, image: str, replicas: int) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(workload(image, replicas)))

    def items(self, kinds: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.kubectl.json("get", kinds)["items"]
        return items

    def images(self) -> list[str]:
        """Return the images of the running machines."""
        return [
            server["spec"]["containers"][0]["image"]
            for server in self.items("servers")
            if server.get("status", {}).get("phase") == "Running"
        ]

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kubectl.json("get", "workload", "web").get("status", {})
        return status

    def wait_until_running(self, image: str, replicas: int) -> None:
        def has_rolled_out() -> bool:
            status = self.status()
            counts = (status.get("readyReplicas"), status.get("updatedReplicas"))
            return self.images() == [image] * replicas and counts == (replicas, replicas)

        eventually(has_rolled_out, f"{replicas} of {image} run", within_s=TIMEOUT_S)

    def wait_for_status(self, *words: str) -> None:
        eventually(
            lambda: all(word in json.dumps(self.status()) for word in words),
            f"the status contains {words}",
            within_s=TIMEOUT_S,
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


def write_account_kubeconfig(admin: Kubectl, path: Path) -> Path:
    """Write a kubeconfig of the shipped account, whose context names no plane."""
    config = json.loads(admin("config", "view", "--raw", "--minify", "-o", "json"))
    token = admin("create", "token", "compute-manager", "-n", "kube-system").strip()
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["name"] = config["current-context"] = "one"
    path.write_text(json.dumps(config))
    return path


def install_crds(admin: Kubectl) -> None:
    """Install our kinds on an API server."""
    admin("apply", "--server-side", "-f", str(DEPLOY / "crds"))
    admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
