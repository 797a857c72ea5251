"""Every command once, on every topology."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from datum_compute.cli.groups import VERBS
from tests.e2e.processes import NAMESPACE
from tests.e2e.topologies import Topology

pytestmark = pytest.mark.e2e

DEPLOY = ("deploy", "web", "--image=x.example/web:1", "--city=DFW,ORD", "-y")
INSTANCE = "an instance of web"
# Commands that read: their arguments, and words that the output contains.
READS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("web",), ("Available", "DFW", "ORD")),
    "workloads": ((), ("web", "2/2")),
    "instances": (("describe", INSTANCE, "-o", "json"), ("x.example/web:1",)),
    "explain": (("web",), ("AvailablePlacementFound",)),
    "doctor": ((), ("workload web",)),
    "events": (("web",), ("AvailablePlacementFound",)),
    "quota": (("--city=DFW",), ("instances", "2", "DFW", "WAITING")),
    "access": ((), ("compute",)),
    "cities": (("-o", "json"), ("DFW", "ORD", '"available": "True"')),
    "instance-types": ((), ("d1-standard-2",)),
    "export": (("web",), ("kind: Workload",)),
    "cell": (("list",), ("dfw", "ord", "Ready")),
    "version": ((), ("datum-compute",)),
    "completion": (("bash",), ("datumctl",)),
}
# Commands that simulated instances do not support, and their error.
# tests/kubernetes/test_overlay_federation.py runs them on pods.
UNSUPPORTED = {
    "logs": (("web",), "is simulated and runs no process"),
    "exec": ((INSTANCE, "--", "true"), "is simulated and runs no process"),
    "instances": (("top",), "is simulated and runs no process"),
    "open": (("web",), "has no port"),
}
CHANGES = ("deploy", "diff", "scale", "restart", "rollout", "stop", "start", "destroy")
WITHOUT_PLANES = ("init", "local")


def test_every_command_is_tested() -> None:
    known = {*READS, *UNSUPPORTED, *CHANGES, *WITHOUT_PLANES}
    assert known == {verb.name for verb in VERBS}


@pytest.fixture(scope="module")
def web(topology: Topology) -> Iterator[Topology]:
    done = topology.run(*DEPLOY)
    assert done.returncode == 0, done.stderr
    yield topology
    topology.run("destroy", "web", "--confirm=web")


def run(web: Topology, *arguments: str) -> subprocess.CompletedProcess[str]:
    if INSTANCE in arguments:
        items = json.loads(web.run("instances", "-o", "json").stdout)["items"]
        arguments = tuple(items[0]["name"] if a == INSTANCE else a for a in arguments)
    return web.run(*arguments)


@pytest.mark.parametrize("verb", READS)
def test_a_read_command_prints_the_expected_words(web: Topology, verb: str) -> None:
    rest, words = READS[verb]
    done = run(web, verb, *rest)
    assert done.returncode == 0, done.stderr
    assert [word for word in words if word not in done.stdout] == [], done.stdout


@pytest.mark.parametrize("verb", UNSUPPORTED)
def test_an_unsupported_command_fails_with_the_reason(web: Topology, verb: str) -> None:
    rest, words = UNSUPPORTED[verb]
    done = run(web, verb, *rest)
    assert done.returncode != 0
    assert words in done.stderr


def test_commands_that_write_change_the_workload(topology: Topology, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = topology.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout + done.stderr

    name = "changed"
    run("deploy", name, "--image=x.example/web:1", "--city=DFW", "-y")
    file = tmp_path / "workload.yaml"
    file.write_text(run("export", name).replace("web:1", "web:2"))
    differs = topology.run("diff", f"--file={file}")
    assert "web:2" in differs.stdout, differs.stderr
    assert "web:2" in run("deploy", f"--file={file}", "-y")
    assert "2 instances" in run("scale", name, "--min=2")
    assert "is ready" in run("restart", name)
    run("rollout", "undo", name, "--to-revision=1")
    history = json.loads(run("rollout", "history", name, "-o", "json"))["items"]
    assert history[0]["restores"] == 1
    stored = topology.api("project/default").find(f"{NAMESPACE}/workloads/{name}")
    assert stored is not None
    sandbox = stored["spec"]["template"]["spec"]["runtime"]["sandbox"]
    assert sandbox["containers"][0]["image"] == "x.example/web:1"
    run("stop", name)
    assert "Stopped" in run("status", name)
    run("start", name)
    assert "Available" in run("status", name)
    run("destroy", name, f"--confirm={name}")
    assert topology.run("status", name).returncode == 3
