"""A platform in several processes for a test: the center, and one process for each cell.

At the end of a test all processes are stopped, by their pids.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import yaml

from testkit.processes.local_platform import LocalPlatform, eventually

Object = dict[str, Any]

COMPUTE = "/apis/compute.datumapis.com/v1alpha"
NAMESPACE = f"{COMPUTE}/namespaces/default"
DEPLOYMENTS, INSTANCES = f"{COMPUTE}/workloaddeployments", f"{COMPUTE}/instances"
SERVERS = "/apis/region.datumapis.com/v1alpha/servers"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
WORKS = "/apis/work.karmada.io/v1alpha1/works"
POLICIES = "/apis/policy.karmada.io/v1alpha1/propagationpolicies"
# The process that is not a cell: projects, hub and their controllers.
CENTER = "center"
# Unreachable cells are detected sooner, and instance types can be disabled immediately.
SHORT_TIMEOUTS = {
    "DATUM_CELL_PROBE_SECONDS": "0.5",
    "DATUM_CELL_GRACE_SECONDS": "2",
    "DATUM_INSTANCE_TYPE_DEPRECATION_GRACE_PERIOD": "0s",
}


@dataclass
class Processes:
    state: Path
    cells: tuple[str, ...]
    stopped: set[str] = field(default_factory=set)
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def platform(self) -> LocalPlatform:
        return LocalPlatform(self.state)

    @property
    def propagator(self) -> str:
        return "ours"

    @property
    def kubeconfig(self) -> Path:
        return self.platform.kubeconfig

    @property
    def timeout_s(self) -> float:
        return 30

    def run(self, *arguments: str) -> Any:
        return self.platform.run(*arguments)

    def up(self) -> None:
        before = {name: os.environ.get(name) for name in SHORT_TIMEOUTS}
        os.environ.update(SHORT_TIMEOUTS)
        try:
            done = self.platform.up("--processes", "--cells", ",".join(self.cells))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        assert done.returncode == 0, done.stderr

    def restore(self) -> None:
        for name in list(self.stopped):
            self.resume(name)

    def down(self) -> None:
        self.restore()
        for name in list(self.children):
            self.terminate(name)
        self.platform.down()

    def start(self, name: str) -> None:
        """Start one cell, also while the hub is down."""
        state = self.directory(name)
        command = [sys.executable, "-P", "-m", "datum_compute.app.cell_server"]
        log = os.open(state / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(log, "wb") as sink:
            child = subprocess.Popen(
                [*command, "--state-dir", str(state)], stdout=sink, stderr=sink
            )
        self.children[name] = child

        def is_ready() -> bool:
            assert child.poll() is None, (state / "server.log").read_text()[-2000:]
            return (state / "server.json").exists() and self._is_responding(name)

        eventually(is_ready, f"{name} responds")

    def _is_responding(self, name: str) -> bool:
        try:
            self.cell_api(name).request("GET", "/api/v1/namespaces/default")
        except (OSError, KeyError):
            return False
        return True

    def terminate(self, name: str) -> None:
        child = self.children.pop(name)
        child.terminate()
        child.wait(timeout=20)

    def directory(self, name: str) -> Path:
        return self.state if name == CENTER else self.state / "cells" / name

    def pid(self, name: str) -> int:
        return int(json.loads((self.directory(name) / "server.json").read_text())["pid"])

    def kill(self, name: str) -> None:
        """Kill the process with SIGKILL."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        if name in self.children:
            self.children.pop(name).wait(timeout=20)
        eventually(
            lambda: not Path(f"/proc/{pid}/cmdline").exists() or _is_zombie(pid),
            "the process is gone",
        )

    def pause(self, name: str) -> None:
        """Suspend the process: connections stay open and receive no response."""
        os.kill(self.pid(name), signal.SIGSTOP)
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGCONT)
        self.stopped.discard(name)

    def api(self, context: str, *, manager: bool = False) -> Api:
        """Return a client with the credentials of the user, or of the controllers."""
        return self._api(self.state / ("manager.kubeconfig" if manager else "kubeconfig"), context)

    def gateway(self) -> Api:
        """Return a client for instance subresources such as logs."""
        return self.api("project/default")

    def cell_api(self, cell: str) -> Api:
        """Return a client with the kubeconfig that the cell wrote."""
        return self._api(self.directory(cell) / "manager.kubeconfig", f"cell/{cell}")

    def as_cell(self, cell: str) -> Api:
        """Return a client of the center with the certificate of the cell, for full paths."""
        state = self.directory(cell)
        tls = ssl.create_default_context(cafile=str(state / "hub-ca.crt"))
        tls.load_cert_chain(str(state / "cell.crt"), str(state / "cell.key"))
        return Api(json.loads((state / "membership.json").read_text())["hub"], "", tls)

    def _api(self, file: Path, context: str) -> Api:
        config = yaml.safe_load(file.read_text())
        by_name = {part: {e["name"]: e for e in config[part]} for part in ("clusters", "users")}
        cluster = by_name["clusters"][context]["cluster"]
        token = by_name["users"][context]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return Api(cluster["server"], token, ssl.create_default_context(cadata=authority))


