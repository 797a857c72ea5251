"""The admission webhook of two managers: each replica responds, leader or not."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.api_server.running_server import workload
from testkit.processes.local_platform import BIN, LocalPlatform, eventually
from tests.admission.reviews import review

pytestmark = pytest.mark.e2e


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Replica:
    process: subprocess.Popen[bytes]
    state: Path
    port: int

    def post(self, path: str, body: bytes = b"") -> bytes:
        trusted = ssl.create_default_context(cafile=str(self.state / "webhook" / "ca.crt"))
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            data=body or None,
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, context=trusted, timeout=15) as response:
            found: bytes = response.read()
            return found

    def review_workload(self, user: str, city: str) -> dict[str, Any]:
        sent = workload()
        sent["spec"]["placements"][0]["cityCodes"] = [city]
        body = json.dumps(review(sent, user={"username": user})).encode()
        found: dict[str, Any] = json.loads(self.post("/validate", body))["response"]
        return found

    def is_up(self) -> bool:
        try:
            return self.post("/healthz") == b"ok"
        except OSError:
            return False


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def replicas(stopped_platform: LocalPlatform) -> Iterator[list[Replica]]:
    """Two managers over the planes; one of them leads."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server"]
    processes = [start([*command, "--state-dir", str(stopped_platform.state), "--no-controllers"])]
    try:
        eventually(stopped_platform.manager_kubeconfig.exists, "the planes are served")
        found = []
        for number in range(2):
            state, port = stopped_platform.state / f"manager-{number}", free_port()
            manager = [
                str(BIN / "compute-manager"),
                f"--kubeconfig={stopped_platform.manager_kubeconfig}",
                f"--state-dir={state}",
                "--enable-management-controllers",
                f"--webhook-address=127.0.0.1:{port}",
            ]
            processes.append(start(manager))
            found.append(Replica(processes[-1], state, port))
        yield found
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=15) for process in processes]
    assert codes == [0] * len(processes), "every process exits with code 0"


def test_every_replica_checks_cities_and_permissions_of_the_project(
    replicas: list[Replica],
) -> None:
    for replica in replicas:
        eventually(replica.is_up, "the webhook responds")
        assert replica.review_workload("admin:project/default", "DFW")["allowed"] is True
        unknown = replica.review_workload("admin:project/default", "XXX")
        assert "there are: DFW" in unknown["status"]["message"]
        unauthorized = replica.review_workload("eve", "DFW")
        assert "may not use network" in unauthorized["status"]["message"]
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            replica.post("/validate", b"{}")
        refused.value.close()
