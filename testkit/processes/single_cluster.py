"""One API server that is everything, and the manager beside it, under the account that is shipped
for a cluster of one's own (deploy/single-cluster)."""

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
# A manager that was killed leaves a lease that the next one has to wait out.
PATIENCE_S = 150


@dataclass
class SingleCluster:
    """A namespace of it, and the manager, which can be killed and started again."""

    state: Path
    kubeconfig: Path
    admin: Kubectl
    managers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    flags: tuple[str, ...] = ()

    @property
    def kubectl(self) -> Kubectl:
        return self.admin.within("shop")

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

        eventually(holds, f"{replicas} of {image} run", within_s=PATIENCE_S)

    def until_says(self, *words: str) -> None:
        eventually(
            lambda: all(word in json.dumps(self.status()) for word in words),
            f"the workload says {words}",
            within_s=PATIENCE_S,
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


def account_kubeconfig(admin: Kubectl, path: Path) -> Path:
    """One context, of the shipped account: it names no plane."""
    config = json.loads(admin("config", "view", "--raw", "--minify", "-o", "json"))
    token = admin("create", "token", "compute-manager", "-n", "kube-system").strip()
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["name"] = config["current-context"] = "one"
    path.write_text(json.dumps(config))
    return path


def installed(admin: Kubectl) -> None:
    """Our kinds on an API server that has never heard of them."""
    admin("apply", "--server-side", "-f", str(DEPLOY / "crds"))
    admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
