"""What the gate costs a request: who calls, and whether the roles of the plane allow it."""

from __future__ import annotations

import asyncio

from bench.measurement import Measurement, rate
from datum_compute.api.http import Request
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.role_objects import ensure_roles
from datum_compute.planes.roles import admin_user
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import MASTERS, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.journal import MemoryJournal, ObjectKey
from datum_compute.store.store import Store

PLANE = PlaneName("project/bench")
BATCH = 1000


def measure() -> list[Measurement]:
    return asyncio.run(_measure_access())


async def _measure_access() -> list[Measurement]:
    store = Store(MemoryJournal())
    users = {
        "master": User("root", (MASTERS,), frozenset({PLANE})),
        "admin": User(admin_user(PLANE), (), frozenset({PLANE})),
    }
    server = ApiServer(
        store,
        ServerEnvironment(lambda: 0.0, lambda: "uid", lambda: "x"),
        AuthenticationOptions(StaticTokens(users)),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(store.run())
        await store.create_plane(PLANE)
        transport = InProcessTransport(server.dispatch)
        client = Client(transport, prefix=path_prefix(PLANE), token="master", agent="bench")
        await ensure_roles(client, PLANE)
        key = ObjectKey(WORKLOAD.resource, "default", "web")
        await store.put(PLANE, key, 0, lambda _: b'{"metadata":{"name":"web"}}')
        found = [
            Measurement(
                "decision, first rule", _measure_decisions(server, "workloads"), "checks/s"
            ),
            Measurement("decision, refused", _measure_decisions(server, "nothing"), "checks/s"),
            Measurement("get as master", await _measure_gets(server, "master"), "requests/s"),
            Measurement(
                "get as admin", await _measure_gets(server, "admin"), "requests/s", "get as master"
            ),
        ]
        running.cancel()
    return found


def _measure_decisions(server: ApiServer, plural: str) -> float:
    user = User(admin_user(PLANE), ("system:authenticated",), frozenset({PLANE}))
    wanted = Attributes("get", WORKLOAD.group, plural, "", "default", "web")

    def step() -> int:
        for _ in range(BATCH):
            server.authorizer.allows(user, PLANE, wanted)
        return BATCH

    return rate(step)


async def _measure_gets(server: ApiServer, token: str) -> float:
    path = f"{path_prefix(PLANE)}/apis/{WORKLOAD.api_version}/namespaces/default/workloads/web"
    request = Request("GET", path, {}, {"authorization": f"Bearer {token}"})
    loop = asyncio.get_running_loop()
    start, done = loop.time(), 0
    while loop.time() - start < 1.0:
        for _ in range(BATCH):
            await server.dispatch(request)
        done += BATCH
    return done / (loop.time() - start)
