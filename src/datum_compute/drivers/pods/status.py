"""A pod as the state of a machine: what the kubelet says, in our words, its own kept. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from datum_compute.api.containeroptions import ImageRecord
from datum_compute.api.pod import ContainerStatus, Pod, PodCondition, Terminated
from datum_compute.api.reasons import Reason
from datum_compute.drivers.container_defaults import render_closed_port
from datum_compute.drivers.driver import MachineState
from datum_compute.drivers.pods.pod_spec import MACHINE, PORT_CHECKED, pod_name
from datum_compute.drivers.registry_errors import is_registry_unreachable

# A container that ended before and has no probe of the user has to stay up for this long.
PROVEN_S = 10.0

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
# Of a container that never came to run what it was told to.
_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
_LINES_MAX = 20


def machine_id_of(pod: Pod) -> str:
    """The machine that a pod is; empty for one that is none of ours."""
    machine_id = pod.metadata.annotations.get(MACHINE, "")
    parts = machine_id.split("/")
    ours = len(parts) == 3 and parts[0] == pod.metadata.namespace
    return machine_id if ours and pod_name(machine_id) == pod.metadata.name else ""


def has_ended(pod: Pod) -> bool:
    """Ended for good by the cluster (evicted, pushed aside, refused by its node): with our restart
    policy nothing else ends a whole pod."""
    return pod.status.phase in ("Failed", "Succeeded")


def pod_state(pod: Pod, now_s: float) -> MachineState:
    statuses = pod.status.container_statuses
    if pod.is_terminating:
        return _leaving(pod)
    if has_ended(pod):
        why = ": ".join(filter(None, (pod.status.reason, pod.status.message))) or pod.status.phase
        told = f"the cluster ended the pod ({why}); another is started"
        return MachineState("Pending", Reason.STARTING, told, restarts=_restarts(statuses))
    problem = next(_problems(pod, now_s), None)
    if problem is not None:
        return problem
    if statuses and all(s.state.running is not None for s in statuses):
        return _running(pod)
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            words = condition.message or condition.reason
            return MachineState("Pending", Reason.UNSCHEDULABLE, f"no node takes the pod: {words}")
    return MachineState("Pending", Reason.STARTING, _stage(pod), restarts=_restarts(statuses))


def _leaving(pod: Pod) -> MachineState:
    """Whether it still runs on a node that does not answer nobody knows: it is not called gone."""
    if pod.status.reason == "NodeLost":
        node = pod.spec.node_name or "its node"
        told = f"{node} does not answer; whether the pod still runs there is not known"
        return MachineState("Failed", Reason.NOT_READY, told)
    return MachineState("Stopped", Reason.STOPPING, "the pod is being stopped")


def _problems(pod: Pod, now_s: float) -> Iterator[MachineState]:
    """What keeps containers from running; that which only the user can remove speaks first."""
    statuses = pod.status.container_statuses
    asked = {container.name: container for container in pod.spec.containers}
    for reasons, reason in (
        (IMAGE_REASONS, Reason.IMAGE_UNAVAILABLE),
        (CONFIGURATION_REASONS, Reason.CONFIGURATION_ERROR),
    ):
        for status in statuses:
            waiting = status.state.waiting
            if waiting is not None and waiting.reason in reasons:
                image = asked[status.name].image if status.name in asked else ""
                what = f"image {image}" if reason == Reason.IMAGE_UNAVAILABLE else ""
                about = f"container {status.name}{f', {what}' if what else ''}"
                words = ": ".join(filter(None, (waiting.reason, waiting.message)))
                silent = what and is_registry_unreachable(waiting.message)
                said = Reason.REGISTRY_UNREACHABLE if silent else reason
                restarts = _restarts(statuses)
                yield MachineState("Failed", said, f"{about}: {words}", restarts=restarts)
    for status in statuses:
        ended = _ended(status, now_s, probed=_is_probed(pod, status.name))
        if ended is not None:
            yield _crashed(pod, status, ended)


def _ended(status: ContainerStatus, now_s: float, *, probed: bool) -> Terminated | None:
    """How the container ended, if it is down, or has not been up for long enough since."""
    last = status.last_state.terminated
    if status.state.terminated is not None:
        return status.state.terminated
    if status.state.waiting is not None:
        return last
    if status.state.running is not None and last is not None and not probed:
        started_s = _unix_s(status.state.running.started_at)
        return last if now_s < started_s + PROVEN_S else None
    return None


def _crashed(pod: Pod, status: ContainerStatus, ended: Terminated) -> MachineState:
    never_ran = ended.reason in _NEVER_RAN
    lines = [] if never_ran else ended.message.splitlines()[-_LINES_MAX:]
    return MachineState(
        "Failed",
        reason=Reason.CONFIGURATION_ERROR if never_ran else Reason.INSTANCE_CRASHING,
        message=exit_message(status.name, ended),
        restarts=_restarts(pod.status.container_statuses),
        exit_code=ended.exit_code,
        last_lines=tuple(lines),
        images=_images(pod),
    )


def exit_message(name: str, ended: Terminated) -> str:
    if ended.reason in _NEVER_RAN:
        return f"container {name} cannot be started: {ended.message or ended.reason}"
    if ended.reason == "OOMKilled":
        return (
            f"container {name} ran out of memory and was killed: OOM, exit code {ended.exit_code}"
        )
    return f"container {name} ended with code {ended.exit_code}"


def _running(pod: Pod) -> MachineState:
    statuses = pod.status.container_statuses
    ended = [s.last_state.terminated for s in statuses if s.last_state.terminated is not None]
    unready = next((s for s in statuses if not s.ready), None)
    reason, message = "", ""
    if unready is not None:
        reason = Reason.NOT_READY if _has_readiness(pod, unready.name) else Reason.STARTING
        message = _unready(pod, unready.name)
    elif (condition := _unready_condition(pod)) is not None:
        reason = Reason.NOT_READY
        words = ": ".join(filter(None, (condition.reason, condition.message)))
        message = f"the pod is not ready: {words}" if words else "the pod is not ready"
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
    because only the kubelet of that node updates them. Without the condition they decide.
    """
    ready = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    return ready if ready is not None and ready.status in ("False", "Unknown") else None


