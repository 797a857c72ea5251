"""Restarts of the server, a cell process and the engine stop no serving instance.

Requests go to the containers' own addresses, and instances are distinguished by container id.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from datum_compute.drivers.containers.container_spec import CELL
from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, up
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(240)

SAMPLE_S = 0.1
# Ignores SIGTERM with and without an init process, so it serves until its grace period ends.
DEAF = """CMD ["sh", "-c", "trap '' TERM; exec httpd -f -p 8080 -h /www"]"""
NEVER_LISTENS = """CMD ["sh", "-c", "sleep 3; exit 3"]"""

MANIFEST = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {{name: {name}}}
spec:
  rollout: {{cityOrder: Parallel}}
  template:
    spec:
      runtime:
        sandbox:
          terminationGracePeriodSeconds: {grace_s}
          containers:
            - name: app
              image: {image}
              ports: [{{name: http, port: 8080}}]
  placements:
    - name: default
      cityCodes: [{cities}]
      scaleSettings: {{minReplicas: {replicas}}}
"""


@dataclass(frozen=True)
class Answer:
    """A container that answered, and its version."""

    cell: str
    container: str
    version: str


@dataclass
class Observer:
    """Repeatedly requests the page of every running container, in a separate thread."""

    engine: TestEngine
    samples: list[frozenset[Answer]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Observer:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        eventually(lambda: bool(self.samples), "the first sample")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    @property
    def last(self) -> frozenset[Answer]:
        return self.samples[-1]

    def serving(self, cell: str, version: str) -> set[str]:
        return {a.container for a in self.last if (a.cell, a.version) == (cell, version)}

    def _run(self) -> None:
        known: dict[str, tuple[str, str]] = {}
        while not self._stop.is_set():
            with suppress(OSError):  # during a restart of the engine, its containers keep running
                known = running_containers(self.engine)
            found = (answer(cell, name, address) for name, (cell, address) in known.items())
            self.samples.append(frozenset(filter(None, found)))
            time.sleep(SAMPLE_S)


def running_containers(engine: TestEngine) -> dict[str, tuple[str, str]]:
    """Return cell and address of each running container, by id."""
    found: dict[str, tuple[str, str]] = {}
    for container in ask_engine(engine, "/v1.40/containers/json"):
        inspected = ask_engine(engine, f"/v1.40/containers/{container['Id']}/json")
        networks = (inspected.get("NetworkSettings") or {}).get("Networks") or {}
        addresses = [n["IPAddress"] for n in networks.values() if n.get("IPAddress")]
        if addresses:
            found[container["Id"]] = (container["Labels"].get(CELL, ""), addresses[0])
    return found


def ask_engine(engine: TestEngine, path: str) -> Any:
    """Send a request over the socket, which is faster than a command."""
    connection = http.client.HTTPConnection("engine", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(engine.socket)
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def answer(cell: str, container: str, address: str) -> Answer | None:
    try:
        with urllib.request.urlopen(f"http://{address}:8080/", timeout=2) as page:
            return Answer(cell, container, page.read().decode().strip())
    except OSError:
        return None


@dataclass
class Shop:
    """A workload of these tests."""

    platform: Real
    engine: TestEngine
    file: Path
    cities: tuple[str, ...]
    grace_s: int = 1
    name: str = "shop"
    replicas: int = 2

    def deploy(self, image: str, *words: str) -> None:
        text = MANIFEST.format(
            name=self.name,
            image=self.engine.image(image),
            cities=", ".join(self.cities),
            replicas=self.replicas,
            grace_s=self.grace_s,
        )
        self.file.write_text(text)
        done = self.platform.run("deploy", "-f", str(self.file), "--yes", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def has_crashed(self) -> bool:
        found = self.platform.instances("shop")
        return any(instance["reason"] == "InstanceCrashing" for instance in found)


# --- a rollout interrupted by a restart


@pytest.fixture
def deaf(engine: TestEngine, tmp_path: Path) -> Iterator[Shop]:
    """Two cities with two instances of an image that ignores SIGTERM."""
    engine.publish("deaf:1", "v1", DEAF)
    engine.publish("deaf:2", "v2", DEAF)
    platform = Real(tmp_path / "state")
    up(platform, engine)
    shop = Shop(platform, engine, tmp_path / "shop.yaml", ("DFW", "IAD"), grace_s=8)
    try:
        shop.deploy("deaf:1")
        yield shop
    finally:
        platform.run("destroy", "shop", "--yes")
        eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")
        platform.down()


def stop_server(platform: Real) -> None:
    assert platform.down().returncode == 0


@pytest.mark.parametrize(
    ("end", "replaced"), [(Real.kill, 2), (stop_server, 1)], ids=["kill -9", "local down"]
)
def test_a_restart_during_a_rollout_keeps_one_instance_of_each_city_serving(
    deaf: Shop, end: Callable[[Real], None], replaced: int
) -> None:
    """``replaced`` is how many instances of each city the test waits for."""
    with Observer(deaf.engine) as observer:
        before = {cell: observer.serving(cell, "v1") for cell in ("dfw", "iad")}
        assert [len(ids) for ids in before.values()] == [2, 2]
        deaf.deploy("deaf:2", "--no-wait")
        eventually(lambda: leaving(deaf.platform) == 2, "one instance of each city is stopped")
        end(deaf.platform)
        up(deaf.platform, deaf.engine)
        for cell in before:
            eventually(
                lambda cell=cell: len(observer.serving(cell, "v2")) >= replaced,  # type: ignore[misc]
                f"{replaced} instances of {cell} are replaced",
                within_s=90,
            )
    for cell, ids in before.items():
        answered = [{a.container for a in sample if a.cell == cell} for sample in observer.samples]
        assert all(answered), f"no instance of {cell} answered at some time"
        first_new = next(n for n, found in enumerate(answered) if found - ids)
        survivors = set.intersection(*answered[:first_new])
        assert len(survivors & ids) >= 1, f"{cell}: no container served until its replacement did"


def leaving(platform: Real) -> int:
    """Return the number of terminating instances."""
    found = [i for cell in ("dfw", "iad") for i in platform.objects(f"cell/{cell}", "instances")]
    return sum("deletionTimestamp" in instance["metadata"] for instance in found)


# --- a rollout stopped by a bad image


@pytest.fixture(scope="module")
def apart(engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A city whose cell is a separate process."""
    folder = tmp_path_factory.mktemp("restarts")
    platform = Real(folder / "state")
    up(platform, engine, "--processes")
    yield Shop(platform, engine, folder / "shop.yaml", ("DFW",))
    platform.run("destroy", "shop", "--yes")
    eventually(lambda: engine.podman("ps", "--all", "--quiet").split() == [], "all are gone")
    platform.down()


def restart_server(shop: Shop) -> None:
    shop.platform.kill()
    up(shop.platform, shop.engine, "--processes")


def restart_cell(shop: Shop) -> None:
    file = shop.platform.state / "cells" / "dfw" / "server.json"
    pid = int(json.loads(file.read_text())["pid"])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists(), "the cell is dead")
    up(shop.platform, shop.engine, "--processes")


def restart_engine(shop: Shop) -> None:
    shop.engine.stop_engine()
    shop.engine.start_engine()


def test_a_bad_image_replaces_one_instance_and_restarts_replace_no_other(apart: Shop) -> None:
    apart.engine.publish("bad:1", "bad", NEVER_LISTENS)
    apart.deploy("web:1")
    with Observer(apart.engine) as observer:
        before = observer.serving("dfw", "v1")
        assert len(before) == 2
        apart.deploy("bad:1", "--no-wait")
        eventually(apart.has_crashed, "the end of the bad image is reported")
        (kept,) = observer.serving("dfw", "v1")
        assert kept in before
        for number, restart in enumerate((restart_server, restart_cell, restart_engine)):
            restart(apart)
            works(apart, f"canary-{number}")
            assert observer.serving("dfw", "v1") & before == {kept}
            eventually(lambda: len(apart.platform.ready("shop")) == 1, "1 of 2 is available")
    assert all(any(answer.container == kept for answer in sample) for sample in observer.samples), (
        "the instance that was left did not serve all the time"
    )


def works(shop: Shop, name: str) -> None:
    """Deploy another workload, so that all controllers have reconciled everything."""
    canary = replace(shop, name=name, replicas=1)
    canary.deploy("web:1")
    assert shop.platform.run("destroy", name, "--yes").returncode == 0
