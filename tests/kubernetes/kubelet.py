"""The simulated kubelet on a real API server.

It binds every pod to its node, writes the status of ``testkit/fakes/kubelet.py``, and deletes
terminating pods. Only ``kubelet_of`` creates a node that API servers can query about pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import time

from datum_compute.api.core import POD
from datum_compute.api.errors import ApiError, Conflict, NotFound
from datum_compute.api.http import JSON, MERGE_PATCH, Request
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import Ref
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.interface import Transport
from testkit.fakes.kubelet import NODE, pod_status
from tests.kubernetes.node import METRICS, metrics_of, node, node_port

_TICK_S = 0.1


class Kubelet:
    def __init__(
        self, client: Client, transport: Transport, token: str, unix_s: Callable[[], float]
    ) -> None:
        self._client = client
        self._transport = transport
        self._headers = {"authorization": f"Bearer {token}", "accept": JSON}
        self._unix_s = unix_s
        self._numbers: dict[str, int] = {}
        self._measured: set[str] | None = None

    async def have_node(self, port: int) -> None:
        """Register a node with this port, and write metrics of pods from now on."""
        made, status = node(port)
        await self.send("POST", "/api/v1/nodes", made)
        await self.send("PATCH", f"/api/v1/nodes/{NODE}/status", status, MERGE_PATCH)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await self.send("POST", path, METRICS)
        self._measured = set()

    async def run(self) -> None:
        while True:
            for pod in (await self._client.list_plain(POD)).items:
                try:
                    await self._tend(pod)
                except (NotFound, Conflict):
                    continue  # it has changed meanwhile; retry in the next round
            await asyncio.sleep(_TICK_S)

    async def _tend(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        ref = Ref(metadata["namespace"], metadata["name"])
        if "deletionTimestamp" in metadata:
            await self._client.delete(POD, ref, uid=metadata["uid"], grace_s=0)
            return
        number = self._numbers.setdefault(metadata["uid"], len(self._numbers) + 1)
        status = pod_status(pod, self._unix_s(), number)
        scheduled = status.get("conditions", [{}])[0].get("status") != "False"
        if scheduled and not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": ref.name}}
            await self._send("POST", ref, "binding", {**body, "target": target}, JSON)
        known = pod.get("status", {})
        if any(known.get(name) != value for name, value in status.items()):
            await self._send("PATCH", ref, "status", {"status": status}, MERGE_PATCH)
        await self._measure(pod)

    async def _measure(self, pod: JsonObject) -> None:
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        if self._measured is not None and uid not in self._measured:
            path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
            await self.send("POST", path, metrics_of(pod))
            self._measured.add(uid)

    async def _send(self, method: str, ref: Ref, part: str, body: JsonObject, how: str) -> None:
        path = f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}/{part}"
        await self.send(method, path, body, how)

    async def send(self, method: str, path: str, body: JsonObject, how: str = JSON) -> None:
        headers = {**self._headers, "content-type": how}
        answer = await self._transport.send(
            Request(method, path, headers=headers, body=encode(body))
        )
        if answer.status in (404, 409):
            raise NotFound(f"{method} {path}")
        if answer.status >= 400:
            raise ApiError(f"{method} {path}: {answer.body[:300]!r}")


@asynccontextmanager
async def kubelet_of(kubeconfig: Path, folder: Path) -> AsyncIterator[None]:
    """Run a kubelet with a node that API servers can query."""
    connection = connection_of(load_kubeconfig([kubeconfig]))
    async with (
        Http1Transport(connection.server, ca_pem=connection.ca_pem) as transport,
        node_port(folder) as port,
    ):
        client = build_client(connection, transport)
        kubelet = Kubelet(client, transport, connection.token, time)
        await kubelet.have_node(port)
        running = asyncio.create_task(kubelet.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
