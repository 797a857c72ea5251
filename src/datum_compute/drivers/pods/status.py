"""The state of a machine, computed from its pod. Pure.

- The messages of the kubelet are part of the message of the state.
- A container that exited before and has no readiness probe of the user counts as crashed until it
  has been up for PROVEN_AFTER_S.
- A pod whose node does not respond is never reported as gone, because it may still run there.
"""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api.compute.instance import ImageRecord
from datum_compute.api.conditions import Reason
from datum_compute.api.core import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
)
from datum_compute.api.meta.timestamps import unix_time
from datum_compute.drivers.container_defaults import render_closed_port
from datum_compute.drivers.driver import MachineState
from datum_compute.drivers.engine_errors import is_registry_unreachable
from datum_compute.drivers.pods.pod_spec import MACHINE, PORT_CHECKED, pod_name

PROVEN_AFTER_S = 10.0

IMAGE_REASONS = frozenset(
    {
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"),
        *("RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"),
    }
)
CONFIGURATION_REASONS = frozenset(
    {
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
        *("PreStartHookError", "PostStartHookError", "PreCreateHookError"),
    }
)
# Reasons of a container whose command was never started.
_START_FAILURES = frozenset({"StartError", "ContainerCannotRun"})
_LINES_MAX = 20


def machine_id_of(pod: Pod) -> str:
    """Return the id of the machine of a pod; empty for a pod that the driver did not create."""
    machine_id = pod.metadata.annotations.get(MACHINE, "")
    parts = machine_id.split("/")
    is_valid = len(parts) == 3 and parts[0] == pod.metadata.namespace
    return machine_id if is_valid and pod_name(machine_id) == pod.metadata.name else ""


def has_ended(pod: Pod) -> bool:
    """Return whether the cluster ended the pod: evicted, preempted or rejected by its node.

    With the restart policy Always nothing else ends a whole pod.
    """
    return pod.status.phase in ("Failed", "Succeeded")


def pod_state(pod: Pod, now_s: float) -> MachineState:
    statuses = pod.status.container_statuses
    if pod.is_terminating:
        return _terminating_state(pod)
    if has_ended(pod):
        reason = _join(pod.status.reason, pod.status.message) or pod.status.phase
        message = f"the cluster ended the pod ({reason}); a new one will be started"
        return MachineState("Pending", Reason.STARTING, message, restarts=_restarts(statuses))
    problem = next(_problems(pod, now_s), None)
    if problem is not None:
        return problem
    if statuses and all(s.state.running is not None for s in statuses):
        return _running_state(pod)
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            message = f"no node accepts the pod: {condition.message or condition.reason}"
            return MachineState("Pending", Reason.UNSCHEDULABLE, message)
    return MachineState("Pending", Reason.STARTING, _progress(pod), restarts=_restarts(statuses))


def _terminating_state(pod: Pod) -> MachineState:
    if pod.status.reason == "NodeLost":
        node = pod.spec.node_name or "its node"
        message = f"{node} does not respond; the pod may still run there"
        return MachineState("Failed", Reason.NOT_READY, message)
    return MachineState("Stopped", Reason.STOPPING, "the pod is being stopped")


def _problems(pod: Pod, now_s: float) -> Iterator[MachineState]:
    """Yield what keeps containers from running. What only the user can solve comes first."""
    statuses = pod.status.container_statuses
    images = {container.name: container.image for container in pod.spec.containers}
    for reasons, reason in (
        (IMAGE_REASONS, Reason.IMAGE_UNAVAILABLE),
        (CONFIGURATION_REASONS, Reason.CONFIGURATION_ERROR),
    ):
        for status in statuses:
            waiting = status.state.waiting
            if waiting is not None and waiting.reason in reasons:
                yield _waiting_problem(
                    status.name,
                    images.get(status.name, ""),
                    reason,
                    waiting,
                    restarts=_restarts(statuses),
                )
    for status in statuses:
        ended = _last_exit(status, now_s, is_probed=_is_probed(pod, status.name))
        if ended is not None:
            yield _crashed_state(pod, status, ended)


def _waiting_problem(
    name: str, image: str, reason: Reason, waiting: ContainerStateWaiting, *, restarts: int
) -> MachineState:
    container = f"container {name}"
    if reason == Reason.IMAGE_UNAVAILABLE:
        container = f"{container}, image {image}"
        if is_registry_unreachable(waiting.message):
            reason = Reason.REGISTRY_UNREACHABLE
    message = f"{container}: {_join(waiting.reason, waiting.message)}"
    return MachineState("Failed", reason, message, restarts=restarts)


