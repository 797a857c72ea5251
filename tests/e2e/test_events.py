"""Events of a workload in ``kubectl describe`` and ``kubectl get events``."""

from __future__ import annotations

import pytest

from testkit.processes.local_platform import LocalPlatform, eventually
from tests.e2e.test_deploy import DEPLOY

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def test_describe_and_get_events_show_the_events_of_a_workload(platform: LocalPlatform) -> None:
    deployed = platform.run(*DEPLOY)
    assert deployed.returncode == 0, deployed.stderr

    def description() -> str:
        return platform.kubectl("project/default", "describe", "workloads", "web")

    eventually(
        lambda: "AvailablePlacementFound" in description(), "describe shows the Available event"
    )
    events = description().partition("\nEvents:")[2]
    assert "WorkloadDeploymentCreated" in events
    assert "compute-manager" in events
    listed = platform.kubectl("project/default", "get", "events")
    assert "instance/" in listed
    assert "InstanceCreated" in listed


def test_events_for_a_workload_show_each_step(platform: LocalPlatform) -> None:
    deployed = platform.run(*DEPLOY)
    assert deployed.returncode == 0, deployed.stderr

    def listing() -> str:
        return platform.kubectl("project/default", "events", "--for", "workload/web")

    def expect(*reasons: str) -> None:
        eventually(lambda: all(r in listing() for r in reasons), f"events with {reasons}")

    expect("WorkloadDeploymentCreated", "InstanceCreated", "Available", "AvailablePlacementFound")
    assert platform.run("scale", "web", "--min=2", "-y").returncode == 0
    expect("Scaled from 1 to 2 instances")
    assert platform.run("destroy", "web", "-y").returncode == 0
    expect("Terminating", "InstanceRemoved", "Deleted")
