"""World: a gateway in front of a real API server, fake cells, and clients without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from datum_compute.api.errors import ApiError
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
from datum_compute.drivers.driver import TransientError
from datum_compute.drivers.logs import LogLine, LogPage, LogPosition, LogQuery, WorkloadLog
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
LOG = instance_path("default", "web", "log")
USAGE = instance_path("default", "web", "usage")
IN = bytes((STDIN,))
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def reasons_of(error: ApiError) -> list[str]:
    return [cause.reason for cause in error.causes]


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


def connect_in_memory() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


class InMemoryTransport:
    """A transport that calls a dispatch and supports upgraded connections."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._upgraded: list[asyncio.Task[None]] = []
        self.ends: list[End] = []

    async def send(self, request: Request) -> Response:
        response = await self._dispatch(request)
        if response.switched is None:
            return response
        mine, theirs = connect_in_memory()
        self.ends.append(theirs)
        self._upgraded.append(asyncio.create_task(self._serve_upgraded(response, theirs)))
        return replace(response, duplex=mine)

    async def _serve_upgraded(self, response: Response, end: End) -> None:
        assert response.switched is not None
        await response.switched(end)
        await end.aclose()


class Echo:
    """A process that echoes its input. A number as input is its exit code."""

    def __init__(self, request: ExecRequest) -> None:
        self.request = request
        self.output: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_closed = False
        self.never_resizes = False

    async def receive(self) -> bytes | None:
        return await self.output.get()

    async def send(self, message: bytes) -> None:
        if message[0] == RESIZE and self.never_resizes:
            await asyncio.Event().wait()
        if message[0] != STDIN:
            return
        self.output.put_nowait(bytes((STDOUT,)) + message[1:])
        if message[1:].isdigit():
            self.output.put_nowait(encode_exec_result(ExecResult(exit_code=int(message[1:]))))
            self.output.put_nowait(None)

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class FakeCell:
    """Runs ``servers``. Their containers are ``app``, and ``dead``, which does not run."""

    servers: tuple[str, ...]
    sessions: list[Echo] = field(default_factory=list)
    configs: tuple[bytes, ...] = ()
    is_unreachable: bool = False

    async def log_page(self, server: str, query: LogQuery) -> LogPage:
        if server not in self.servers:
            return LogPage(lines=[], cursor={})
        place = LogPosition(second=1, lines=len(query.cursor))
        line = LogLine(time="1970-01-01T00:00:01Z", container="app", stream="out", text=repr(query))
        return LogPage(lines=[line], cursor={"one/app": place})

    async def workload_logs(self, namespace: str, workload: str) -> list[WorkloadLog]:
        if self.is_unreachable:
            raise TransientError("cannot reach cell iad")
        return [
            WorkloadLog(
                instance=server.partition("/")[2],
                workload_uid=f"uid-of-{workload}",
                city="DFW",
                written_at="2026-01-01T00:00:00Z",
            )
            for server in self.servers
            if server.startswith(f"{namespace}/")
        ]

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
        return DriverReport(driver="containers", engine="/engine.sock", words="fake 1")

    async def execute(self, server: str, request: ExecRequest) -> ExecSession | None:
        if server not in self.servers:
            return None
        if request.container == "dead":
            raise NotRunning("container dead does not run: it ended with code 1")
        if request.container not in ("", "app"):
            raise NoSuchContainer(f"it has no container {request.container}")
        self.sessions.append(Echo(request))
        return self.sessions[-1]


@dataclass
class GatewayWorld:
    """A server with a gateway, an instance ``web`` on a cell, and a user Eve."""

    server: InProcessServer
    gateway: Gateway
    endpoints: CellEndpoints
    audit_log: list[AuditEvent]
    cell: FakeCell

    def client(self, token: str = TOKEN, prefix: str = PROJECT) -> Client:
        return Client(
            InMemoryTransport(self.gateway.dispatch), prefix=prefix, token=token, agent="test"
        )

    async def exec(self, token: str = TOKEN, name: str = "web", **query: str) -> WebSocket:
        parameters: Mapping[str, str] = {"command": '["sh"]', "stdin": "true", **query}
        return await self.client(token).websocket(
            instance_path("default", name, "exec"), PROTOCOL, parameters
        )

    async def grant_eve(self, subresource: str, verb: str) -> str:
        """Grant Eve the verb. Return the path of the RoleBinding."""
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


def run_in_world(scenario: Callable[[GatewayWorld], Coroutine[Any, Any, None]]) -> None:
    """Run the scenario in virtual time."""

    async def main(_: object) -> None:
        eve = User("eve", ("system:authenticated",), frozenset({"project/demo"}))
        async with running_server(users={EVE: eve}) as server:
            await _allow_reviews(server)
            cell = FakeCell((f"ns-{await _uid(server)}/web",))
            await scenario(build_world(server, {DFW: cell}, cell))

    run_virtual(Random(5), main)


def build_world(
    server: InProcessServer, inside: dict[PlaneName, CellEndpoint], cell: FakeCell
) -> GatewayWorld:
    audit_log: list[AuditEvent] = []
    authorizer = LocalGatewayAuthorizer(
        server.api.dispatch,
        server.api.authenticator.audited_users,
        server.clock,
        audit_log.append,
    )
    endpoints = CellEndpoints(inside, [cell_plane("simulated")], choice_reason="for a test")

    def client_of(plane: PlaneName) -> Client:
        transport = InProcessTransport(server.api.dispatch)
        return Client(transport, prefix=path_prefix(plane), token=TOKEN, agent="test")

    gateway = Gateway(server.api.dispatch, client_of, endpoints, authorizer, server.clock)
    return GatewayWorld(server, gateway, endpoints, audit_log, cell)


async def _uid(server: InProcessServer) -> str:
    found = await server.json("GET", f"{PROJECT}/api/v1/namespaces/default")
    uid: str = found["metadata"]["uid"]
    return uid


async def _allow_reviews(server: InProcessServer) -> None:
    """Grant all users the self reviews, as the default roles of a plane do."""
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
