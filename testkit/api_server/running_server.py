"""A server over a store in memory, and short ways to ask it things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.http import JSON_PATCH, MERGE_PATCH, Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.access.authentication import StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import (
    AdmissionOptions,
    AuthenticationOptions,
    ServerEnvironment,
    ServerTelemetry,
)
from datum_compute.server.verbs.watch_stream import WatchStream
from datum_compute.store.journal import Entry, LoadedPlane, MemoryJournal
from datum_compute.store.store import Store

TOKEN = "token-of-root"
PROJECT = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/demo/control-plane"
COMPUTE = "/apis/compute.datumapis.com/v1alpha"
WORKLOADS = f"{COMPUTE}/namespaces/default/workloads"
LOCATION_BINDINGS = "/apis/networking.datumapis.com/v1alpha/locationbindings"
CITIES = ("DFW", "LHR", "ORD")
START_S = 1_700_000_000.0
ENOUGH_S = 30.0


@dataclass
class Clock:
    now_s: float = START_S

    def __call__(self) -> float:
        return self.now_s


@dataclass
class SequentialIds:
    """Ids that a test can foresee; ``names`` come first."""

    prefix: str
    names: list[str] = field(default_factory=list)
    count: int = 0

    def __call__(self) -> str:
        if self.names:
            return self.names.pop(0)
        self.count += 1
        return f"{self.prefix}{self.count:04d}"


class SteppedJournal:
    """A disk in memory that, while held, writes one batch for every permit."""

    def __init__(self) -> None:
        self._disk = MemoryJournal()
        self._permits = asyncio.Semaphore(0)
        self.held = False
        self.waiting = asyncio.Event()

    def permit(self) -> None:
        self._permits.release()

    async def load(self) -> dict[str, LoadedPlane]:
        return await self._disk.load()

    async def append(self, batch: Sequence[Entry]) -> None:
        if self.held:
            self.waiting.set()
            await self._permits.acquire()
            self.waiting.clear()
        await self._disk.append(batch)

    async def close(self) -> None:
        await self._disk.close()


@dataclass
class InProcessServer:
    store: Store
    api: ApiServer
    clock: Clock
    suffixes: SequentialIds
    journal: SteppedJournal

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = TOKEN,
        headers: Mapping[str, str | tuple[str, ...]] | None = None,
        **query: str,
    ) -> Response:
        """A header whose value is a tuple is sent once for each item."""
        sent = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        joined = {"authorization": f"Bearer {token}"} if token else {}
        repeated = {}
        for name, value in (headers or {}).items():
            if isinstance(value, tuple):
                repeated[name] = value
            joined[name] = value if isinstance(value, str) else ", ".join(value)
        return await self.api.dispatch(
            Request(method, path, query, joined, sent, repeated_headers=repeated)
        )

    async def json(self, method: str, path: str, body: Any = None, **more: Any) -> JsonObject:
        """The body of a successful answer."""
        response = await self.ask(method, path, body, **more)
        assert response.status < 300, response.body
        result: JsonObject = decode(response.body)
        return result

    async def status(self, method: str, path: str, body: Any = None, **more: Any) -> JsonObject:
        """The Status of a refused request."""
        response = await self.ask(method, path, body, **more)
        assert response.status >= 400, response.body
        result: JsonObject = decode(response.body)
        assert (result["kind"], result["code"]) == ("Status", response.status)
        return result

    async def merge(self, path: str, patch: JsonObject, **query: str) -> JsonObject:
        headers = {"content-type": MERGE_PATCH}
        return await self.json("PATCH", path, patch, headers=headers, **query)

    async def patch_refused(self, path: str, patch: Any, **query: str) -> JsonObject:
        content_type = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        headers = {"content-type": content_type}
        return await self.status("PATCH", path, patch, headers=headers, **query)

    async def operations(self, path: str, *operations: JsonObject) -> JsonObject:
        headers = {"content-type": JSON_PATCH}
        return await self.json("PATCH", path, list(operations), headers=headers)

    async def watch(self, path: str, **query: Any) -> Events:
        response = await self.ask("GET", path, watch="1", **query)
        assert response.status == 200, response.body
        assert isinstance(response.stream, WatchStream)
        return Events(response.stream)


@dataclass
class Events:
    """The events of a watch, one by one."""

    stream: WatchStream

    async def next(self) -> tuple[str, JsonObject]:
        return await self.next_in(ENOUGH_S)

    async def next_in(self, timeout_s: float) -> tuple[str, JsonObject]:
        async with asyncio.timeout(timeout_s):
            event = decode(await anext(self.stream))
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, JsonObject]]:
        return [await self.next() for _ in range(count)]

    async def names(self, count: int) -> list[tuple[str, str]]:
        return [(kind, obj["metadata"]["name"]) for kind, obj in await self.take(count)]

    async def rest(self) -> list[tuple[str, JsonObject]]:
        """Everything until the stream ends."""
        return await self.rest_in(ENOUGH_S)

    async def rest_in(self, timeout_s: float) -> list[tuple[str, JsonObject]]:
        async with asyncio.timeout(timeout_s):
            events = [decode(line) async for line in self.stream]
        return [(event["type"], event["object"]) for event in events]


@asynccontextmanager
async def running_server(
    *,
    watch_window: int = 5000,
    users: Mapping[str, User] | None = None,
    is_ready: bool = True,
    **options: Any,
) -> AsyncIterator[InProcessServer]:
    """A server with an almost empty platform plane, a hub, a cell and a project; each with a
    namespace ``default`` and the locations of CITIES, except the cell. ``options`` are fields of
    the options of ApiServer."""
    journal = SteppedJournal()
    store = Store(journal, watch_window=watch_window)
    await store.load()
    clock, suffixes = Clock(), SequentialIds("s")
    everyone = {TOKEN: User("root", ("system:masters",), frozenset({"*"})), **(users or {})}
    environment = ServerEnvironment(
        clock,
        SequentialIds("uid-"),
        suffixes,
        is_ready=lambda: is_ready,
        **_select(options, "new_request_id", "work_clock"),
    )
    api = ApiServer(
        store,
        environment,
        AuthenticationOptions(StaticTokens(everyone), **_select(options, "signer", "certify")),
        telemetry=ServerTelemetry(**_select(options, "metrics", "tracer", "audit")),
        admission=AdmissionOptions(
            **_select(options, "watches_per_user_max", "flow_limits", "deprecation_grace_s")
        ),
    )
    assert not options, f"unknown options: {sorted(options)}"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(store.run())
        for plane in ("platform", "hub", "cell/dfw", "project/demo"):
            await store.create_plane(plane)
        server = InProcessServer(store, api, clock, suffixes, journal)
        for prefix in ("", "/planes/hub", PROJECT):
            await server.json("POST", f"{prefix}/api/v1/namespaces", namespace("default"))
            await give_cities(server, prefix)
        yield server
        running.cancel()


def _select(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove the options with these names, and return them."""
    return {name: options.pop(name) for name in names if name in options}


def namespace(name: str, **metadata: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


async def give_cities(server: InProcessServer, prefix: str, *cities: str) -> None:
    """Let the workloads of a plane run there."""
    for city in cities or CITIES:
        await server.json("POST", f"{prefix}{LOCATION_BINDINGS}", location_binding(city))


def location_binding(city: str) -> JsonObject:
    return {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "LocationBinding",
        "metadata": {"name": city.lower()},
        "spec": {
            "locationRef": {"name": city.lower()},
            "locationClassName": "datum-managed",
            "topology": {"topology.datum.net/city-code": city},
        },
    }


def workload(name: str = "web", *, image: str = "web:1", **metadata: Any) -> JsonObject:
    container = {"name": "app", "image": image}
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": name, **metadata},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [
                {"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
            ],
        },
    }


def causes(status: JsonObject) -> dict[str, str]:
    """Reasons by field."""
    return {cause["field"]: cause["reason"] for cause in status["details"]["causes"]}
