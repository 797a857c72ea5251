"""A cell of another process, asked over the connection by which the hub works with it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
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
)
from datum_compute.api.meta.codec import ApiStruct, JsonObject, encode, from_json, to_json
from datum_compute.api.planes import PlaneName, member_name, plane_role
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import NORMAL, WebSocket
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import LogPage, LogQuery
from datum_compute.drivers.queries import (
    SIMULATED,
    CrashReport,
    CrashReportList,
    DriverReport,
    ExecSession,
    ImageCheck,
    Usage,
)


class RemoteCell:
    """``client`` is that of the cell's plane, as the hub."""

    def __init__(self, cell: str, client: Client) -> None:
        self._cell = cell
        self._client = client

    async def log_page(self, server: str, wish: LogQuery) -> LogPage:
        query = {
            "container": wish.container,
            "tail": str(wish.tail),
            "since": str(wish.since_s),
            "previous": "true" if wish.previous else "",
            "cursor": encode(to_json(dict(wish.cursor))).decode() if wish.cursor else "",
        }
        found = await self._asked(server, "log", {k: v for k, v in query.items() if v})
        return from_json(found, LogPage) if found is not None else LogPage(lines=[], cursor={})

    async def usage(self, server: str) -> Usage | None:
        found = await self._asked(server, "usage")
        return from_json(found, Usage) if found is not None else None

    async def crashes(self, server: str) -> list[CrashReport]:
        found = await self._asked(server, "crashes")
        return from_json(found, CrashReportList).items if found is not None else []

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        configs = [base64.b64encode(config).decode() for config in pull_configs]
        body = {"image": image, "policy": policy, "configs": configs}
        try:
            return from_json(await self._client.tell(images_path("default"), body), ImageCheck)
        except Unreachable as error:
            raise self._silent(error) from error

    async def driver(self) -> DriverReport:
        try:
            told = await self._client.ask(drivers_path("default"))
        except Unreachable as error:
            raise self._silent(error) from error
        return from_json(told["items"][0], DriverReport)

    async def execute(self, server: str, wish: ExecRequest) -> RemoteExecution | None:
        try:
            path = _path(server, "exec")
            socket = await self._client.websocket(path, PROTOCOL, exec_query(wish))
        except Unreachable as error:
            raise self._silent(error) from error
        except NotFound as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return None
            raise
        return RemoteExecution(socket)

    async def _asked(
        self, server: str, what: str, query: Mapping[str, str] | None = None
    ) -> JsonObject | None:
        """None if the cell knows nothing of it, or has machines that say nothing."""
        try:
            return await self._client.ask(_path(server, what), query)
        except Unreachable as error:
            raise self._silent(error) from error
        except NotFound as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return None
            raise

    def _silent(self, error: Unreachable) -> TransientError:
        return TransientError(f"cell {self._cell} does not answer: {error}")


class RemoteExecution:
    """The ``ExecSession`` of another process: its messages are handed on as they are."""

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


def exec_query(wish: ExecRequest) -> dict[str, str]:
    query = {
        "command": encode(wish.command).decode(),
        "container": wish.container,
        "stdin": "true" if wish.stdin else "",
        "tty": "true" if wish.tty else "",
    }
    return {name: value for name, value in query.items() if value}


def _path(server: str, what: str) -> str:
    namespace, _, name = server.partition("/")
    return instance_path(namespace, name, what)


# --- The cells that can be asked about their instances, and which of them to ask


class CellEndpoint(Protocol):
    """A cell, of this process or of another. ``server`` is ``namespace/name`` on its plane; the
    answer is None, or a page without a cursor, if the cell knows nothing of it."""

    async def log_page(self, server: str, wish: LogQuery) -> LogPage: ...

    async def usage(self, server: str) -> Usage | None: ...

    async def crashes(self, server: str) -> list[CrashReport]: ...

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck: ...

    async def execute(self, server: str, wish: ExecRequest) -> ExecSession | None: ...

    async def driver(self) -> DriverReport: ...


class CellEndpoints:
    """Those of this process from the start; others come and go with their membership. ``silent``
    are cells of this process whose machines are simulated; ``why`` is how the driver of this
    process was chosen."""

    def __init__(
        self,
        inside: Mapping[PlaneName, CellEndpoint],
        silent: Collection[PlaneName] = (),
        why: str = "",
    ) -> None:
        self._ways: dict[PlaneName, CellEndpoint] = dict(inside)
        self._inside = frozenset(inside)
        self._silent = silent
        self._why = why

    def add(self, plane: PlaneName, way: CellEndpoint) -> None:
        self._ways[plane] = way

    def remove(self, plane: PlaneName) -> None:
        self._ways.pop(plane, None)

    def knows(self, plane: PlaneName) -> bool:
        """Whether there is such a cell, even one that only pretends."""
        return plane in self._ways or plane in self._silent

    def planes(self) -> list[PlaneName]:
        """Every cell there is, in order."""
        return sorted({*self._ways, *self._silent})

    async def driver(self, plane: PlaneName) -> DriverReport:
        """What runs its instances; of this process it is known why."""
        if plane in self._silent:
            return replace(SIMULATED, why=self._why)
        (way,) = self.to(plane)
        told = await way.driver()
        return replace(told, why=self._why) if plane in self._inside else told

    def to(self, plane: PlaneName | None) -> list[CellEndpoint]:
        """That of the plane; all of them, in order, if nobody knows which it is."""
        if plane is None and self._ways:
            return [self._ways[known] for known in sorted(self._ways)]
        if plane is None or plane in self._silent:
            raise gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
        if plane not in self._ways:
            raise ServiceUnavailable(f"{plane} cannot be reached now; try again")
        return [self._ways[plane]]


# --- What runs the instances of each cell, and whether its engine answers
# Who may read instances may ask: that none of them starts is told there, and the reason here. A
# cell that does not answer has a row all the same.


# Longer than a driver waits for its engine, and shorter than clients wait.
ANSWER_S = 15.0


class CellDriver(DriverReport, frozen=True, kw_only=True, omit_defaults=False):
    cell: str


class CellDrivers(ApiStruct, frozen=True, kw_only=True):
    items: list[CellDriver]


async def read_drivers(ways: CellEndpoints, plane: PlaneName) -> CellDrivers:
    """Of the cell that is asked; on a project of all of them."""
    asked = [plane] if plane_role(plane) == "cell" else ways.planes()
    found = await asyncio.gather(*(_driver(ways, cell) for cell in asked))
    return CellDrivers(items=list(found))


async def _driver(ways: CellEndpoints, plane: PlaneName) -> CellDriver:
    try:
        async with asyncio.timeout(ANSWER_S):
            told = await ways.driver(plane)
    except TimeoutError:
        words = f"cell {member_name(plane)} does not answer within {ANSWER_S:.0f} s"
        told = DriverReport(driver="unknown", answers=False, words=words)
    except (ApiError, DriverError) as error:
        told = DriverReport(driver="unknown", answers=False, words=str(error))
    return CellDriver(
        cell=member_name(plane),
        driver=told.driver,
        why=told.why,
        engine=PurePosixPath(told.engine).name,  # its folder is a path on the host
        answers=told.answers,
        words=told.words,
        without_init=told.without_init,
    )