@dataclass(frozen=True)
class Api:
    server: str
    token: str
    tls: ssl.SSLContext

    def request(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"content-type": content}
        if self.token:  # otherwise the client certificate authenticates
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(
            self.server + path, data=data, headers=headers, method=method
        )
        while True:
            try:
                with urllib.request.urlopen(request, context=self.tls, timeout=10) as response:
                    found: Object = json.loads(response.read())
                    return found
            except urllib.error.HTTPError as error:
                with error:  # closes the connection
                    body_of_error = BytesIO(error.read())
                if error.code != 429:  # sent by a server that has just started
                    fields = (error.url, error.code, error.reason, error.headers)
                    raise urllib.error.HTTPError(*fields, body_of_error) from None
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def status_code(self, method: str, path: str, body: Any = None) -> int:
        """Return the status code of the response, 200 for every success."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            self.request(method, path, body, content)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def items(self, path: str) -> list[Object]:
        items: list[Object] = self.request("GET", path)["items"]
        return items

    def names(self, path: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.items(path))

    def find(self, path: str) -> Object | None:
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def create(self, path: str, obj: Object) -> Object:
        return self.request("POST", path, obj)

    def patch(self, path: str, change: Object) -> Object:
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def delete(self, path: str) -> Object:
        return self.request("DELETE", path)


def objects_of(api: Api, path: str, name: str) -> list[Object]:
    """List the objects of a workload, by the prefix of their names."""
    return [obj for obj in api.items(path) if obj["metadata"]["name"].startswith(f"{name}-")]


def running_processes(folder: Path, *cells: str) -> Iterator[Processes]:
    running = Processes(folder / "state", cells)
    try:
        running.up()
        yield running
    finally:
        running.down()


class Restorable(Protocol):
    def api(self, context: str, *, manager: bool = False) -> Api: ...

    def restore(self) -> None: ...


def project_with_cleanup(processes: Restorable) -> Iterator[Api]:
    """Yield a client of the default project, and delete all workloads afterwards."""
    api = processes.api("project/default")
    yield api
    processes.restore()
    for name in api.names(f"{NAMESPACE}/workloads"):
        try:
            api.delete(f"{NAMESPACE}/workloads/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # already deleted
                raise
    eventually(lambda: not api.names(f"{NAMESPACE}/workloads"), "no workload is left")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def condition(obj: Object | None, type_: str) -> tuple[str, str]:
    """Return status and reason of a condition, empty if it is missing."""
    found = (obj or {}).get("status", {}).get("conditions", [])
    value: Object = next((c for c in found if c["type"] == type_), {})
    return value.get("status", ""), value.get("reason", "")


def workload(name: str, *cities: str, replicas: int = 1, image: str = "x.example/web:1") -> Object:
    container = {"name": "app", "image": image}
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [
                {
                    "name": "main",
                    "cityCodes": list(cities),
                    "scaleSettings": {
                        "minReplicas": replicas,
                        "instanceManagementPolicy": "Parallel",
                    },
                }
            ],
        },
    }
