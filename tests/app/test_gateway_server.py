"""The gateway of a manager is connected to the cells of the hub, without being the leader."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from datum_compute.api.core import Secret
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, Cluster, ClusterSpec
from datum_compute.api.kinds import CLUSTER, NAMESPACE, SECRET
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.gateway_server import GatewayDependencies, connect_cells
from datum_compute.client.auth.connection import Connection
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport
from datum_compute.gateway.cells import CellEndpoints
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

ADDRESS = "https://gateway.example/planes/cells/dfw"
DFW = Cluster(
    metadata=ObjectMeta(name="dfw", annotations={"compute.datumapis.com/gateway": ADDRESS}),
    spec=ClusterSpec(api_endpoint="https://cell.example"),
)
CREDENTIALS = Secret(
    metadata=ObjectMeta(name="dfw", namespace=CREDENTIALS_NAMESPACE),
    data={"token": base64.b64encode(b"of the cell").decode()},
)


def test_cells_of_the_hub_are_endpoints_of_the_gateway_while_their_clusters_exist() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[PlaneName], set[str]]:
        hub = await planes.create(HUB)
        await hub.create(NAMESPACE, a_namespace(CREDENTIALS_NAMESPACE))
        await hub.create(CLUSTER, DFW)
        await hub.create(SECRET, CREDENTIALS)
        servers: set[str] = set()

        @asynccontextmanager
        async def open_transport(connection: Connection) -> AsyncIterator[Transport]:
            servers.add(connection.server)
            yield InProcessTransport(planes.server.dispatch)

        async with AsyncExitStack() as stack:
            environment = ProcessEnvironment(
                loop.time, lambda: "uid", lambda: "suffix", Random(1), loop.time
            )
            dependencies = GatewayDependencies(
                (HUB,), lambda _plane: Connection("", ""), open_transport, stack, environment
            )
            endpoints = CellEndpoints({})
            connect_cells(dependencies, hub, endpoints)
            await asyncio.sleep(1)
            connected = endpoints.planes()
            await hub.delete(CLUSTER, Ref("", "dfw"))
            await asyncio.sleep(1)
            assert endpoints.planes() == []
        return connected, servers

    assert with_planes(test) == ([cell_plane("dfw")], {"https://gateway.example"})
