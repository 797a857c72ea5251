"""An engine in memory, with the part of the API that an adopting driver uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.drivers.containers.container_spec import (
    CONTAINER,
    MACHINE,
    ContainerOwner,
    MachinePlan,
    container_labels,
    container_name,
)
from datum_compute.drivers.containers.engine import (
    PING_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Engine,
    EngineError,
    EngineTimeout,
    Query,
)
from datum_compute.drivers.driver import TransientError

STARTED_AT = "2026-01-01T00:00:00Z"


class MemoryEngine(Engine):
    """An engine whose failures a test controls.

    - ``set_away``: every request fails, and the stream of events ends.
    - ``set_hung``: requests wait for their response, and the stream is idle.
    - ``broken``: containers that the engine lists and cannot inspect.
    - ``hangs_commands``: no command ends.
    - ``hang_at_command``: the engine hangs from the next start of a command.
    - ``starts_at``: the time that it records for a start.
    """

    def __init__(self, owner: ContainerOwner) -> None:
        super().__init__("memory")
        self.owner = owner
        self.containers: dict[str, JsonObject] = {}
        self.broken: set[str] = set()
        self.requests: list[str] = []
        self.is_away = False
        self.starts_at = STARTED_AT
        self._went_away = asyncio.Event()
        self.hangs_commands = False
        self.pings = 0
        self.hang_at_command = False
        self._is_serving = asyncio.Event()
        self._is_serving.set()

    def add(self, machine_id: str, plan: MachinePlan, status: str = "running") -> None:
        """Add the containers of a machine that an earlier process created."""
        for container in plan.containers:
            name = container_name(self.owner, machine_id, container.name)
            self.containers[name] = {
                "Id": f"id-of-{name}",
                "Labels": container_labels(self.owner, machine_id, container.name, plan),
                "State": {"Status": status, "StartedAt": STARTED_AT},
                "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "127.0.0.1"}}},
            }

    def set_status(self, machine_id: str, status: str, exit_code: int = 0) -> None:
        for container in self.containers.values():
            if container["Labels"][MACHINE] == machine_id:
                container["State"] |= {"Status": status, "ExitCode": exit_code}

    def set_away(self, *, is_away: bool) -> None:
        self.is_away = is_away
        self._went_away.set()
        self._went_away = asyncio.Event()

    def set_hung(self, *, is_hung: bool) -> None:
        if is_hung:
            self._is_serving.clear()
        else:
            self._is_serving.set()

    async def _answer(self, timeout_s: float) -> None:
        """Wait until the engine answers a request."""
        await asyncio.sleep(0)
        if self.is_away:
            raise TransientError("cannot reach the container engine at memory")
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_serving.wait()
        except TimeoutError:
            raise EngineTimeout("no response in time") from None
        self.notify_response()

    async def ping(self, timeout_s: float = PING_TIMEOUT_S) -> None:
        self.pings += 1
        await self._answer(timeout_s)

    def changed(self) -> list[str]:
        """Return the requests that changed a container."""
        return [r for r in self.requests if not r.startswith("GET ") and not r.endswith("/exec")]

    async def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        await self._answer(timeout_s)
        self.requests.append(f"{method} {path}")
        if path == "/containers/json":
            wanted = json.loads(str((query or {})["filters"]))["label"]
            found = [c for c in self.containers.values() if _has_labels(c, wanted)]
            return [c | {"State": c["State"]["Status"]} for c in found]
        if path.startswith("/exec/"):
            return {"ExitCode": 0}
        return {"Id": "command"} if path.endswith("/exec") else self._ask_container(method, path)

    def _ask_container(self, method: str, path: str) -> Any:
        name, _, verb = path.removeprefix("/containers/").partition("/")
        container = self.containers.get(name)
        if container is None:
            raise EngineError(404, f"no such container {name}")
        if container["Labels"][CONTAINER] in self.broken:
            raise EngineError(500, "the state of the container cannot be read")
        match method, verb:
            case "GET", "json":
                return container
            case "POST", "start":
                container["State"] |= {"Status": "running", "StartedAt": self.starts_at}
            case "POST", "stop":
                container["State"] |= {"Status": "exited", "ExitCode": 0}
            case "DELETE", "":
                del self.containers[name]
        return None

    async def request_bytes(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        if self.hang_at_command and path.startswith("/exec/"):
            self.hang_at_command = False
            self.set_hung(is_hung=True)
        await self._answer(timeout_s)
        if self.hangs_commands and path.endswith("/start"):
            await asyncio.sleep(timeout_s)
            raise EngineTimeout("no response in time")
        return b""

    async def read_into(
        self,
        consume: Callable[[bytes], bool],
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        bytes_max: int | None = None,
    ) -> bool:
        return not consume(await self.request_bytes(method, path, query, body, timeout_s=timeout_s))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        idle_timeout_s: float | None = None,
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        if self.is_away:
            raise TransientError("cannot reach the container engine at memory")
        yield self._events()

    async def _events(self) -> AsyncGenerator[bytes, None]:
        yield b""
        await self._went_away.wait()


def _has_labels(container: JsonObject, wanted: list[str]) -> bool:
    labels = container["Labels"]
    return all(labels.get(name) == value for name, _, value in (w.partition("=") for w in wanted))
