"""A hub with its server and its cluster controllers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from datum_compute.api.http import MERGE_PATCH, Request
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.app.controllers import ManagerTelemetry, ServedPlanes, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.controllers import registry
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.runtime.event_recorder import EventRequest
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.runtime.planes_in_process import InProcessPlanes

CORE = "/api/v1/namespaces/default"
SETTLE_S = 5.0


@dataclass
class ClusterFixture:
    planes: InProcessPlanes
    events: list[EventRequest] = field(default_factory=list)

    async def request(
        self, method: str, path: str, body: Any = None, *, plane: PlaneName = HUB, **query: str
    ) -> tuple[int, JsonObject]:
        headers = {"authorization": "Bearer token"}
        if method == "PATCH":
            headers["content-type"] = MERGE_PATCH
        sent = encode(body) if body is not None else b""
        request = Request(method, path_prefix(plane) + path, query, headers, sent)
        response = await self.planes.server.dispatch(request)
        shown = decode(response.body) if response.body.startswith(b"{") else {}
        return response.status, shown

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        status, obj = await self.request("POST", path, body)
        assert status == 201, obj
        return obj

    async def settle(self) -> None:
        await asyncio.sleep(SETTLE_S)

    async def config_map(self, name: str, *owners: JsonObject, **metadata: Any) -> JsonObject:
        about = {"name": name, "ownerReferences": list(owners), **metadata}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}
        return await self.create(f"{CORE}/configmaps", obj)

    async def existing_config_maps(self, *names: str, namespace: str = "default") -> list[str]:
        """Return those of the config maps that exist."""
        _, listed = await self.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
        found = {item["metadata"]["name"] for item in listed.get("items", ())}
        return [name for name in names if name in found]


def owner(obj: JsonObject, **more: Any) -> JsonObject:
    metadata = obj["metadata"]
    named = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"]}
    return {**named, "uid": metadata["uid"], **more}


def with_cluster_controllers(test: Callable[[ClusterFixture], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a hub and its cluster controllers."""

    async def main(loop: VirtualLoop) -> None:
        planes = InProcessPlanes(loop)
        client = await planes.create()
        await ensure_plane(client, HUB)
        here = ClusterFixture(planes)
        environment = ProcessEnvironment(loop.time, lambda: "uid", lambda: "suffix", Random(1))
        manager = build_manager(
            registry.CLUSTER,
            {},
            environment,
            served=ServedPlanes(planes.server.inventory, "CERTIFICATE"),
            telemetry=ManagerTelemetry(here.events.append),
        )
        manager.engage(HUB, client)
        running = loop.create_task(manager.run())
        await manager.wait_for_sync()
        await test(here)
        running.cancel()

    run_virtual(Random(1), main)
