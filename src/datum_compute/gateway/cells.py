"""A cell of another process, asked over the connection by which the hub works with it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from datum_compute.api.errors import ApiError, NotFound, Unreachable
from datum_compute.api.gateway import NOT_HERE, drivers_path, images_path, instance_path
from datum_compute.api.meta.codec import JsonObject, encode, plain, typed
from datum_compute.api.remotecommand import PROTOCOL, ExecWish
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import NORMAL, WebSocket
from datum_compute.drivers.driver import TransientError
from datum_compute.drivers.logs import LogPage, LogQuery
from datum_compute.drivers.queries import (
    CrashReport,
    CrashReportList,
    DriverReport,
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
            "cursor": encode(plain(dict(wish.cursor))).decode() if wish.cursor else "",
        }
        found = await self._asked(server, "log", {k: v for k, v in query.items() if v})
        return typed(found, LogPage) if found is not None else LogPage(lines=[], cursor={})

    async def usage(self, server: str) -> Usage | None:
        found = await self._asked(server, "usage")
        return typed(found, Usage) if found is not None else None

    async def crashes(self, server: str) -> list[CrashReport]:
        found = await self._asked(server, "crashes")
        return typed(found, CrashReportList).items if found is not None else []

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        configs = [base64.b64encode(config).decode() for config in pull_configs]
        body = {"image": image, "policy": policy, "configs": configs}
        try:
            return typed(await self._client.tell(images_path("default"), body), ImageCheck)
        except Unreachable as error:
            raise self._silent(error) from error

    async def driver(self) -> DriverReport:
        try:
            told = await self._client.ask(drivers_path("default"))
        except Unreachable as error:
            raise self._silent(error) from error
        return typed(told["items"][0], DriverReport)

    async def execute(self, server: str, wish: ExecWish) -> RemoteExecution | None:
        try:
            path = _path(server, "exec")
            socket = await self._client.websocket(path, PROTOCOL, exec_query(wish))
        except Unreachable as error:
            raise self._silent(error) from error
        except NotFound as error:
            if _knows_nothing(error):
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
            if _knows_nothing(error):
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


def exec_query(wish: ExecWish) -> dict[str, str]:
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


def _knows_nothing(error: ApiError) -> bool:
    return NOT_HERE in error.message
