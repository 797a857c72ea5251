"""Scale to zero on a real engine: idle instances sleep, and no request is lost."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real, up
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(240)

# A hundred sleeps and wakes in total, most of them in the faster mode.
ROUNDS = {"pause": 70, "stop": 30}
AT_ONCE = 20

MANIFEST = """
apiVersion: compute.datumapis.com/v1alpha
kind: Workload
metadata: {{name: web}}
spec:
  template:
    spec:
      scaleToZero: {{idleAfter: {idle_after}, mode: {mode}}}
      runtime:
        sandbox:
          terminationGracePeriodSeconds: 0
          containers:
            - name: app
              image: {image}
              ports: [{{name: http, port: 8080}}]
              {probe}
  placements:
    - name: default
      cityCodes: [DFW]
      scaleSettings: {{minReplicas: {replicas}}}
"""
PROBE = "readinessProbe: {httpGet: {port: http}, periodSeconds: 1}"


class Containers:
    """States of containers, read over the socket of the engine, which is faster than a command."""

    def __init__(self, engine: TestEngine) -> None:
        self._engine = engine

    def states(self) -> list[str]:
        query = "/v1.40/containers/json?all=true"
        return sorted(container["State"] for container in self._ask(query))

    def count(self, what: str) -> int:
        """Return the number of events of this type for all containers."""
        words = ("events", "--stream=false", "--filter", f"event={what}", "--format", "{{.ID}}")
        return len(self._engine.podman(*words).split())

    def _ask(self, path: str) -> Any:
        asked = http.client.HTTPConnection("engine")
        asked.sock = socket.socket(socket.AF_UNIX)
        asked.sock.connect(self._engine.socket)
        asked.request("GET", path)
        found = json.loads(asked.getresponse().read())
        asked.close()
        return found


class Site:
    """A workload that sleeps, with its URL and the commands of its operator."""

    def __init__(self, platform: Real, engine: TestEngine, folder: Path) -> None:
        self.platform, self.engine = platform, engine
        self.containers = Containers(engine)
        self._file = folder / "web.yaml"

    def deploy(self, mode: str, *, version: int = 1, replicas: int = 1, **words: str) -> None:
        words = {"idle_after": "100ms", "probe": "", **words}
        image = self.engine.image(f"web:{version}")
        text = MANIFEST.format(mode=mode, image=image, replicas=replicas, **words)
        self._file.write_text(text)
        done = self.platform.run("deploy", "-f", str(self._file), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr

    def destroy(self) -> None:
        self.platform.run("destroy", "web", "--yes")
        eventually(lambda: self.containers.states() == [], "all are gone")

    @property
    def url(self) -> str:
        report = json.loads(self.platform.run("status", "web", "-o", "json").stdout)
        (endpoint,) = report["endpoints"]
        return str(endpoint["url"])

    def reasons(self) -> list[tuple[str, str]]:
        """Return status and reason of Available of every instance."""
        return [
            (condition["status"], condition["reason"])
            for instance in self.platform.objects("cell/dfw", "instances")
            for condition in instance["status"]["conditions"]
            if condition["type"] == "Available"
        ]

    def wakes(self) -> float:
        """Return the total number of wakes from the metrics."""
        page = self.platform.kubectl("platform", "get", "--raw", "/metrics")
        found = re.findall(r"^datum_wakes_total{.*} (\S+)$", page, re.MULTILINE)
        return sum(map(float, found))

    def falls_asleep(self, state: str, replicas: int = 1) -> None:
        all_sleep = [state] * replicas
        eventually(lambda: self.containers.states() == all_sleep, f"all are {state}")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode().strip())


@pytest.fixture(scope="module")
def shared_site(engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One platform for all tests, because its start takes longer than a wake."""
    folder = tmp_path_factory.mktemp("sleeping")
    platform = Real(folder / "state")
    up(platform, engine)
    yield Site(platform, engine, folder)
    platform.down()


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    yield shared_site
    shared_site.destroy()


