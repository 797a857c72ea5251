"""``local chaos``: injected faults, what the platform reports meanwhile, and its recovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.local_platform import LocalPlatform, eventually
from tests.e2e.processes import (
    CENTER,
    INSTANCES,
    NAMESPACE,
    SHORT_TIMEOUTS,
    Api,
    Processes,
    condition,
    objects_of,
    workload,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def topology(embedded_topology: Processes) -> Processes:
    return embedded_topology


@pytest.fixture
def single_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """A platform in one process."""
    for name, value in SHORT_TIMEOUTS.items():
        monkeypatch.setenv(name, value)
    platform = LocalPlatform(tmp_path / "state")
    done = platform.up("--port", "0", "--cells", "dfw,iad")
    assert done.returncode == 0, done.stderr
    yield Processes(platform.state, ("dfw", "iad"))
    platform.down()


def chaos(running: Processes, *words: str) -> str:
    done = running.run("local", "chaos", *words)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def ready(project: Api, name: str) -> list[str]:
    return sorted(condition(i, "Ready")[0] for i in objects_of(project, INSTANCES, name))


def scale(project: Api, name: str, replicas: int, *cities: str) -> None:
    desired = workload(name, *cities, replicas=replicas)["spec"]
    project.patch(f"{NAMESPACE}/workloads/{name}", {"spec": desired})


def test_a_platform_in_one_process_recovers_from_every_fault(
    single_process: Processes,
) -> None:
    project, cities = single_process.api("project/default"), ("DFW", "IAD")
    project.create(f"{NAMESPACE}/workloads", workload("web", *cities))
    eventually(lambda: ready(project, "web") == ["True", "True"], "it runs")

    assert "cell/dfw: cut off" in chaos(single_process, "cut", "dfw")
    eventually(lambda: ready(project, "web") == ["True", "Unknown"], "the cut cell is unknown")
    assert "has not answered since" in single_process.run("status", "web").stdout
    assert "cell/dfw: cut off" in chaos(single_process, "status")
    assert "Healed: cell/dfw" in chaos(single_process, "heal", "dfw")
    eventually(lambda: ready(project, "web") == ["True", "True"], "both are ready again")

    chaos(single_process, "cut", "hub")
    scale(project, "web", 2, *cities)
    chaos(single_process, "slow", "dfw", "--by=100ms")
    chaos(single_process, "heal", "hub")
    eventually(
        lambda: ready(project, "web") == ["True"] * 4,
        "the change made during the outage is rolled out",
        60,
    )

    chaos(single_process, "crash", "iad", "--for=4s")
    eventually(lambda: ready(project, "web").count("Unknown") == 2, "the crashed cell is unknown")
    eventually(lambda: ready(project, "web") == ["True"] * 4, "the crash ends without heal", 60)
    assert "No faults" not in chaos(single_process, "status"), "dfw stays slow until it is healed"
    chaos(single_process, "heal")
    assert "No faults are active" in chaos(single_process, "status")


def test_processes_recover_from_cuts_and_crashes_and_slow_is_refused(
    topology: Processes, project: Api
) -> None:
    project.create(f"{NAMESPACE}/workloads", workload("chaotic", "DFW", "ORD"))
    eventually(lambda: ready(project, "chaotic") == ["True", "True"], "it runs")
    refused = topology.run("local", "chaos", "slow", "dfw")
    assert refused.returncode == 2
    assert "only cut and crash are possible" in refused.stderr

    chaos(topology, "cut", "dfw")
    eventually(lambda: ready(project, "chaotic") == ["True", "Unknown"], "the cut cell is unknown")
    chaos(topology, "heal", "dfw")
    eventually(lambda: ready(project, "chaotic") == ["True", "True"], "both are ready again")

    chaos(topology, "cut", "hub")
    chaos(topology, "heal", "hub")
    before = topology.pid("ord"), topology.pid(CENTER)
    chaos(topology, "crash", "ord")
    topology.up()
    eventually(
        lambda: ready(project, "chaotic") == ["True", "True"], "the crashed cell is ready again"
    )
    assert (topology.pid("ord") != before[0], topology.pid(CENTER)) == (True, before[1])
