"""A process is connected to each cell that has joined, while the Cluster of the cell exists."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from datum_compute.api.core import Secret
from datum_compute.api.errors import ServiceUnavailable
from datum_compute.api.http import Request, Response
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, Cluster, ClusterSpec
from datum_compute.api.kinds import CLUSTER, NAMESPACE, SECRET
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.app.controllers import ManagerOptions, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.auth.connection import Connection
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers.context import Context
from datum_compute.controllers.platform.cell_members import RETRY_S
from datum_compute.planes.cell_members import CellMemberOptions
from datum_compute.runtime.manager import Manager
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

DFW = cell_plane("dfw")
CREDENTIALS = Ref(CREDENTIALS_NAMESPACE, "dfw")


def a_cluster(endpoint: str = "https://dfw.example:6443") -> Cluster:
    metadata = ObjectMeta(name="dfw", labels={TOPOLOGY_CITY: "DFW"})
    return Cluster(metadata=metadata, spec=ClusterSpec(api_endpoint=endpoint))


def a_secret(token: str = "first") -> Secret:
    data = {"token": base64.b64encode(token.encode()).decode()}
    return Secret(metadata=ObjectMeta(name="dfw", namespace=CREDENTIALS_NAMESPACE), data=data)


class CellWorld:
    """A hub, and a manager that connects to its cells. ``open_tokens`` are those in use."""

    def __init__(self, loop: VirtualLoop, planes: InProcessPlanes, hub: Client) -> None:
        self.loop, self.planes, self.hub = loop, planes, hub
        self.open_tokens: list[str] = []
        self.cities: list[str] = []
        self.gateways: list[PlaneName] = []
        self.is_failing = False
        self.options = CellMemberOptions(
            self._open_transport, self._register_city, self._connect_gateway
        )

    def start(self) -> Manager[Context]:
        environment = ProcessEnvironment(
            self.loop.time, lambda: "uid", lambda: "suffix", Random(1), self.loop.time
        )
        manager = build_manager(
            (), {}, environment, options=ManagerOptions(cell_members=self.options)
        )
        manager.engage(HUB, self.planes.client(HUB))
        self.loop.create_task(manager.run())
        return manager

    async def _register_city(self, city: str) -> None:
        self.cities.append(city)

    @asynccontextmanager
    async def _open_transport(self, connection: Connection) -> AsyncIterator[Transport]:
        self.open_tokens.append(connection.token)
        try:
            yield InProcessTransport(self.planes.server.dispatch)
        finally:
            self.open_tokens.remove(connection.token)

    async def _connect_gateway(
        self, plane: PlaneName, _connection: Connection, opened: AsyncExitStack
    ) -> None:
        if self.is_failing:
            raise ServiceUnavailable("the gateway is starting")
        self.gateways.append(plane)
        opened.callback(self.gateways.remove, plane)


async def a_world(loop: VirtualLoop, planes: InProcessPlanes) -> CellWorld:
    hub = await planes.create(HUB)
    await hub.create(NAMESPACE, a_namespace(CREDENTIALS_NAMESPACE))
    await hub.create(CLUSTER, a_cluster())
    await hub.create(SECRET, a_secret())
    return CellWorld(loop, planes, hub)


def test_a_cell_is_connected_while_its_cluster_exists() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        manager = world.start()
        await asyncio.sleep(1)
        assert manager.engaged_planes() == [DFW, HUB]
        assert (world.open_tokens, world.cities) == (["first"], ["DFW"])
        assert world.gateways == [DFW]
        await world.hub.delete(CLUSTER, Ref("", "dfw"))
        await asyncio.sleep(1)
        assert manager.engaged_planes() == [HUB]
        assert (world.open_tokens, world.gateways) == ([], [])

    with_planes(test)


def test_a_cell_is_connected_again_with_new_credentials_and_only_then() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        manager = world.start()
        await asyncio.sleep(1)
        client = manager.cached_client(DFW)
        await world.hub.patch(CLUSTER, Ref("", "dfw"), {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(1)
        assert manager.cached_client(DFW) is client
        await world.hub.patch(SECRET, CREDENTIALS, {"data": a_secret("second").data})
        await asyncio.sleep(1)
        assert world.open_tokens == ["second"]
        assert manager.cached_client(DFW) is not client

    with_planes(test)


def test_a_failed_connection_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        world.is_failing = True
        manager = world.start()
        await asyncio.sleep(1)
        assert manager.engaged_planes() == [HUB]
        assert world.open_tokens == [], "the transport of the failed attempt is closed"
        world.is_failing = False
        await asyncio.sleep(2 * RETRY_S)
        assert manager.engaged_planes() == [DFW, HUB]

    with caplog.at_level(logging.WARNING):
        with_planes(test)
    assert "cannot connect to cell/dfw: the gateway is starting" in caplog.text


@pytest.mark.parametrize("endpoint", ["http://dfw.example", ""])
def test_a_cluster_without_an_https_endpoint_is_not_connected(endpoint: str) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        await world.hub.patch(CLUSTER, Ref("", "dfw"), {"spec": {"apiEndpoint": endpoint}})
        manager = world.start()
        await asyncio.sleep(1)
        assert manager.engaged_planes() == [HUB]

    with_planes(test)


def test_a_cell_of_this_process_needs_no_connection() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        world.options = replace(world.options, local_cells=(DFW,))
        manager = world.start()
        await asyncio.sleep(1)
        assert (manager.engaged_planes(), world.open_tokens) == ([HUB], [])

    with_planes(test)


def test_a_process_without_controllers_on_cells_connects_only_its_gateway() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        world.options = replace(world.options, engages_planes=False)
        manager = world.start()
        await asyncio.sleep(1)
        assert (manager.engaged_planes(), world.gateways) == ([HUB], [DFW])

    with_planes(test)


def test_a_connection_stays_open_while_the_hub_is_unreachable() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        world = await a_world(loop, planes)
        manager = world.start()
        await asyncio.sleep(1)

        async def refuse(_request: Request) -> Response | None:
            raise ServiceUnavailable("the hub is restarting")

        planes.intercept = refuse
        for plane in planes.store.planes():
            for resource in planes.store.resources(plane):
                planes.store.close_watches(plane, resource)
        await asyncio.sleep(600)
        assert (manager.engaged_planes(), world.open_tokens) == ([DFW, HUB], ["first"])

    with_planes(test)


def test_only_the_secrets_with_credentials_are_read() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        world = await a_world(loop, planes)
        paths: list[str] = []

        async def record(request: Request) -> Response | None:
            paths.append(request.path)
            return None

        planes.intercept = record
        world.start()
        await asyncio.sleep(1)
        return [path for path in paths if path.endswith("/secrets")]

    found = with_planes(test)
    assert found
    assert all(f"/namespaces/{CREDENTIALS_NAMESPACE}/" in path for path in found)