@pytest.mark.parametrize(("mode", "state"), [("pause", "paused"), ("stop", "exited")])
def test_a_hundred_sleeps_lose_no_request(site: Site, mode: str, state: str) -> None:
    site.deploy(mode, probe=PROBE)
    url = site.url
    for number in range(ROUNDS[mode]):
        if number % 3:
            site.falls_asleep(state)
        else:
            time.sleep(0.09 + number / 1000)  # at the moment when it falls asleep
        assert get(url) == "v1"
    site.falls_asleep(state)
    eventually(lambda: site.reasons() == [("True", "Asleep")], "it is reported as asleep")
    (instance,) = site.platform.objects("project/default", "instances")
    wake = instance["status"]["lastWake"]
    assert (wake["mode"], wake.get("failure", "")) == (mode, "")
    assert wake["engineMilliseconds"] > 0
    (server,) = site.platform.objects("cell/dfw", "servers")
    assert server["status"].get("restarts", 0) == 0, "to sleep is not to crash"
    described = site.platform.run("instances", "describe", instance["metadata"]["name"]).stdout
    assert "Last wake" in described


@pytest.mark.parametrize(("mode", "woken_by"), [("pause", "unpause"), ("stop", "start")])
def test_many_first_requests_wake_one_instance_once(site: Site, mode: str, woken_by: str) -> None:
    site.deploy(mode, replicas=2, idle_after="300ms")
    site.falls_asleep("paused" if mode == "pause" else "exited", replicas=2)
    before, answers = site.containers.count(woken_by), []
    url = site.url
    asking = [threading.Thread(target=lambda: answers.append(get(url))) for _ in range(AT_ONCE)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert answers == ["v1"] * AT_ONCE
    woken = site.containers.count(woken_by) - before
    # More than ten concurrent requests make it busy, so the other instance is woken too.
    assert woken in (1, 2)


def test_sleeping_instances_are_replaced_without_a_wake(site: Site) -> None:
    site.deploy("pause", replicas=2, idle_after="200ms")
    site.falls_asleep("paused", replicas=2)
    servers = {server["metadata"]["uid"] for server in site.platform.objects("cell/dfw", "servers")}
    woken = site.wakes()
    site.deploy("pause", version=2, replicas=2, idle_after="200ms")
    assert site.wakes() == woken, "no instance was woken"
    after = {server["metadata"]["uid"] for server in site.platform.objects("cell/dfw", "servers")}
    assert not servers & after
    assert get(site.url) == "v2"


def test_a_failed_wake_is_reported_and_the_connection_closed(site: Site) -> None:
    """The process of this image runs only once."""
    once = "test -e /tmp/once && echo worn out && exit 7; touch /tmp/once; exec httpd -f -p 8080"
    site.engine.publish("web:9", "v9", f'CMD ["sh", "-c", "{once} -h /www"]')
    site.deploy("stop", version=9)
    url = site.url
    site.falls_asleep("exited")
    with pytest.raises(http.client.RemoteDisconnected):
        get(url)
    eventually(
        lambda: "exited with code 7" in site.platform.run("events", "web").stdout,
        "the failure is reported",
    )
    eventually(lambda: site.reasons() == [("False", "InstanceCrashing")], "it is not available")
    (instance,) = site.platform.objects("project/default", "instances")
    assert instance["status"]["lastWake"]["failure"] == "container app exited with code 7"


def test_sleeping_instances_survive_the_platform_and_wake_on_the_first_connection(
    site: Site,
) -> None:
    for mode, state in (("pause", "paused"), ("stop", "exited")):
        site.deploy(mode)
        url = site.url
        site.falls_asleep(state)
        eventually(lambda: site.reasons() == [("True", "Asleep")], "it is reported as asleep")
        site.platform.kill()
        assert site.containers.states() == [state]
        up(site.platform, site.engine)
        eventually(lambda: site.reasons() == [("True", "Asleep")], "it is still asleep")
        assert site.containers.states() == [state]
        assert site.url == url, "the published port stays"
        assert get(url) == "v1"
        assert site.platform.ready("web")


def test_a_cell_wakes_its_instances_while_the_central_process_is_down(
    engine: TestEngine, tmp_path: Path
) -> None:
    platform = Real(tmp_path / "state")
    driver = ("--driver", "containers", "--engine", engine.socket, "--cells", "dfw")
    done = platform.up("--processes", *driver)
    assert done.returncode == 0, done.stderr
    site = Site(platform, engine, tmp_path)
    site.deploy("stop")
    url, pid = site.url, platform.pid
    site.falls_asleep("exited")
    os.kill(pid, signal.SIGKILL)
    try:
        for _ in range(3):
            assert get(url) == "v1"
            site.falls_asleep("exited")
    finally:
        assert platform.up("--processes", *driver).returncode == 0
        site.destroy()
        platform.down()