def _last_exit(
    status: ContainerStatus, now_s: float, *, is_probed: bool
) -> ContainerStateTerminated | None:
    """Return the last exit of a container that is down, or restarted and not proven yet."""
    last = status.last_state.terminated
    if status.state.terminated is not None:
        return status.state.terminated
    if status.state.waiting is not None:
        return last
    if status.state.running is not None and last is not None and not is_probed:
        started_s = unix_time(status.state.running.started_at or "")
        return last if now_s < started_s + PROVEN_AFTER_S else None
    return None


def _crashed_state(
    pod: Pod, status: ContainerStatus, ended: ContainerStateTerminated
) -> MachineState:
    was_not_started = ended.reason in _START_FAILURES
    lines = [] if was_not_started else ended.message.splitlines()[-_LINES_MAX:]
    return MachineState(
        "Failed",
        reason=Reason.CONFIGURATION_ERROR if was_not_started else Reason.INSTANCE_CRASHING,
        message=exit_message(status.name, ended),
        restarts=_restarts(pod.status.container_statuses),
        exit_code=ended.exit_code,
        last_lines=tuple(lines),
        images=_images(pod),
    )


def exit_message(name: str, ended: ContainerStateTerminated) -> str:
    if ended.reason in _START_FAILURES:
        return f"container {name} cannot be started: {ended.message or ended.reason}"
    if ended.reason == "OOMKilled":
        return (
            f"container {name} ran out of memory and was killed: OOM, exit code {ended.exit_code}"
        )
    return f"container {name} exited with code {ended.exit_code}"


def _running_state(pod: Pod) -> MachineState:
    statuses = pod.status.container_statuses
    ended = [s.last_state.terminated for s in statuses if s.last_state.terminated is not None]
    unready = next((s for s in statuses if not s.ready), None)
    reason, message = "", ""
    if unready is not None:
        reason = Reason.NOT_READY if _has_readiness(pod, unready.name) else Reason.STARTING
        message = _unready_message(pod, unready.name)
    elif (condition := _unready_condition(pod)) is not None:
        reason = Reason.NOT_READY
        message = _join("the pod is not ready", condition.reason, condition.message)
    return MachineState(
        "Running",
        reason=reason,
        message=message,
        restarts=_restarts(statuses),
        exit_code=ended[0].exit_code if ended else None,
        started_at=max(_started_at(s) for s in statuses),
        addresses=tuple(address.ip for address in pod.status.addresses if address.ip),
        images=_images(pod),
    )


def _unready_condition(pod: Pod) -> PodCondition | None:
    """Return the Ready condition of the pod if it is False or Unknown.

    The cluster sets it for a node that does not respond. The containers stay recorded as ready,
    because only the kubelet of that node updates them. A pod without the condition is as ready as
    its containers.
    """
    ready = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    return ready if ready is not None and ready.status in ("False", "Unknown") else None


def _progress(pod: Pod) -> str:
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            return f"container {status.name}: {_join(waiting.reason, waiting.message)}"
    return "the containers are being set up" if pod.spec.node_name else "the pod is being scheduled"


def _images(pod: Pod) -> tuple[ImageRecord, ...]:
    names = {container.name: container.image for container in pod.spec.containers}
    return tuple(
        ImageRecord(name=s.name, image=names.get(s.name, ""), digest=s.image_id.rpartition("@")[2])
        for s in pod.status.container_statuses
        if s.image_id
    )


def _has_readiness(pod: Pod, name: str) -> bool:
    return any(c.name == name and c.readiness_probe is not None for c in pod.spec.containers)


def _is_probed(pod: Pod, name: str) -> bool:
    """Return whether the container has a readiness probe that the user specified."""
    return _has_readiness(pod, name) and not _is_port_checked(pod, name)


def _is_port_checked(pod: Pod, name: str) -> bool:
    return name in pod.metadata.annotations.get(PORT_CHECKED, "").split(",")


def _unready_message(pod: Pod, name: str) -> str:
    container = next((c for c in pod.spec.containers if c.name == name), None)
    if container is not None and _is_port_checked(pod, name):
        port = next((p for p in container.ports if p.protocol == "TCP"), None)
        if port is not None:
            return render_closed_port(port.container_port, port.name)
    return f"container {name} fails its readiness probe"


def _restarts(statuses: list[ContainerStatus]) -> int:
    return sum(status.restart_count for status in statuses)


def _started_at(status: ContainerStatus) -> str:
    running = status.state.running
    return (running.started_at if running is not None else None) or ""


def _join(*parts: str) -> str:
    return ": ".join(filter(None, parts))
