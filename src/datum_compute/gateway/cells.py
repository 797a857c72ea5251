"""Cells that serve the gateway: of this process, or of another one through its own gateway."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from msgspec.structs import replace

from datum_compute.api.errors import ApiError, NotFound, ServiceUnavailable, Unreachable
from datum_compute.api.gateway import (
    PROTOCOL,
    ExecRequest,
    GatewayReason,
    drivers_path,
    gateway_not_found,
    has_gateway_reason,
    images_path,
    instance_path,
    logs_path,
)
from datum_compute.api.meta.codec import ApiStruct, JsonObject, encode, from_json, to_json
from datum_compute.api.planes import PlaneName, member_name, plane_role
from datum_compute.client.auth.connection import Connection, OpenTransport
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import NORMAL, WebSocket
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import LogPage, LogQuery, WorkloadLog
from datum_compute.drivers.queries import (
    SIMULATED,
    CrashReport,
    CrashReportList,
    DriverReport,
    ExecSession,
    ImageCheck,
    Usage,
)


class WorkloadLogs(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Logs of a workload, and why some cells could not be read."""

    items: list[WorkloadLog]
    problems: list[str] = []


RESPONSE_TIMEOUT_S = 5.0


class RemoteCell:
    """A cell of another process. ``client`` is a client of the hub for the plane of the cell."""

    def __init__(self, cell: str, client: Client) -> None:
        self._cell = cell
        self._client = client

    async def log_page(self, server: str, query: LogQuery) -> LogPage:
        parameters = {
            "container": query.container,
            "tail": str(query.tail),
            "since": str(query.since_s),
            "previous": "true" if query.previous else "",
            "cursor": encode(to_json(dict(query.cursor))).decode() if query.cursor else "",
            "workloadUID": query.workload_uid,
        }
        found = await self._get(server, "log", {k: v for k, v in parameters.items() if v})
        return from_json(found, LogPage) if found is not None else LogPage(lines=[], cursor={})

    async def workload_logs(self, namespace: str, workload: str) -> list[WorkloadLog]:
        try:
            found = await self._client.get_raw(logs_path(namespace), {"workload": workload})
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        except NotFound:
            return []  # an earlier release, or a cell with simulated machines
        return from_json(found, WorkloadLogs).items

    async def usage(self, server: str) -> Usage | None:
        found = await self._get(server, "usage")
        return from_json(found, Usage) if found is not None else None

    async def crashes(self, server: str) -> list[CrashReport]:
        found = await self._get(server, "crashes")
        return from_json(found, CrashReportList).items if found is not None else []

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        configs = [base64.b64encode(config).decode() for config in pull_configs]
        body = {"image": image, "policy": policy, "configs": configs}
        try:
            found = await self._client.post_raw(images_path("default"), body)
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        return from_json(found, ImageCheck)

    async def driver(self) -> DriverReport:
        await self._check_response()
        try:
            found = await self._client.get_raw(drivers_path("default"))
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        return from_json(found["items"][0], DriverReport)

    async def execute(self, server: str, request: ExecRequest) -> RemoteExecution | None:
        try:
            path = _path(server, "exec")
            socket = await self._client.websocket(path, PROTOCOL, exec_query(request))
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        except NotFound as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return None
            raise
        return RemoteExecution(socket)

    async def _get(
        self, server: str, operation: str, parameters: Mapping[str, str] | None = None
    ) -> JsonObject | None:
        """Return None if the cell does not run the server, or simulates it."""
        try:
            return await self._client.get_raw(_path(server, operation), parameters)
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        except NotFound as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return None
            raise

    async def _check_response(self) -> None:
        """Raise TransientError if the cell does not respond at all.

        A suspended process accepts connections, and a slow engine delays the report of a driver, so
        a request that any process answers at once comes first. Its result does not matter.
        """
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                await self._client.get_raw("/version")
        except ApiError:
            return
        except Unreachable as error:
            raise self._unreachable_error(error) from error
        except TimeoutError:
            why = f"cannot reach cell {self._cell}: no response in {RESPONSE_TIMEOUT_S:.0f} s"
            raise TransientError(why) from None

    def _unreachable_error(self, error: Unreachable) -> TransientError:
        return TransientError(f"cannot reach cell {self._cell}: {error}")


