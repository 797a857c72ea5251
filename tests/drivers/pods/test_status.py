"""A pod is reported as ready only if both its containers and the pod itself are."""

from __future__ import annotations

import pytest

from datum_compute.api.core import Pod
from datum_compute.api.meta.codec import from_json
from datum_compute.drivers.driver import MachineState
from datum_compute.drivers.pods.status import pod_state


def state_with(*conditions: dict[str, str]) -> MachineState:
    """Return the state of a pod with these conditions, whose container is ready."""
    container = {
        "name": "app",
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    pod = {
        "metadata": {"name": "web-0", "namespace": "ns"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "web:1"}]},
        "status": {
            "phase": "Running",
            "conditions": list(conditions),
            "containerStatuses": [container],
        },
    }
    return pod_state(from_json(pod, Pod), 2e9)


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_pod_with_a_ready_condition_that_is_not_true_is_not_ready(status: str) -> None:
    """The kubelet of a lost node no longer updates the state of the containers."""
    lost = {"type": "Ready", "status": status, "reason": "NodeNotReady", "message": "no heartbeat"}
    state = state_with(lost)
    assert (state.phase, state.reason) == ("Running", "NotReady")
    assert state.message == "the pod is not ready: NodeNotReady: no heartbeat"


def test_a_pod_that_is_ready_or_has_no_condition_is_ready() -> None:
    for conditions in ([], [{"type": "Ready", "status": "True"}]):
        assert (state_with(*conditions).phase, state_with(*conditions).reason) == ("Running", "")
