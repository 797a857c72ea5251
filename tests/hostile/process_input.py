"""Workloads with NUL bytes in text of processes and paths, and mounts on system directories."""

from __future__ import annotations

from typing import Any

from tests.hostile.request import HostileRequest, project_request
from tests.server.running_server import WORKLOADS, workload


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
    *map(_mount, ("/sys", "/sys/fs/cgroup", "/dev", "/dev//shm")),
)
