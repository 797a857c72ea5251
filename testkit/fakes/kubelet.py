"""A fake kubelet: the status of a pod is a function of its age and the registry of its image.

``PLAYS`` contains the registries with special behavior. Every other image is pulled, starts and
becomes ready. To add a behavior, add a line to ``PLAYS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from datum_compute.api.meta.codec import JsonObject

NODE = "node-1"
PULL_S = 0.2
EVICTED_S = 20.0

Play = Callable[[JsonObject, float], JsonObject]


def play(pod: JsonObject, now_s: float, number: int) -> JsonObject:
    """Return the status of a pod at this time. ``number`` determines its IP address."""
    age_s = now_s - _unix_s(pod["metadata"]["creationTimestamp"])
    first = pod["spec"]["containers"][0]["image"]
    if first.startswith("nonode.example/"):
        why = {"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}
        return {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", **why}],
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
    usual = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }
    if age_s < PULL_S:
        return {**usual, "state": _waiting("ContainerCreating")}
    found = PLAYS.get(registry, _runs)(pod, age_s)
    return {**usual, **found}


def _waiting(reason: str, message: str = "") -> JsonObject:
    return {"waiting": {"reason": reason, "message": message}}


def _terminated(pod: JsonObject, code: int, reason: str, message: str = "") -> JsonObject:
    at = pod["metadata"]["creationTimestamp"]
    ended = {"exitCode": code, "reason": reason, "message": message}
    return {"terminated": {**ended, "startedAt": at, "finishedAt": at}}


def _runs(pod: JsonObject, _age_s: float) -> JsonObject:
    started = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
    digest = "x.example/image@sha256:" + "0" * 64
    return {"state": started, "ready": True, "imageID": digest}


def _fails(reason: str, message: str) -> Play:
    return lambda _pod, _age_s: {"state": _waiting(reason, message)}


def _ends(code: int, reason: str, message: str = "") -> Play:
    def found(pod: JsonObject, _age_s: float) -> JsonObject:
        return {
            "state": _waiting("CrashLoopBackOff", "back-off 10s restarting failed container"),
            "lastState": _terminated(pod, code, reason, message),
            "restartCount": 3,
        }

    return found


def _unready(pod: JsonObject, age_s: float) -> JsonObject:
    return {**_runs(pod, age_s), "ready": False}


PLAYS: Mapping[str, Play] = {
    "fail.example": _fails("ImagePullBackOff", 'Back-off pulling image "fail.example/web:1"'),
    "config.example": _fails("CreateContainerConfigError", 'secret "key" not found'),
    "crash.example": _ends(1, "Error", "first line\nit went wrong"),
    "oom.example": _ends(137, "OOMKilled"),
    "command.example": _ends(128, "StartError", 'exec: "nothing": executable file not found'),
    "unready.example": _unready,
}


def _unix_s(moment: Any) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
