"""Workloads with NUL bytes in text of processes and paths, mounts on system directories, and long
lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import WORKLOADS, workload
from testkit.hostile.request import HostileRequest, project_request


def _container(name: str, mentions: str, **fields: Any) -> HostileRequest:
    obj = workload()
    template = obj["spec"]["template"]["spec"]
    template["runtime"]["sandbox"]["containers"][0].update(fields)
    if "volumeAttachments" in fields:
        template["volumes"] = [{"name": "v", "secret": {"secretName": "a"}}]
    return HostileRequest(
        name,
        requests=lambda: [project_request("POST", WORKLOADS, obj)],
        status=422,
        mentions=mentions,
    )


def _mount(path: str) -> HostileRequest:
    attachments = [{"name": "v", "mountPath": path}]
    return _container(f"mount on {path}", "mountPath", volumeAttachments=attachments)


def _long_list(name: str, mentions: str, repeat: Callable[[JsonObject], None]) -> HostileRequest:
    obj = workload()
    repeat(obj["spec"])
    return HostileRequest(
        name,
        requests=lambda: [project_request("POST", WORKLOADS, obj)],
        status=422,
        mentions=mentions,
    )


def _repeat_containers(spec: JsonObject) -> None:
    sandbox = spec["template"]["spec"]["runtime"]["sandbox"]
    (container,) = sandbox["containers"]
    sandbox["containers"] = [{**container, "name": f"c{number}"} for number in range(9_000)]


def _repeat_placements(spec: JsonObject) -> None:
    (placement,) = spec["placements"]
    spec["placements"] = [{**placement, "name": f"p{number}"} for number in range(9_000)]


_NUL = "must not contain a NUL byte"
_EXEC = {"exec": {"command": ["a\0b"]}}

REQUESTS = (
    _container("NUL in a command", _NUL, command=["a\0b"]),
    _container("NUL in an argument", _NUL, args=["a\0b"]),
    _container("NUL in the value of a variable", _NUL, env=[{"name": "A", "value": "a\0b"}]),
    _container("NUL in the name of a variable", "printable", env=[{"name": "A\0", "value": "a"}]),
    _container("NUL in a readiness probe", _NUL, readinessProbe=_EXEC),
    _container("NUL in a liveness probe", _NUL, livenessProbe=_EXEC),
    _container("NUL in an image", "image", image="web\0:1"),
    _container("NUL in a mount path", _NUL, volumeAttachments=[{"name": "v", "mountPath": "/a\0"}]),
    *map(_mount, ("/", "//", "/./", "/proc", "/proc/", "//proc", "/./proc/self", "/etc/../proc")),
    _container("28,000 variables", "at most 1000 items", env=[{"name": "A"}] * 28_000),
    _container("14,000 ports", "at most 100 items", ports=[{"name": "a", "port": 1}] * 14_000),
    _long_list("9,000 containers", "at most 32 items", _repeat_containers),
    _long_list("9,000 placements", "at most 32 items", _repeat_placements),
    *map(_mount, ("/sys", "/sys/fs/cgroup", "/dev", "/dev//shm")),
)
