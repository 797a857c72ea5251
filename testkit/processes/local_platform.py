"""A local platform for a test, started and stopped with the command line."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testkit.processes.kubectl import Kubectl

BIN = Path(sys.executable).parent
COMMAND_S = 60
# The cities that workloads on the platform plane may use.
CITIES = ("DFW", "LHR", "ORD")


@dataclass(frozen=True, slots=True)
class LocalPlatform:
    """``commands`` is the folder of the installed commands."""

    state: Path
    commands: Path = BIN

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def manager_kubeconfig(self) -> Path:
        """The kubeconfig of the controllers, with read access to every plane."""
        return self.state / "manager.kubeconfig"

    @property
    def pid(self) -> int:
        return int(json.loads((self.state / "server.json").read_text())["pid"])

    def up(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run ``local up``, with simulated instances unless ``flags`` contain another driver."""
        driver = () if "--driver" in flags else ("--driver", "simulated")
        return self.run("local", "up", "--state-dir", str(self.state), "--detach", *driver, *flags)

    def down(self) -> subprocess.CompletedProcess[str]:
        """Run ``local down --all``, so that no process of the test is left."""
        return self.run("local", "down", "--all", "--state-dir", str(self.state))

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists(), "the server is dead")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``datumctl compute ...``. A server that it starts must not keep its output open."""
        environment = {**os.environ, "DATUM_STATE_DIR": str(self.state), "NO_COLOR": "1"}
        environment.pop("KUBECONFIG", None)
        return subprocess.run(
            [str(self.commands / "datumctl"), "compute", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    def kubectl(
        self, context: str, *arguments: str, stdin: str = "", kubeconfig: Path | None = None
    ) -> str:
        return Kubectl(kubeconfig or self.kubeconfig, context)(*arguments, stdin=stdin)

    def objects(self, context: str, kinds: str) -> list[dict[str, Any]]:
        listed = self.kubectl(
            context,
            *("get", kinds, "--all-namespaces", "-o", "json"),
            kubeconfig=self.manager_kubeconfig,
        )
        items: list[dict[str, Any]] = json.loads(listed)["items"]
        return items


def eventually(holds: Callable[[], bool], what: str, within_s: float = 30) -> None:
    """Poll a condition of a real process; bounded, because a test must end."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)


def allow_on_platform(running: LocalPlatform, city: str) -> None:
    """Create a LocationBinding, so that workloads on the platform plane can use the city."""
    config = yaml.safe_load(running.kubeconfig.read_text())
    (cluster,) = [c["cluster"] for c in config["clusters"] if c["name"] == "platform"]
    (user,) = [u["user"] for u in config["users"] if u["name"] == "platform"]
    binding = {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "LocationBinding",
        "metadata": {"name": city.lower()},
        "spec": {
            "locationRef": {"name": city.lower()},
            "locationClassName": "datum-managed",
            "topology": {"topology.datum.net/city-code": city},
        },
    }
    request = urllib.request.Request(
        f"{cluster['server']}/apis/networking.datumapis.com/v1alpha/locationbindings",
        data=json.dumps(binding).encode(),
        headers={"authorization": f"Bearer {user['token']}", "content-type": "application/json"},
    )
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trusted = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, context=trusted, timeout=30) as response:
        assert response.status == 201
