"""The webhook of real managers in front of real planes: each replica answers, whoever leads."""

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

    def ask(self, path: str, body: bytes = b"") -> bytes:
        trusted = ssl.create_default_context(cafile=str(self.state / "webhook" / "ca.crt"))
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            data=body or None,
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, context=trusted, timeout=15) as answer:
            found: bytes = answer.read()
            return found

    def verdict(self, user: str, city: str) -> dict[str, Any]:
        sent = workload()
        sent["spec"]["placements"][0]["cityCodes"] = [city]
        body = json.dumps(review(sent, user={"username": user})).encode()
        found: dict[str, Any] = json.loads(self.ask("/validate", body))["response"]
        return found

    def is_up(self) -> bool:
        try:
            return self.ask("/healthz") == b"ok"
        except OSError:
            return False


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def replicas(stopped: LocalPlatform) -> Iterator[list[Replica]]:
    """Two managers over the planes; one of them leads."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server"]
    processes = [started([*command, "--state-dir", str(stopped.state), "--no-controllers"])]
    try:
        eventually(stopped.manager_kubeconfig.exists, "the planes are served")
        found = []
        for number in range(2):
            state, port = stopped.state / f"manager-{number}", free_port()
            manager = [
                str(BIN / "compute-manager"),
                f"--kubeconfig={stopped.manager_kubeconfig}",
                f"--state-dir={state}",
                "--enable-management-controllers",
                f"--webhook-address=127.0.0.1:{port}",
            ]
            processes.append(started(manager))
            found.append(Replica(processes[-1], state, port))
        yield found
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=15) for process in processes]
    assert codes == [0] * len(processes), "every process stops in an orderly way"


def test_every_replica_answers_by_the_rights_and_places_of_the_project(
    replicas: list[Replica],
) -> None:
    for replica in replicas:
        eventually(replica.is_up, "the webhook answers")
        assert replica.verdict("admin:project/default", "DFW")["allowed"] is True
        unknown = replica.verdict("admin:project/default", "XXX")
        assert "there are: DFW" in unknown["status"]["message"]
        stranger = replica.verdict("nobody", "DFW")
        assert "may not use network" in stranger["status"]["message"]
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            replica.ask("/validate", b"{}")
        refused.value.close()
