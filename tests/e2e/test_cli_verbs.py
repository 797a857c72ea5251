"""Every verb of the command line once, on every topology: what planes are made of does not show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from datum_compute.cli.groups import VERBS
from tests.e2e.processes import SPACE
from tests.e2e.topologies import Topology

pytestmark = pytest.mark.e2e

DEPLOY = ("deploy", "web", "--image=x.example/web:1", "--city=DFW,ORD", "-y")
INSTANCE = "an instance of web"
# Verb -> the rest of the command, and words that its answer has.
LOOKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("web",), ("Available", "DFW", "ORD")),
    "workloads": ((), ("web", "2/2")),
    "instances": (("describe", INSTANCE, "-o", "json"), ("x.example/web:1",)),
    "explain": (("web",), ("AvailablePlacementFound",)),
    "doctor": ((), ("workload web",)),
    "events": (("web",), ("AvailablePlacementFound",)),
    "quota": ((), ("instances", "2")),
    "access": ((), ("compute",)),
    "cities": (("-o", "json"), ("DFW", "ORD", '"available": "True"')),
    "instance-types": ((), ("d1-standard-2",)),
    "export": (("web",), ("kind: Workload",)),
    "cell": (("list",), ("dfw", "ord", "Ready")),
    "version": ((), ("datum-compute",)),
    "completion": (("bash",), ("datumctl",)),
}
# What simulated machines cannot do is refused in words, with a hint; on pods that is done in
# tests/kubernetes/test_overlay_federation.py.
REFUSED = {
    "logs": (("web",), "is simulated and runs no process"),
    "exec": ((INSTANCE, "--", "true"), "is simulated and runs no process"),
    "instances": (("top",), "is simulated and runs no process"),
    "open": (("web",), "has no port"),
}
CHANGES = ("deploy", "diff", "scale", "restart", "rollout", "destroy")
WITHOUT_PLANES = ("init", "local")


def test_no_verb_is_forgotten() -> None:
    known = {*LOOKS, *REFUSED, *CHANGES, *WITHOUT_PLANES}
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


@pytest.mark.parametrize("verb", LOOKS)
def test_a_verb_that_looks(web: Topology, verb: str) -> None:
    rest, words = LOOKS[verb]
    done = run(web, verb, *rest)
    assert done.returncode == 0, done.stderr
    assert [word for word in words if word not in done.stdout] == [], done.stdout


@pytest.mark.parametrize("verb", REFUSED)
def test_a_verb_that_these_machines_have_no_answer_to(web: Topology, verb: str) -> None:
    rest, words = REFUSED[verb]
    done = run(web, verb, *rest)
    assert done.returncode != 0
    assert words in done.stderr


def test_the_verbs_that_change(topology: Topology, tmp_path: Path) -> None:
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
    stored = topology.api("project/default").find(f"{SPACE}/workloads/{name}")
    assert stored is not None
    sandbox = stored["spec"]["template"]["spec"]["runtime"]["sandbox"]
    assert sandbox["containers"][0]["image"] == "x.example/web:1"
    run("destroy", name, f"--confirm={name}")
    assert topology.run("status", name).returncode == 3
