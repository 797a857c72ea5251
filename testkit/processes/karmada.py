"""A real Karmada on loopback: its programs and an API server, set up as its installers do.

Its definitions and webhook configurations come from the Go module. The definition of Cluster, which
replaces the aggregated API server, and the rules for WorkloadDeployment are ours (deploy/karmada).
The controller that copies every namespace to every cluster is off, as in the guide. Timeouts are
shorter than the defaults, so that tests of unreachable cells end.
"""

from __future__ import annotations

import base64
import json
import socket
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from testkit.processes.api_servers import START_S, RealPlane, free_ports
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from testkit.processes.programs import Process, kill, start_process, stop

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WEBHOOK, MANAGER, SCHEDULER = "karmada-webhook", "karmada-controller-manager", "karmada-scheduler"
PARTS = (WEBHOOK, MANAGER, SCHEDULER)
# The defaults are 30 s each, and retry delays of up to 1,000 s.
SILENCE_S = 6
MANAGER_FLAGS = (
    "--controllers=*,-namespace",
    "--enable-cluster-resource-modeling=false",
    "--cluster-status-update-frequency=2s",
    f"--cluster-failure-threshold={SILENCE_S}s",
    f"--cluster-success-threshold={SILENCE_S}s",
    "--rate-limiter-max-delay=5s",
    "--rate-limiter-qps=100",
    "--kube-api-qps=200",
    "--kube-api-burst=400",
    "--cluster-api-qps=200",
    "--cluster-api-burst=400",
)
# The number in the chart; fewer mean that some were not found.
_DEFINITIONS_MIN = 19
_CONVERTED = ("resourcebindings.work.karmada.io", "clusterresourcebindings.work.karmada.io")


@dataclass
class Karmada:
    """Karmada from programs in ``assets`` and sources in ``module``, on the hub ``plane``."""

    assets: Path
    module: Path
    plane: RealPlane
    parts: dict[str, Process] = field(default_factory=dict)
    webhook_port: int = field(default_factory=lambda: free_ports(1)[0])

    @property
    def admin(self) -> Kubectl:
        return self.plane.admin

    def install(self) -> None:
        """Install all definitions, the programs, the webhooks and the interpreter rules."""
        for name in ("karmada-system", "karmada-cluster"):
            self._apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        self._apply(self._definitions())
        self.admin("apply", "--server-side", "-f", str(DEPLOY / "karmada" / "clusters.yaml"))
        self.admin("apply", "--server-side", "-f", str(DEPLOY / "crds"))
        self.admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self.up()
        self._apply(self._webhooks())
        self.admin("apply", "--server-side", "-f", str(DEPLOY / "karmada" / "interpreter.yaml"))

    def up(self) -> None:
        """Start the programs that do not run."""
        for part in PARTS:
            process = self.parts.get(part)
            if process is None or process.poll() is not None:
                self.start(part)

    def down(self) -> None:
        for part in reversed(PARTS):
            if part in self.parts:
                stop(self.parts.pop(part))

    def start(self, part: str) -> None:
        """Start or restart one program, without leader election."""
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        quiet = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
        more = {
            WEBHOOK: (
                "--bind-address=127.0.0.1",
                f"--secure-port={self.webhook_port}",
                f"--cert-dir={self.plane.folder}",
                "--tls-cert-file-name=server.crt",
                "--tls-private-key-file-name=server.key",
                "--metrics-bind-address=0",
                f"--health-probe-bind-address=127.0.0.1:{free_ports(1)[0]}",
            ),
            MANAGER: (*MANAGER_FLAGS, "--leader-elect=false", *quiet),
            SCHEDULER: ("--leader-elect=false", *quiet),
        }
        command = [str(self.assets / part), kubeconfig, *more[part]]
        self.parts[part] = start_process(command, self.plane.folder / f"{part}.log")
        if part == WEBHOOK:
            listens = partial(_listens, self.webhook_port)
            eventually(listens, "the webhook listens", within_s=START_S)

    def kill(self, part: str) -> None:
        kill(self.parts.pop(part))

    def kill_all(self) -> None:
        for part in list(self.parts):
            self.kill(part)

    def send(self, number: int) -> None:
        for process in self.parts.values():
            process.send_signal(number)

    def register(self, name: str, city: str, server: str, token: str, authority: Path) -> None:
        """Register a Push member."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "karmada-cluster"},
            "stringData": {"token": token, "caBundle": authority.read_text()},
        }
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "labels": {"topology.datum.net/city-code": city}},
            "spec": {
                "syncMode": "Push",
                "apiEndpoint": server,
                "secretRef": {"namespace": "karmada-cluster", "name": name},
            },
        }
        self._apply([secret, cluster])
        self.await_member(name)

    def await_member(self, name: str) -> None:
        """Wait until Karmada has found our kinds on the member.

        It does not schedule a binding again that it scheduled earlier.
        """
        eventually(lambda: self.serves_ours(name), f"{name} serves our kinds", within_s=START_S)

    def serves_ours(self, name: str) -> bool:
        status = self.admin.json("get", "cluster", name).get("status", {})
        ready = [c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"]
        served = {group["groupVersion"] for group in status.get("apiEnablements", [])}
        return ready == ["True"] and "compute.datumapis.com/v1alpha" in served

    def _definitions(self) -> list[dict[str, Any]]:
        folder = self.module / "charts" / "karmada" / "_crds" / "bases"
        found = [yaml.safe_load(file.read_text()) for file in sorted(folder.rglob("*.yaml"))]
        assert len(found) >= _DEFINITIONS_MIN, f"{folder} has {len(found)} definitions"
        for definition in found:
            if definition["metadata"]["name"] in _CONVERTED:
                client = {"url": f"{self._url}/convert", "caBundle": self._authority}
                definition["spec"]["conversion"] = {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
                }
        return found

    def _webhooks(self) -> list[dict[str, Any]]:
        file = self.module / "artifacts" / "deploy" / "webhook-configuration.yaml"
        text = file.read_text().replace("{{caBundle}}", self._authority)
        text = text.replace("https://karmada-webhook.karmada-system.svc:443", self._url)
        found = list(yaml.safe_load_all(text))
        for configuration in found:
            for webhook in configuration["webhooks"]:
                webhook["timeoutSeconds"] = 10  # many processes share few CPU cores
        return found

    @property
    def _authority(self) -> str:
        return base64.b64encode(self.plane.authority.read_bytes()).decode()

    @property
    def _url(self) -> str:
        return f"https://127.0.0.1:{self.webhook_port}"

    def _apply(self, objects: list[dict[str, Any]]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.admin("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
