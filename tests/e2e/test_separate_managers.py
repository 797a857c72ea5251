"""Separate processes: planes without controllers, two managers, and a cell that joined."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.processes.local_platform import BIN, eventually
from tests.e2e.processes import CLUSTERS, NAMESPACE, Api, Processes, condition, workload

pytestmark = pytest.mark.e2e


QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
IMAGE = "x.example/web:2"


def start_manager(running: Processes, name: str, group: str) -> subprocess.Popen[bytes]:
    reach = f"--kubeconfig={running.state / 'manager.kubeconfig'}"
    own = [f"--enable-{group}", f"--state-dir={running.state / name}"]
    return subprocess.Popen([str(BIN / "compute-manager"), reach, *own], **QUIET)


@pytest.fixture
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    running = Processes(tmp_path_factory.mktemp("separate") / "state", ())
    running.state.mkdir(mode=0o700)
    server = [str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers"]
    flags = ["--no-cells-inside", f"--state-dir={running.state}"]
    started = [subprocess.Popen([*server, *flags], **QUIET)]
    try:
        eventually((running.state / "manager.kubeconfig").exists, "the planes are served")
        groups = ("management-controllers", "propagator")
        started.extend(start_manager(running, group, group) for group in groups)
        yield running
    finally:
        for name in list(running.children):
            running.terminate(name)
        codes = []
        for process in reversed(started):  # a manager needs the planes to release its lease
            process.send_signal(signal.SIGTERM)
            codes.append(process.wait(timeout=20))
    killed = -signal.SIGKILL
    assert set(codes) <= {0, killed}, "every process exits with code 0 or was killed"


def test_other_managers_finish_a_rollout_after_the_first_were_killed(
    separate: Processes,
) -> None:
    _join_cell(separate)
    hub, project = separate.api("hub"), separate.api("project/default")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "True", "the cell is Ready"
    )
    project.create(f"{NAMESPACE}/workloads", workload("separate", "DFW", replicas=3))
    eventually(lambda: _ready_and_updated(project) == (3, 3), "it is ready")
    _kill_managers_in_a_rollout(separate, project)


def _kill_managers_in_a_rollout(separate: Processes, project: Api) -> None:
    """Kill both managers after a change; their successors wait until the leases expire."""
    leading = _manager_pids(separate)
    newer = workload("separate", "DFW", replicas=3, image=IMAGE)["spec"]
    project.patch(f"{NAMESPACE}/workloads/separate", {"spec": newer})
    for pid in leading:
        os.kill(pid, signal.SIGKILL)
    groups = ("management-controllers", "propagator")
    others = [start_manager(separate, f"{group}-2", group) for group in groups]
    try:
        eventually(lambda: _ready_and_updated(project) == (3, 3), "the new image is rolled out", 60)
    finally:
        for other in others:
            other.send_signal(signal.SIGTERM)
        codes = [other.wait(timeout=20) for other in others]
    assert codes == [0, 0]


def _manager_pids(separate: Processes) -> list[int]:
    """Return the processes whose command line contains the kubeconfig of this platform."""
    mark = f"--kubeconfig={separate.state / 'manager.kubeconfig'}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if mark in words:
            found.append(int(entry.name))
    return found


def _ready_and_updated(project: Api) -> tuple[int, int]:
    """Return ready and updated replicas, zero if an older generation was observed."""
    found = project.request("GET", f"{NAMESPACE}/workloads/separate")
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return 0, 0
    return status.get("readyReplicas", 0), status.get("updatedReplicas", 0)


def _join_cell(separate: Processes) -> None:
    created = separate.run("cell", "token", "-o", "json")
    assert created.returncode == 0, created.stderr
    token = separate.state / "token.json"
    token.write_text(created.stdout)
    directory = separate.directory("dfw")
    flags = ("--name=dfw", "--city=DFW", f"--token-file={token}", f"--state-dir={directory}")
    joined = separate.run("cell", "join", *flags)
    assert joined.returncode == 0, joined.stderr
    separate.start("dfw")
