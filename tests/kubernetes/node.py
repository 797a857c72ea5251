"""The kubelet API of a node on loopback: logs of containers, and commands in them.

The node declares WebSocket support of its kubelet, so that API servers forward commands unchanged.
Usage of pods is under metrics.k8s.io, as from metrics-server.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from datum_compute.api.gateway import (
    END_OF_INPUT,
    PROTOCOL,
    STDIN,
    STDOUT,
    ExecResult,
    encode_exec_result,
)
from datum_compute.api.http import Duplex, Request, Response
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import ensure_private_directory
from datum_compute.client.transport.websocket import WebSocket, server_handshake
from datum_compute.server.http.listen import api_tls_context, bind_listener
from datum_compute.server.http.server import HttpServer
from testkit.fakes.kubelet import NODE

FAILING, FAILED = "fail", 7
USED = {"cpu": "120345678n", "memory": "70000Ki"}  # 121 millicores, 69 MiB
METRICS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of tests"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "names": {"kind": "PodMetrics", "plural": "pods", "singular": "podmetrics"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
_LOGS = re.compile(r"/containerLogs/([^/]+)/([^/]+)/([^/]+)")
_EXEC = re.compile(r"/exec/([^/]+)/([^/]+)/([^/]+)")


@asynccontextmanager
async def node_port(folder: Path) -> AsyncIterator[int]:
    front = HttpServer(_dispatch, time)
    with bind_listener(0) as bound:
        await front.start(
            bound,
            api_tls_context(
                ensure_certificate(ensure_private_directory(folder), datetime.now(UTC))
            ),
        )
        yield bound.getsockname()[1]
        await front.stop()


def node(port: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Node object and its status."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}, {"status": status}


def metrics_of(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
    used = [{"name": c["name"], "usage": USED} for c in pod["spec"]["containers"]]
    head = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": metadata}
    return {**head, "containers": used}


async def _dispatch(request: Request) -> Response:
    if found := _LOGS.fullmatch(request.path):
        return Response(200, _log_lines(found[2], found[3], request), "text/plain")
    if found := _EXEC.fullmatch(request.path):
        headers = server_handshake(request, PROTOCOL)
        return Response(101, headers=headers, switched=partial(_run, request))
    return Response(404, b"404 page not found", "text/plain")


def _log_lines(pod: str, container: str, request: Request) -> bytes:
    """Return two constant log lines."""
    lines = [f"2026-01-01T00:00:0{at}.000000000Z {pod}/{container} line {at}" for at in (1, 2)]
    since = request.query.get("sinceTime", "")
    lines = [line for line in lines if line[:19] >= since[:19]]
    tail = int(request.query.get("tailLines", len(lines)))
    return "".join(f"{line}\n" for line in lines[len(lines) - tail :]).encode()


async def _run(request: Request, duplex: Duplex) -> None:
    """Write the first word of the command, then echo stdin."""
    socket, word = WebSocket(duplex, of_server=True), request.query.get("command", "")
    await socket.send(bytes((STDOUT,)) + f"{word}\n".encode())
    while request.query.get("input") and (message := await socket.receive()) is not None:
        if message == END_OF_INPUT:
            break
        if message[0] == STDIN:
            await socket.send(bytes((STDOUT,)) + message[1:])
    await socket.send(encode_exec_result(ExecResult(exit_code=FAILED if word == FAILING else 0)))
    await socket.close()