def _stage(pod: Pod) -> str:
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            words = ": ".join(filter(None, (waiting.reason, waiting.message)))
            return f"container {status.name}: {words}"
    return "the containers are being set up" if pod.spec.node_name else "a node is being chosen"


def _images(pod: Pod) -> tuple[ImageRecord, ...]:
    asked = {container.name: container.image for container in pod.spec.containers}
    return tuple(
        ImageRecord(name=s.name, image=asked.get(s.name, ""), digest=s.image_id.rpartition("@")[2])
        for s in pod.status.container_statuses
        if s.image_id
    )


def _has_readiness(pod: Pod, name: str) -> bool:
    return any(c.name == name and c.readiness_probe is not None for c in pod.spec.containers)


def _is_probed(pod: Pod, name: str) -> bool:
    """Whether the container has a readiness probe of the user."""
    return _has_readiness(pod, name) and not _is_port_checked(pod, name)


def _is_port_checked(pod: Pod, name: str) -> bool:
    return name in pod.metadata.annotations.get(PORT_CHECKED, "").split(",")


def _unready(pod: Pod, name: str) -> str:
    container = next((c for c in pod.spec.containers if c.name == name), None)
    if container is not None and _is_port_checked(pod, name):
        port = next((p for p in container.ports if p.protocol == "TCP"), None)
        if port is not None:
            return render_closed_port(port.container_port, port.name)
    return f"container {name} does not answer its readiness probe"


def _restarts(statuses: list[ContainerStatus]) -> int:
    return sum(status.restart_count for status in statuses)


def _started_at(status: ContainerStatus) -> str:
    running = status.state.running
    return (running.started_at if running is not None else None) or ""


def _unix_s(moment: str | None) -> float:
    """0 for one that nobody said, or that cannot be read."""
    try:
        return datetime.fromisoformat(moment).timestamp() if moment else 0.0
    except ValueError:
        return 0.0
