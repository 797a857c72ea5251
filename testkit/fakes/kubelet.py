"""A fake kubelet: the status of a pod is a function of its age and the registry of its image.

``BEHAVIORS`` contains the registries with special behavior. Every other image is pulled, starts and
becomes ready. To add a behavior, add a line to ``BEHAVIORS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from datum_compute.api.meta.codec import JsonObject

NODE = "node-1"
PULL_S = 0.2
EVICTED_S = 20.0

StatusFunction = Callable[[JsonObject, float], JsonObject]


def pod_status(pod: JsonObject, now_s: float, number: int) -> JsonObject:
    """Return the status of a pod at this time. ``number`` determines its IP address."""
    age_s = now_s - _unix_s(pod["metadata"]["creationTimestamp"])
    first = pod["spec"]["containers"][0]["image"]
    if first.startswith("nonode.example/"):
        unschedulable = {
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
        return {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", **unschedulable}],
        }
    if first.startswith("evicted.example/") and age_s >= EVICTED_S:
        message = "The node was low on resource: memory."
        return {"phase": "Failed", "reason": "Evicted", "message": message}
    statuses = [_container(pod, c, age_s) for c in pod["spec"]["containers"]]
    running = all("running" in status["state"] for status in statuses)
    address = f"10.7.{number // 250}.{number % 250 + 1}"
    return {
        "phase": "Running" if running else "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": statuses,
        **({"podIP": address, "podIPs": [{"ip": address}]} if running else {}),
    }


def _container(pod: JsonObject, container: JsonObject, age_s: float) -> JsonObject:
    registry = container["image"].partition("/")[0]
    initial_status = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }
    if age_s < PULL_S:
        return {**initial_status, "state": _waiting_state("ContainerCreating")}
    found = BEHAVIORS.get(registry, _running_status)(pod, age_s)
    return {**initial_status, **found}


def _waiting_state(reason: str, message: str = "") -> JsonObject:
    return {"waiting": {"reason": reason, "message": message}}


def _terminated_state(pod: JsonObject, code: int, reason: str, message: str = "") -> JsonObject:
    at = pod["metadata"]["creationTimestamp"]
    ended = {"exitCode": code, "reason": reason, "message": message}
    return {"terminated": {**ended, "startedAt": at, "finishedAt": at}}


def _running_status(pod: JsonObject, _age_s: float) -> JsonObject:
    started = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
    digest = "x.example/image@sha256:" + "0" * 64
    return {"state": started, "ready": True, "imageID": digest}


def _failing(reason: str, message: str) -> StatusFunction:
    return lambda _pod, _age_s: {"state": _waiting_state(reason, message)}


def _crashing(code: int, reason: str, message: str = "") -> StatusFunction:
    def found(pod: JsonObject, _age_s: float) -> JsonObject:
        return {
            "state": _waiting_state("CrashLoopBackOff", "back-off 10s restarting failed container"),
            "lastState": _terminated_state(pod, code, reason, message),
            "restartCount": 3,
        }

    return found


def _not_ready_status(pod: JsonObject, age_s: float) -> JsonObject:
    return {**_running_status(pod, age_s), "ready": False}


BEHAVIORS: Mapping[str, StatusFunction] = {
    "fail.example": _failing("ImagePullBackOff", 'Back-off pulling image "fail.example/web:1"'),
    "config.example": _failing("CreateContainerConfigError", 'secret "key" not found'),
    "crash.example": _crashing(1, "Error", "first line\nit went wrong"),
    "oom.example": _crashing(137, "OOMKilled"),
    "command.example": _crashing(128, "StartError", 'exec: "nothing": executable file not found'),
    "unready.example": _not_ready_status,
}


def _unix_s(time_text: Any) -> float:
    return datetime.fromisoformat(time_text).replace(tzinfo=UTC).timestamp()
