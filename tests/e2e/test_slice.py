"""One workload, one city, end to end over the real socket: the walking skeleton."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import BIN, LocalPlatform, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "web.yaml"
OURS = "workloads,workloaddeployments,instances,servers,resourcebindings,works,propagationpolicies"
DEPLOY = ("deploy", "web", "--image=ghcr.io/example/web:1.0", "--city=DFW", "-y")


def leftovers(platform: LocalPlatform) -> list[str]:
    """What any plane holds of a workload named web."""
    return [
        f"{context} {o['kind']} {o['metadata']['name']}"
        for context in ("platform", "project/default", "hub", "cell/dfw")
        for o in platform.objects(context, OURS)
        if o["metadata"]["name"].startswith(("web", "city-"))
    ]


def identities(platform: LocalPlatform) -> dict[str, str]:
    """Version and uid of everything on every plane: equal means that nothing was written."""
    return {
        f"{context}/{o['kind']}/{o['metadata']['name']}": json.dumps(o, sort_keys=True)
        for context in ("project/default", "hub", "cell/dfw")
        for o in platform.objects(context, OURS)
    }


def test_deploy_shows_the_workload_on_every_plane_and_destroy_removes_it(
    platform: LocalPlatform,
) -> None:
    deployed = platform.run(*DEPLOY)
    assert deployed.returncode == 0, deployed.stderr
    status = platform.run("status", "web")
    assert "Available" in status.stdout
    assert "DFW" in status.stdout

    (instance,) = platform.objects("project/default", "instances")
    (on_cell,) = platform.objects("cell/dfw", "instances")
    (on_hub,) = platform.objects("hub", "instances")
    (server,) = platform.objects("cell/dfw", "servers")
    names = {o["metadata"]["name"] for o in (instance, on_cell, on_hub, server)}
    assert len(names) == 1
    assert len({o["metadata"]["uid"] for o in (instance, on_cell, on_hub)}) == 3
    assert instance["status"] == on_cell["status"]
    assert server["status"]["phase"] == "Running"

    destroyed = platform.run("destroy", "web", "-y")
    assert destroyed.returncode == 0, destroyed.stderr
    eventually(lambda: not leftovers(platform), "every plane is empty")


def test_kubectl_apply_does_the_same(platform: LocalPlatform) -> None:
    platform.kubectl("project/default", "apply", "-f", str(EXAMPLE))
    platform.kubectl(
        "project/default", "wait", "--for=condition=Available", "workload/web", "--timeout=30s"
    )
    eventually(
        lambda: len(platform.objects("project/default", "instances")) == 2, "both instances show"
    )
    on_cell = platform.objects("cell/dfw", "servers")
    assert [server["status"]["phase"] for server in on_cell].count("Running") >= 1
    platform.kubectl("project/default", "delete", "-f", str(EXAMPLE))
    eventually(lambda: not leftovers(platform), "every plane is empty")


def test_a_restart_changes_nothing(platform: LocalPlatform) -> None:
    assert platform.run(*DEPLOY).returncode == 0
    eventually(
        lambda: (
            [
                w["status"]["conditions"][0]["status"] for w in platform.objects("hub", "works")
            ].count("True")
            == 2
        ),
        "the hub has settled",
    )
    before = identities(platform)
    platform.kill()
    assert platform.up().returncode == 0
    assert identities(platform) == before


def test_killed_in_the_middle_of_a_deploy_it_goes_on(platform: LocalPlatform) -> None:
    asked = platform.run(*DEPLOY, "--no-wait")
    assert asked.returncode == 0, asked.stderr
    platform.kill()
    assert platform.up().returncode == 0
    finished = platform.run(*DEPLOY)
    assert finished.returncode == 0, finished.stderr
    assert len(platform.objects("cell/dfw", "servers")) == 1


def test_a_city_that_the_project_has_not_is_refused_with_those_it_has(
    platform: LocalPlatform,
) -> None:
    refused = platform.run("deploy", "web", "--image=web:1", "--city=XXX", "-y", "--timeout=3s")
    assert refused.returncode == 2
    assert "there are: DFW" in refused.stderr


def test_a_token_reaches_its_own_plane_only(platform: LocalPlatform) -> None:
    config = platform.kubectl("project/default", "config", "view", "--raw", "-o", "json")
    users = {u["name"]: u["user"]["token"] for u in json.loads(config)["users"]}
    stranger = Kubectl(platform.kubeconfig, "hub", (f"--token={users['project/default']}",))
    assert "forbidden" in stranger.refused("get", "works", "--all-namespaces").lower()


@pytest.fixture
def served_only(stopped: LocalPlatform) -> Iterator[LocalPlatform]:
    """The planes without controllers, and a compute-manager beside them."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server"]
    server = subprocess.Popen(
        [*command, "--state-dir", str(stopped.state), "--no-controllers"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    processes = [server]
    try:
        eventually(stopped.manager_kubeconfig.exists, "the planes are served")
        manager = [
            str(BIN / "compute-manager"),
            f"--kubeconfig={stopped.manager_kubeconfig}",
            f"--state-dir={stopped.state / 'manager'}",
        ]
        groups = (
            ["--enable-management-controllers"],
            ["--enable-propagator"],
            ["--enable-cell-controllers"],
        )
        processes += [
            subprocess.Popen([*manager, *group], stderr=subprocess.DEVNULL) for group in groups
        ]
        yield stopped
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=15) for process in processes]
    assert codes == [0] * len(processes), "every process stops in an orderly way"


def test_the_same_controllers_run_in_processes_of_their_own(served_only: LocalPlatform) -> None:
    deployed = served_only.run(*DEPLOY)
    assert deployed.returncode == 0, deployed.stderr
    assert served_only.run("destroy", "web", "-y").returncode == 0
    eventually(lambda: not leftovers(served_only), "every plane is empty")


def test_a_user_without_home_or_local_platform_gets_the_next_step(tmp_path: Path) -> None:
    lost = subprocess.run(
        [str(BIN / "datumctl"), "compute", "status", "web"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert lost.returncode != 0
    assert "local up" in lost.stderr
