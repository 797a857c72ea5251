"""Everything apart: planes without controllers, managers beside them, and a cell that joined."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.processes.local_platform import BIN, eventually
from tests.e2e.processes import CLUSTERS, SPACE, Api, Processes, condition, workload

pytestmark = pytest.mark.e2e


QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
IMAGE = "x.example/web:2"


def a_manager(running: Processes, name: str, group: str) -> subprocess.Popen[bytes]:
    reach = f"--kubeconfig={running.state / 'manager.kubeconfig'}"
    own = [f"--enable-{group}", f"--state-dir={running.state / name}"]
    return subprocess.Popen([str(BIN / "compute-manager"), reach, *own], **QUIET)


@pytest.fixture
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    running = Processes(tmp_path_factory.mktemp("apart") / "state", ())
    running.state.mkdir(mode=0o700)
    server = [str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers"]
    flags = ["--no-cells-inside", f"--state-dir={running.state}"]
    started = [subprocess.Popen([*server, *flags], **QUIET)]
    try:
        eventually((running.state / "manager.kubeconfig").exists, "the planes are served")
        groups = ("management-controllers", "propagator")
        started.extend(a_manager(running, group, group) for group in groups)
        yield running
    finally:
        for name in list(running.children):
            running.terminate(name)
        codes = []
        for process in reversed(started):  # whoever gives back a lease needs the planes for it
            process.send_signal(signal.SIGTERM)
            codes.append(process.wait(timeout=20))
    killed = -signal.SIGKILL
    assert set(codes) <= {0, killed}, "who was not killed stops in an orderly way"


def test_managers_work_with_a_cell_that_has_joined_and_another_goes_on_when_they_are_killed(
    apart: Processes,
) -> None:
    _join(apart)
    hub, project = apart.api("hub"), apart.api("project/default")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "True", "the cell is heard"
    )
    project.create(f"{SPACE}/workloads", workload("apart", "DFW", replicas=3))
    eventually(lambda: _ready(project) == (3, 3), "it serves")
    _killed_in_a_rollout(apart, project)


def _killed_in_a_rollout(apart: Processes, project: Api) -> None:
    """Both managers die with the news half told; others wait until their leases are over."""
    leading = _managers(apart)
    newer = workload("apart", "DFW", replicas=3, image=IMAGE)["spec"]
    project.patch(f"{SPACE}/workloads/apart", {"spec": newer})
    for pid in leading:
        os.kill(pid, signal.SIGKILL)
    groups = ("management-controllers", "propagator")
    others = [a_manager(apart, f"{group}-2", group) for group in groups]
    try:
        eventually(lambda: _ready(project) == (3, 3), "the others have rolled it out", 60)
    finally:
        for other in others:
            other.send_signal(signal.SIGTERM)
        codes = [other.wait(timeout=20) for other in others]
    assert codes == [0, 0]


def _managers(apart: Processes) -> list[int]:
    """Those of this platform, by their command lines."""
    mark = f"--kubeconfig={apart.state / 'manager.kubeconfig'}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if mark in words:
            found.append(int(entry.name))
    return found


def _ready(project: Api) -> tuple[int, int]:
    """Of the newest generation."""
    found = project.ask("GET", f"{SPACE}/workloads/apart")
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return 0, 0
    return status.get("readyReplicas", 0), status.get("updatedReplicas", 0)


def _join(apart: Processes) -> None:
    made = apart.run("cell", "token", "-o", "json")
    assert made.returncode == 0, made.stderr
    token = apart.state / "token.json"
    token.write_text(made.stdout)
    directory = apart.directory("dfw")
    flags = ("--name=dfw", "--city=DFW", f"--token-file={token}", f"--state-dir={directory}")
    joined = apart.run("cell", "join", *flags)
    assert joined.returncode == 0, joined.stderr
    apart.start("dfw")
