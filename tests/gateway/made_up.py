"""A gateway before a real server, cells that are made up, and clients without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from datum_compute.api.gateway import (
    PROTOCOL,
    RESIZE,
    STDIN,
    STDOUT,
    ExecRequest,
    ExecResult,
    encode_exec_result,
    instance_path,
)
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import PlaneName, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.websocket import WebSocket
from datum_compute.drivers.logs import LogLine, LogPage, LogPosition, LogQuery
from datum_compute.drivers.queries import (
    CrashReport,
    DriverReport,
    ExecSession,
    ImageCheck,
    NoSuchContainer,
    NotRunning,
    Usage,
)
from datum_compute.gateway.authorizer import Dispatch, LocalGatewayAuthorizer
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints
from datum_compute.gateway.gateway import Gateway
from datum_compute.server.access.audit import AuditEvent
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import PROJECT, TOKEN, InProcessServer, running_server
from testkit.sim.loop import run_virtual

EVE = "token-of-eve"
DFW = cell_plane("dfw")
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class End:
    """One end of a connection in memory."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.other: End
        self.closed = False

    async def read(self) -> bytes:
        return b"" if self.closed and self.arrived.empty() else await self.arrived.get()

    async def write(self, data: bytes) -> None:
        if not self.closed:
            self.other.arrived.put_nowait(data)

    async def aclose(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.closed = True
                end.arrived.put_nowait(b"")


def connected() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


class Socketless:
    """A transport to a dispatch that also leaves HTTP when that agrees to it."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._talking: list[asyncio.Task[None]] = []
        self.ends: list[End] = []

    async def send(self, request: Request) -> Response:
        response = await self._dispatch(request)
        if response.switched is None:
            return response
        mine, theirs = connected()
        self.ends.append(theirs)
        self._talking.append(asyncio.create_task(self._talk(response, theirs)))
        return replace(response, duplex=mine)

    async def _talk(self, response: Response, end: End) -> None:
        assert response.switched is not None
        await response.switched(end)
        await end.aclose()


class Echo:
    """A process that says everything again, and ends with the code that it is told."""

    def __init__(self, wish: ExecRequest) -> None:
        self.wish = wish
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_closed = False
        self.never_resizes = False

    async def receive(self) -> bytes | None:
        return await self.said.get()

    async def send(self, message: bytes) -> None:
        if message[0] == RESIZE and self.never_resizes:
            await asyncio.Event().wait()
        if message[0] != STDIN:
            return
        self.said.put_nowait(bytes((STDOUT,)) + message[1:])
        if message[1:].isdigit():
            self.said.put_nowait(encode_exec_result(ExecResult(exit_code=int(message[1:]))))
            self.said.put_nowait(None)

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class MadeUpCell:
    """Runs the Servers it is told to; their containers are ``app`` and, not running, ``dead``."""

    servers: tuple[str, ...]
    sessions: list[Echo] = field(default_factory=list)
    configs: tuple[bytes, ...] = ()

    async def log_page(self, server: str, wish: LogQuery) -> LogPage:
        if server not in self.servers:
            return LogPage(lines=[], cursor={})
        place = LogPosition(second=1, lines=len(wish.cursor))
        line = LogLine(time="1970-01-01T00:00:01Z", container="app", stream="out", text=repr(wish))
        return LogPage(lines=[line], cursor={"one/app": place})

    async def usage(self, server: str) -> Usage | None:
        return Usage(cpu_millicores=7) if server in self.servers else None

    async def crashes(self, server: str) -> list[CrashReport]:
        if server not in self.servers:
            return []
        return [CrashReport(ended_at="2023-11-14T22:00:00.000Z", message="it ended", exit_code=9)]

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        self.configs = tuple(pull_configs)
        return ImageCheck(outcome="found", words=f"{image} {policy}")

    async def driver(self) -> DriverReport:
        return DriverReport(driver="containers", engine="/engine.sock", words="made up 1")

    async def execute(self, server: str, wish: ExecRequest) -> ExecSession | None:
        if server not in self.servers:
            return None
        if wish.container == "dead":
            raise NotRunning("container dead does not run: it ended with code 1")
        if wish.container not in ("", "app"):
            raise NoSuchContainer(f"it has no container {wish.container}")
        self.sessions.append(Echo(wish))
        return self.sessions[-1]


@dataclass
class Desk:
    """A server with a gateway, an instance ``web`` of a cell, and Eve."""

    server: InProcessServer
    gateway: Gateway
    ways: CellEndpoints
    trail: list[AuditEvent]
    cell: MadeUpCell

    def client(self, token: str = TOKEN, prefix: str = PROJECT) -> Client:
        return Client(Socketless(self.gateway.dispatch), prefix=prefix, token=token, agent="test")

    async def exec(self, token: str = TOKEN, name: str = "web", **query: str) -> WebSocket:
        asked: Mapping[str, str] = {"command": '["sh"]', "stdin": "true", **query}
        return await self.client(token).websocket(
            instance_path("default", name, "exec"), PROTOCOL, asked
        )

    async def let_in(self, subresource: str, verb: str) -> str:
        """Eve may; the path of what lets her."""
        role: JsonObject = {
            "metadata": {"name": subresource},
            "rules": [
                {
                    "apiGroups": ["compute.datumapis.com"],
                    "resources": [f"instances/{subresource}"],
                    "verbs": [verb],
                }
            ],
        }
        binding: JsonObject = {
            "metadata": {"name": subresource},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": subresource,
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
        }
        folder = f"{PROJECT}{RBAC}/namespaces/default"
        await self.server.json("POST", f"{folder}/roles", role)
        await self.server.json("POST", f"{folder}/rolebindings", binding)
        return f"{folder}/rolebindings/{subresource}"


def at_a_desk(scenario: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    """In virtual time."""

    async def main(_: object) -> None:
        eve = User("eve", ("system:authenticated",), frozenset({"project/demo"}))
        async with running_server(users={EVE: eve}) as server:
            await _let_ask(server)
            cell = MadeUpCell((f"ns-{await _uid(server)}/web",))
            await scenario(a_desk(server, {DFW: cell}, cell))

    run_virtual(Random(5), main)


def a_desk(
    server: InProcessServer, inside: dict[PlaneName, CellEndpoint], cell: MadeUpCell
) -> Desk:
    trail: list[AuditEvent] = []
    doorkeeper = LocalGatewayAuthorizer(server.api.dispatch, server.clock, trail.append)
    ways = CellEndpoints(inside, [cell_plane("pretended")], why="it is told so")

    def client_of(plane: PlaneName) -> Client:
        transport = InProcessTransport(server.api.dispatch)
        return Client(transport, prefix=path_prefix(plane), token=TOKEN, agent="test")

    gateway = Gateway(server.api.dispatch, client_of, ways, doorkeeper, server.clock)
    return Desk(server, gateway, ways, trail, cell)


async def _uid(server: InProcessServer) -> str:
    found = await server.json("GET", f"{PROJECT}/api/v1/namespaces/default")
    uid: str = found["metadata"]["uid"]
    return uid


async def _let_ask(server: InProcessServer) -> None:
    """Everybody may ask what they may, as on every plane that was brought up."""
    rules = [
        {
            "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectreviews"],
            "verbs": ["create"],
        }
    ]
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}
    await server.json(
        "POST", f"{PROJECT}{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": rules}
    )
    binding = {
        "metadata": {"name": "all"},
        "roleRef": role,
        "subjects": [{**group, "name": "system:authenticated"}],
    }
    await server.json("POST", f"{PROJECT}{RBAC}/clusterrolebindings", binding)
