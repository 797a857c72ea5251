"""The objects that are written and read, and a platform in this process to write them with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from bench.load import load_connections
from bench.processes import Running
from datum_compute.api.compute.instance import INSTANCE
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import NAMESPACE as NAMESPACE_KIND
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.app.process import settle_memory
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.store.store import Store

BODY_BYTES = 2000
NAMESPACE = "bench"
CELL = PlaneName("cell/dfw")


def instance(name: str, namespace: str = NAMESPACE, *, unlike_others: bool = False) -> JsonObject:
    """An Instance of about 2 KB, shaped as the controllers write them: the spec is that of the
    other replicas, unless it shall be ``unlike_others``."""
    environment = [{"name": f"SETTING_{n}", "value": f"value-{n}-" + "x" * 24} for n in range(14)]
    if unlike_others:
        environment[0]["value"] = f"of-{name}"
    container = {
        "name": "app",
        "image": "registry.example/team/application:1.27.3",
        "env": environment,
        "ports": [{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}],
    }
    labels = {
        "compute.datumapis.com/workload-name": "application",
        "compute.datumapis.com/placement-name": "main",
        "compute.datumapis.com/city-code": "DFW",
        "app.kubernetes.io/name": "application",
    }
    return {
        "apiVersion": INSTANCE.api_version,
        "kind": INSTANCE.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"example.com/note": "y" * 300},
        },
        "spec": {
            "runtime": {
                "sandbox": {"containers": [container]},
                "resources": {"instanceType": "datumcloud/d1-standard-2"},
            },
            "controller": {"templateHash": "0123456789abcdef" * 4},
        },
    }


def instances_path(prefix: str, namespace: str = NAMESPACE) -> str:
    return f"{prefix}/apis/{INSTANCE.api_version}/namespaces/{namespace}/{INSTANCE.plural}"


async def fill(running: Running, namespace: str, objects: int) -> None:
    """Put objects into a namespace of their own, over the socket."""
    target, path = running.target, instances_path(running.prefix, namespace)
    numbers = count()
    async with load_connections(target, 32) as opened:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        namespaces = f"{running.prefix}/api/v1/namespaces"
        await opened[0].send(target.request("POST", namespaces, encode(manifest)))

        async def work(worker: int) -> None:
            while (number := next(numbers)) < objects:
                body = encode(instance(f"{namespace}-{number}", namespace))
                answer = await opened[worker].send(target.request("POST", path, body))
                assert answer[9:12] == b"201", answer[:300]

        await asyncio.gather(*(work(worker) for worker in range(len(opened))))


@asynccontextmanager
async def new_platform(database: Path) -> AsyncIterator[Client]:
    """A client of the cell of a server in this process, durable in ``database``."""
    journal = SqliteJournal(database)
    store = Store(journal)
    await store.load()
    uids, everywhere = count(), frozenset({EVERY_PLANE})
    server = ApiServer(
        store,
        ServerEnvironment(
            time.time,
            lambda: f"00000000-0000-4000-8000-{next(uids):012d}",
            lambda: f"{next(uids):05d}",
        ),
        AuthenticationOptions(StaticTokens({"token": User("bench", (MASTERS,), everywhere)})),
    )
    running = asyncio.create_task(store.run())
    try:
        await store.create_plane(CELL)
        transport = InProcessTransport(server.dispatch)
        client = Client(transport, prefix=path_prefix(CELL), token="token", agent="bench")
        if not await _exists(client):
            name = ObjectMeta(name=NAMESPACE)
            await client.create(NAMESPACE_KIND, Namespace(metadata=name))
        settle_memory()  # as the product does before it serves
        yield client
    finally:
        running.cancel()
        await asyncio.wait([running])
        await journal.close()


async def _exists(client: Client) -> bool:
    found = await client.list(NAMESPACE_KIND, fields={"metadata.name": NAMESPACE})
    return bool(found.items) and await client.get(NAMESPACE_KIND, Ref("", NAMESPACE)) is not None
