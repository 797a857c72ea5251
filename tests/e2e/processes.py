"""A platform in several processes for a test: the hub's, and one for each cell, as on machines of
their own. Whatever a test does to a process, in the end all are stopped, by their pids."""

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
SPACE = f"{COMPUTE}/namespaces/default"
DEPLOYMENTS, INSTANCES = f"{COMPUTE}/workloaddeployments", f"{COMPUTE}/instances"
SERVERS = "/apis/region.datumapis.com/v1alpha/servers"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
WORKS = "/apis/work.karmada.io/v1alpha1/works"
POLICIES = "/apis/policy.karmada.io/v1alpha1/propagationpolicies"
HUB = "centre"  # the process that is no cell
# A silent cell is said to be one much sooner than usual, and a size may go at once.
SHORT = {
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
    def patience_s(self) -> float:
        return 30

    def run(self, *arguments: str) -> Any:
        return self.platform.run(*arguments)

    def up(self) -> None:
        before = {name: os.environ.get(name) for name in SHORT}
        os.environ.update(SHORT)
        try:
            done = self.platform.up("--processes", "--cells", ",".join(self.cells))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        assert done.returncode == 0, done.stderr

    def settle(self) -> None:
        for name in list(self.stopped):
            self.resume(name)

    def down(self) -> None:
        self.settle()
        for name in list(self.children):
            self.terminate(name)
        self.platform.down()

    def start(self, name: str) -> None:
        """One cell alone, whether or not there is a hub."""
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
            return (state / "server.json").exists() and self._answers(name)

        eventually(is_ready, f"{name} answers")

    def _answers(self, name: str) -> bool:
        try:
            self.reach(name).ask("GET", "/api/v1/namespaces/default")
        except (OSError, KeyError):
            return False
        return True

    def terminate(self, name: str) -> None:
        child = self.children.pop(name)
        child.terminate()
        child.wait(timeout=20)

    def directory(self, name: str) -> Path:
        return self.state if name == HUB else self.state / "cells" / name

    def pid(self, name: str) -> int:
        return int(json.loads((self.directory(name) / "server.json").read_text())["pid"])

    def kill(self, name: str) -> None:
        """As a power cut would: no farewell."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        if name in self.children:
            self.children.pop(name).wait(timeout=20)
        eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists() or _is_zombie(pid), "dead")

    def pause(self, name: str) -> None:
        """It keeps its connections and answers nothing: a silent partition."""
        os.kill(self.pid(name), signal.SIGSTOP)
        self.stopped.add(name)

    def resume(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGCONT)
        self.stopped.discard(name)

    def api(self, context: str, *, manager: bool = False) -> Api:
        """As whoever the kubeconfig knows; as the controllers where users may not look."""
        return self._api(self.state / ("manager.kubeconfig" if manager else "kubeconfig"), context)

    def gateway(self) -> Api:
        """Where people of the project ask about their instances: at the plane itself."""
        return self.api("project/default")

    def reach(self, cell: str) -> Api:
        """A cell, by what itself has written."""
        return self._api(self.directory(cell) / "manager.kubeconfig", f"cell/{cell}")

    def as_cell(self, cell: str) -> Api:
        """Planes beyond its own as a cell reaches them, by full paths and with its certificate."""
        state = self.directory(cell)
        trust = ssl.create_default_context(cafile=str(state / "hub-ca.crt"))
        trust.load_cert_chain(str(state / "cell.crt"), str(state / "cell.key"))
        return Api(json.loads((state / "membership.json").read_text())["hub"], "", trust)

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
    trust: ssl.SSLContext

    def ask(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Object:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"content-type": content}
        if self.token:  # else the certificate says who asks
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(
            self.server + path, data=data, headers=headers, method=method
        )
        while True:
            try:
                with urllib.request.urlopen(request, context=self.trust, timeout=10) as answer:
                    found: Object = json.loads(answer.read())
                    return found
            except urllib.error.HTTPError as error:
                with error:  # it holds the connection
                    words = BytesIO(error.read())
                if error.code != 429:  # a server that has just started asks to come again
                    told = (error.url, error.code, error.reason, error.headers)
                    raise urllib.error.HTTPError(*told, words) from None
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def code(self, method: str, path: str, body: Any = None) -> int:
        """How the server answers, whatever that is."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            self.ask(method, path, body, content)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def items(self, path: str) -> list[Object]:
        items: list[Object] = self.ask("GET", path)["items"]
        return items

    def names(self, path: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.items(path))

    def find(self, path: str) -> Object | None:
        try:
            return self.ask("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def create(self, path: str, obj: Object) -> Object:
        return self.ask("POST", path, obj)

    def patch(self, path: str, change: Object) -> Object:
        return self.ask("PATCH", path, change, "application/merge-patch+json")

    def delete(self, path: str) -> Object:
        return self.ask("DELETE", path)


def named(api: Api, path: str, name: str) -> list[Object]:
    """What belongs to a workload, by its name."""
    return [obj for obj in api.items(path) if obj["metadata"]["name"].startswith(f"{name}-")]


def running_processes(folder: Path, *cells: str) -> Iterator[Processes]:
    running = Processes(folder / "state", cells)
    try:
        running.up()
        yield running
    finally:
        running.down()


class Settling(Protocol):
    def api(self, context: str, *, manager: bool = False) -> Api: ...

    def settle(self) -> None: ...


def empty_project(processes: Settling) -> Iterator[Api]:
    """The default project for a test, and nothing of the test left in it."""
    api = processes.api("project/default")
    yield api
    processes.settle()
    for name in api.names(f"{SPACE}/workloads"):
        try:
            api.delete(f"{SPACE}/workloads/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # it may have gone by itself
                raise
    eventually(lambda: not api.names(f"{SPACE}/workloads"), "no workload is left")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def condition(obj: Object | None, type_: str) -> tuple[str, str]:
    """Status and reason, empty where nothing is said."""
    found = (obj or {}).get("status", {}).get("conditions", [])
    said: Object = next((c for c in found if c["type"] == type_), {})
    return said.get("status", ""), said.get("reason", "")


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