class RemoteExecution:
    """An ``ExecSession`` of another process. Forwards messages unchanged."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        closed = self._socket.closed
        if message is None and closed is not None and closed.code != NORMAL:
            raise TransientError(closed.reason or "the connection to its cell was lost")
        return message

    async def send(self, message: bytes) -> None:
        await self._socket.send(message)

    async def aclose(self) -> None:
        await self._socket.close()


def exec_query(request: ExecRequest) -> dict[str, str]:
    parameters = {
        "command": encode(request.command).decode(),
        "container": request.container,
        "stdin": "true" if request.stdin else "",
        "tty": "true" if request.tty else "",
    }
    return {name: value for name, value in parameters.items() if value}


def _path(server: str, operation: str) -> str:
    namespace, _, name = server.partition("/")
    return instance_path(namespace, name, operation)


# --- All cells


class CellEndpoint(Protocol):
    """A cell of this or another process. ``server`` is ``namespace/name`` on its plane.

    If the cell does not run the server, the result is None, or a page without a cursor.
    """

    async def log_page(self, server: str, query: LogQuery) -> LogPage: ...

    async def workload_logs(self, namespace: str, workload: str) -> list[WorkloadLog]: ...

    async def usage(self, server: str) -> Usage | None: ...

    async def crashes(self, server: str) -> list[CrashReport]: ...

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck: ...

    async def execute(self, server: str, request: ExecRequest) -> ExecSession | None: ...

    async def driver(self) -> DriverReport: ...


class CellEndpoints:
    """All cells by plane. Cells of other processes are added and removed with their membership.

    ``simulated`` are cells of this process with simulated machines. ``choice_reason`` is why this
    process uses its driver.
    """

    def __init__(
        self,
        local: Mapping[PlaneName, CellEndpoint],
        simulated: Collection[PlaneName] = (),
        choice_reason: str = "",
    ) -> None:
        self._endpoints: dict[PlaneName, CellEndpoint] = dict(local)
        self._local = frozenset(local)
        self._simulated = simulated
        self._choice_reason = choice_reason

    def add(self, plane: PlaneName, endpoint: CellEndpoint) -> None:
        self._endpoints[plane] = endpoint

    def remove(self, plane: PlaneName) -> None:
        self._endpoints.pop(plane, None)

    def has_cell(self, plane: PlaneName) -> bool:
        """Return True if the cell exists, also if it is simulated."""
        return plane in self._endpoints or plane in self._simulated

    def planes(self) -> list[PlaneName]:
        """Return the planes of all cells, sorted."""
        return sorted({*self._endpoints, *self._simulated})

    async def read_driver(self, plane: PlaneName) -> DriverReport:
        """Return the driver of a cell. For a cell of this process, add why it was chosen."""
        if plane in self._simulated:
            return replace(SIMULATED, why=self._choice_reason)
        (endpoint,) = self.select(plane)
        report = await endpoint.driver()
        return replace(report, why=self._choice_reason) if plane in self._local else report

    def select(self, plane: PlaneName | None) -> list[CellEndpoint]:
        """Return the endpoint of a cell, or all of them if the cell is unknown."""
        if plane is None and self._endpoints:
            return [self._endpoints[known] for known in sorted(self._endpoints)]
        if plane is None or plane in self._simulated:
            raise gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
        if plane not in self._endpoints:
            raise ServiceUnavailable(
                f"cannot reach cell {member_name(plane)}: it is not connected; try again"
            )
        return [self._endpoints[plane]]


@dataclass(frozen=True, slots=True)
class GatewayConnector:
    """Adds connected cells of other processes to the gateway of this process."""

    endpoints: CellEndpoints
    open_transport: OpenTransport

    async def connect(
        self, plane: PlaneName, connection: Connection, opened: AsyncExitStack
    ) -> None:
        """Connect the gateway to the cell until ``opened`` is closed."""
        transport = await opened.enter_async_context(self.open_transport(connection))
        cell = RemoteCell(member_name(plane), build_client(connection, transport))
        self.endpoints.add(plane, cell)
        opened.callback(self.endpoints.remove, plane)


# --- The driver of each cell, and the state of its engine
# Users who can read instances can read this: the engine can be the reason why an instance does not
# start. A cell that does not respond is listed as well.


# Longer than the timeout of a driver for its engine, and shorter than that of clients.
DRIVER_TIMEOUT_S = 15.0
UNKNOWN_DRIVER = "unknown"  # of a cell that does not respond


class CellDriver(DriverReport, frozen=True, kw_only=True, omit_defaults=False):
    """``last_heartbeat`` is set for a cell that does not respond, if the hub knows it."""

    cell: str
    last_heartbeat: str = ""


class CellDrivers(ApiStruct, frozen=True, kw_only=True):
    items: list[CellDriver]


async def read_drivers(endpoints: CellEndpoints, plane: PlaneName) -> CellDrivers:
    """Return the driver of one cell, or of all cells for the plane of a project."""
    cells = [plane] if plane_role(plane) == "cell" else endpoints.planes()
    found = await asyncio.gather(*(_read_driver(endpoints, cell) for cell in cells))
    return CellDrivers(items=list(found))


async def _read_driver(endpoints: CellEndpoints, plane: PlaneName) -> CellDriver:
    try:
        async with asyncio.timeout(DRIVER_TIMEOUT_S):
            report = await endpoints.read_driver(plane)
    except TimeoutError:
        words = f"cannot reach cell {member_name(plane)}: no response in {DRIVER_TIMEOUT_S:.0f} s"
        report = DriverReport(driver=UNKNOWN_DRIVER, answers=False, words=words)
    except (ApiError, DriverError) as error:
        report = DriverReport(driver=UNKNOWN_DRIVER, answers=False, words=str(error))
    return CellDriver(
        cell=member_name(plane),
        driver=report.driver,
        why=report.why,
        engine=PurePosixPath(report.engine).name,  # without the directory, which is on the host
        answers=report.answers,
        words=report.words,
        without_init=report.without_init,
    )
