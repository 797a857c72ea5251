"""Cells of the gateway: simulated, remote and unreachable ones."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Unreachable,
)
from datum_compute.api.gateway import (
    GatewayReason,
    decode_exec_result,
    drivers_path,
    instance_path,
    logs_path,
)
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import HUB, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import FAILED
from datum_compute.gateway.cells import RemoteCell
from testkit.api_server.running_server import TOKEN
from tests.gateway.gateway_world import (
    DFW,
    EVE,
    IN,
    LOG,
    USAGE,
    FakeCell,
    GatewayWorld,
    InMemoryTransport,
    build_world,
    reasons_of,
    run_in_world,
)


def test_a_simulated_cell_and_an_unreachable_cell_have_different_errors() -> None:
    async def scenario(world: GatewayWorld) -> None:
        endpoints = world.endpoints
        with pytest.raises(NotFound) as simulated:
            endpoints.select(cell_plane("simulated"))
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]
        with pytest.raises(ApiError, match="cannot reach cell"):
            endpoints.select(cell_plane("away"))
        endpoints.remove(DFW)
        with pytest.raises(NotFound) as simulated:
            await world.client().get_raw(LOG)
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]

    run_in_world(scenario)


def test_a_cell_of_another_process_is_queried_through_its_own_gateway() -> None:
    async def scenario(world: GatewayWorld) -> None:
        cell = FakeCell(world.cell.servers)
        other = build_world(world.server, {DFW: cell}, cell)
        client = other.client(prefix=path_prefix(DFW))
        world.endpoints.add(DFW, RemoteCell("dfw", client))
        query = {"tail": "3", "sinceSeconds": "60", "workloadUID": "uid-1"}
        page = await world.client().get_raw(LOG, query)
        assert "workload_uid='uid-1'" in page["lines"][0]["text"]
        listed = await world.client().get_raw(logs_path("default"), {"workload": "web"})
        assert [item["workloadUid"] for item in listed["items"]] == ["uid-of-web"]
        assert "tail=3" in page["lines"][0]["text"]
        assert f"since_s={world.server.clock.now_s - 60}" in page["lines"][0]["text"]
        assert (await world.client().get_raw(USAGE))["cpuMillicores"] == 7
        (report,) = (await world.client().get_raw(instance_path("default", "web", "crashes")))[
            "items"
        ]
        assert (report["exitCode"], report["outOfMemory"]) == (9, False)
        with pytest.raises(NotFound) as missing:
            await world.client().get_raw(instance_path("default", "other", "usage"))
        assert reasons_of(missing.value) == [GatewayReason.INSTANCE_NOT_RUNNING]
        with pytest.raises(Conflict, match="does not run"):
            await world.exec(container="dead")
        socket = await world.exec()
        await socket.send(IN + b"3")
        await socket.receive()
        ending = await socket.receive()
        assert ending is not None
        assert decode_exec_result(ending[1:]).exit_code == 3
        again = await world.exec()
        await again.close()
        await asyncio.sleep(2)
        assert [session.is_closed for session in cell.sessions] == [True, True]
        assert world.cell.sessions == []

    run_in_world(scenario)


async def _unreachable(_request: Request) -> Response:
    raise Unreachable("no route")


def test_the_drivers_of_all_cells_are_listed_with_unreachable_cells() -> None:
    async def scenario(world: GatewayWorld) -> None:
        far = build_world(world.server, {DFW: world.cell}, world.cell).client(
            prefix=path_prefix(DFW)
        )
        world.endpoints.add(cell_plane("far"), RemoteCell("far", far))
        lost = Client(
            InMemoryTransport(_unreachable), prefix=path_prefix(DFW), token=TOKEN, agent="test"
        )
        world.endpoints.add(cell_plane("lost"), RemoteCell("lost", lost))
        items = (await world.client().get_raw(drivers_path("default")))["items"]
        rows = [(row["cell"], row["driver"], row["answers"], row["why"]) for row in items]
        assert rows == [
            ("dfw", "containers", True, "for a test"),
            ("far", "containers", True, "for a test"),
            ("lost", "unknown", False, ""),
            ("simulated", "simulated", True, "for a test"),
        ]
        assert items[0]["engine"] == "engine.sock"
        assert items[2]["words"] == "cannot reach cell lost: no route"
        with pytest.raises(Forbidden):
            await world.client(EVE).get_raw(drivers_path("default"))

    run_in_world(scenario)


def test_the_last_heartbeat_of_a_cell_that_does_not_respond_is_reported() -> None:
    async def scenario(world: GatewayWorld) -> None:
        async def hang(_request: Request) -> Response:
            await asyncio.sleep(1e6)
            raise AssertionError("not reached")

        suspended = Client(InMemoryTransport(hang), prefix=path_prefix(DFW), token=TOKEN, agent="t")
        world.endpoints.add(cell_plane("late"), RemoteCell("late", suspended))
        renewed = "2026-01-01T00:00:00.000000Z"
        lease = {"metadata": {"name": "late"}, "spec": {"renewTime": renewed}}
        hub, namespace = path_prefix(HUB), {"metadata": {"name": "karmada-cluster"}}
        await world.server.json("POST", f"{hub}/api/v1/namespaces", namespace)
        leases = f"{hub}/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases"
        await world.server.json("POST", leases, lease)
        items = (await world.client().get_raw(drivers_path("default")))["items"]
        (late,) = [item for item in items if item["cell"] == "late"]
        assert late["words"] == "cannot reach cell late: no response in 5 s"
        assert late["lastHeartbeat"] == renewed
        assert [item["lastHeartbeat"] for item in items if item["cell"] == "dfw"] == [""]

    run_in_world(scenario)


def test_a_command_fails_when_the_connection_to_its_cell_is_lost() -> None:
    async def scenario(world: GatewayWorld) -> None:
        cell = FakeCell(world.cell.servers)
        transport = InMemoryTransport(build_world(world.server, {DFW: cell}, cell).gateway.dispatch)
        client = Client(transport, prefix=path_prefix(DFW), token=TOKEN, agent="test")
        world.endpoints.add(DFW, RemoteCell("dfw", client))
        socket = await world.exec()
        await transport.ends[0].aclose()
        assert await socket.receive() is None
        assert socket.closed == (FAILED, "the connection to its cell was lost")

    run_in_world(scenario)
