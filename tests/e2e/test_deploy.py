"""Deploy and destroy a workload in one city, end to end."""

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
    """Return the objects of a workload named web on all planes."""
    return [
        f"{context} {o['kind']} {o['metadata']['name']}"
        for context in ("platform", "project/default", "hub", "cell/dfw")
        for o in platform.objects(context, OURS)
        if o["metadata"]["name"].startswith(("web", "city-"))
    ]


def snapshot(platform: LocalPlatform) -> dict[str, str]:
    """Return all objects of all planes; an equal snapshot means that nothing was written."""
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


def test_kubectl_apply_deploys_and_kubectl_delete_destroys(platform: LocalPlatform) -> None:
    platform.kubectl("project/default", "apply", "-f", str(EXAMPLE))
    platform.kubectl(
        "project/default", "wait", "--for=condition=Available", "workload/web", "--timeout=30s"
    )
    eventually(
        lambda: len(platform.objects("project/default", "instances")) == 2,
        "both instances are listed",
    )
    on_cell = platform.objects("cell/dfw", "servers")
    assert [server["status"]["phase"] for server in on_cell].count("Running") >= 1
    platform.kubectl("project/default", "delete", "-f", str(EXAMPLE))
    eventually(lambda: not leftovers(platform), "every plane is empty")


def test_a_restarted_platform_writes_nothing(platform: LocalPlatform) -> None:
    assert platform.run(*DEPLOY).returncode == 0
    eventually(
        lambda: (
            [
                w["status"]["conditions"][0]["status"] for w in platform.objects("hub", "works")
            ].count("True")
            == 2
        ),
        "both Works are applied",
    )
    before = snapshot(platform)
    platform.kill()
    assert platform.up().returncode == 0
    assert snapshot(platform) == before


def test_a_platform_killed_during_a_deploy_completes_it(platform: LocalPlatform) -> None:
    started = platform.run(*DEPLOY, "--no-wait")
    assert started.returncode == 0, started.stderr
    platform.kill()
    assert platform.up().returncode == 0
    finished = platform.run(*DEPLOY)
    assert finished.returncode == 0, finished.stderr
    assert len(platform.objects("cell/dfw", "servers")) == 1


def test_an_unknown_city_is_refused_with_the_available_ones(
    platform: LocalPlatform,
) -> None:
    refused = platform.run("deploy", "web", "--image=web:1", "--city=XXX", "-y", "--timeout=3s")
    assert refused.returncode == 2
    assert "there are: DFW" in refused.stderr


def test_a_token_reaches_its_own_plane_only(platform: LocalPlatform) -> None:
    config = platform.kubectl("project/default", "config", "view", "--raw", "-o", "json")
    users = {u["name"]: u["user"]["token"] for u in json.loads(config)["users"]}
    other_plane = Kubectl(platform.kubeconfig, "hub", (f"--token={users['project/default']}",))
    assert "forbidden" in other_plane.error_of("get", "works", "--all-namespaces").lower()


@pytest.fixture
def separate_managers(stopped_platform: LocalPlatform) -> Iterator[LocalPlatform]:
    """Planes without controllers, and three managers for the controllers."""
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server"]
    server = subprocess.Popen(
        [*command, "--state-dir", str(stopped_platform.state), "--no-controllers"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    processes = [server]
    try:
        eventually(stopped_platform.manager_kubeconfig.exists, "the planes are served")
        manager = [
            str(BIN / "compute-manager"),
            f"--kubeconfig={stopped_platform.manager_kubeconfig}",
            f"--state-dir={stopped_platform.state / 'manager'}",
        ]
        groups = (
            ["--enable-management-controllers"],
            ["--enable-propagator"],
            ["--enable-cell-controllers"],
        )
        processes += [
            subprocess.Popen([*manager, *group], stderr=subprocess.DEVNULL) for group in groups
        ]
        yield stopped_platform
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=15) for process in processes]
    assert codes == [0] * len(processes), "every process exits with code 0"


def test_controllers_in_separate_processes_deploy_and_destroy(
    separate_managers: LocalPlatform,
) -> None:
    deployed = separate_managers.run(*DEPLOY)
    assert deployed.returncode == 0, deployed.stderr
    assert separate_managers.run("destroy", "web", "-y").returncode == 0
    eventually(lambda: not leftovers(separate_managers), "every plane is empty")


def test_a_user_without_kubeconfig_gets_the_command_that_starts_a_platform(tmp_path: Path) -> None:
    lost = subprocess.run(
        [str(BIN / "datumctl"), "compute", "status", "web"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert lost.returncode != 0
    assert "local up" in lost.stderr
