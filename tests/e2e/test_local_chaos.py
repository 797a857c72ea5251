"""``local chaos`` and ``--latency``: faults on purpose, what a platform says meanwhile, and that it
mends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.platform import LocalPlatform, eventually
from tests.e2e.processes import (
    HUB,
    INSTANCES,
    SHORT,
    SPACE,
    Api,
    Processes,
    condition,
    named,
    workload,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def topology(embedded_topology: Processes) -> Processes:
    return embedded_topology


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """In one process, and everything takes 30 ms longer."""
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    platform = LocalPlatform(tmp_path / "state")
    done = platform.up("--port", "0", "--cells", "dfw,iad", "--latency", "30ms")
    assert done.returncode == 0, done.stderr
    yield Processes(platform.state, ("dfw", "iad"))
    platform.down()


def chaos(running: Processes, *words: str) -> str:
    done = running.run("local", "chaos", *words)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def ready(project: Api, name: str) -> list[str]:
    return sorted(condition(i, "Ready")[0] for i in named(project, INSTANCES, name))


def scaled(project: Api, name: str, replicas: int, *cities: str) -> None:
    wanted = workload(name, *cities, replicas=replicas)["spec"]
    project.patch(f"{SPACE}/workloads/{name}", {"spec": wanted})


def test_a_platform_in_one_process_is_far_away_cut_slow_and_crashed_and_mends(
    far: Processes,
) -> None:
    project, cities = far.api("project/default"), ("DFW", "IAD")
    project.create(f"{SPACE}/workloads", workload("web", *cities))
    eventually(lambda: ready(project, "web") == ["True", "True"], "it runs far away")

    assert "cell/dfw: cut off" in chaos(far, "cut", "dfw")
    eventually(lambda: ready(project, "web") == ["True", "Unknown"], "one city is not heard of")
    assert "has not answered since" in far.run("status", "web").stdout
    assert "cell/dfw: cut off" in chaos(far, "status")
    assert "Healed: cell/dfw" in chaos(far, "heal", "dfw")
    eventually(lambda: ready(project, "web") == ["True", "True"], "it is back")

    chaos(far, "cut", "hub")
    scaled(project, "web", 2, *cities)
    chaos(far, "slow", "dfw", "--by=100ms")
    chaos(far, "heal", "hub")
    eventually(lambda: ready(project, "web") == ["True"] * 4, "what was asked for meanwhile", 60)

    chaos(far, "crash", "iad", "--for=4s")
    eventually(lambda: ready(project, "web").count("Unknown") == 2, "a crash is seen")
    eventually(lambda: ready(project, "web") == ["True"] * 4, "and is over by itself", 60)
    assert "Nothing" not in chaos(far, "status"), "dfw is slow, until somebody heals it"
    chaos(far, "heal")
    assert "Nothing is broken" in chaos(far, "status")


def test_processes_are_stopped_and_killed_and_what_cannot_be_is_said(
    topology: Processes, project: Api
) -> None:
    project.create(f"{SPACE}/workloads", workload("chaotic", "DFW", "ORD"))
    eventually(lambda: ready(project, "chaotic") == ["True", "True"], "it runs")
    refused = topology.run("local", "chaos", "slow", "dfw")
    assert refused.returncode == 2
    assert "cut off or crash only" in refused.stderr

    chaos(topology, "cut", "dfw")
    eventually(lambda: ready(project, "chaotic") == ["True", "Unknown"], "one is not heard of")
    chaos(topology, "heal", "dfw")
    eventually(lambda: ready(project, "chaotic") == ["True", "True"], "it is back")

    chaos(topology, "cut", "hub")
    chaos(topology, "heal", "hub")
    before = topology.pid("ord"), topology.pid(HUB)
    chaos(topology, "crash", "ord")
    topology.up()
    eventually(lambda: ready(project, "chaotic") == ["True", "True"], "what died is there again")
    assert (topology.pid("ord") != before[0], topology.pid(HUB)) == (True, before[1])
