"""A project plane on an API server in this process, with functions that act as controllers.

Every command runs an event loop of its own, so each gets a server of its own over one journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.errors import AlreadyExists
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import (
    BUCKET,
    DEPLOYMENT,
    INSTANCE,
    INSTANCE_TYPE,
    REVISION,
    WORKLOAD,
)
from datum_compute.api.labels import CELL, CITY_CODE, PLACEMENT_NAME, WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import (
    PLATFORM,
    PlaneName,
    cell_plane,
    normalize_city,
    path_prefix,
    project_plane,
)
from datum_compute.api.quota import AllowanceBucket, QuotaMetric
from datum_compute.cli.connect.session import run_loop
from datum_compute.client.auth.kubeconfig import Connection
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.planes.catalogue import ensure_project
from datum_compute.planning.plan import Create
from datum_compute.planning.workload.names import Place, preferred_name
from datum_compute.planning.workload.revisions import plan_revisions
from datum_compute.server.access.authentication import EVERY_PLANE, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.journal import MemoryJournal
from datum_compute.store.store import Store
from tests.cli.objects import condition
from tests.cli.runner import NOW

PLANE = project_plane("default")
CELLS = tuple(cell_plane(city) for city in ("ams", "dfw", "iad", "ord"))
NAMESPACE = "default"
TOKENS = {
    "user": User("ada", ("system:masters",), frozenset({PLANE})),
    "owner": User("ada", ("system:masters",), frozenset({PLANE, PLATFORM})),
    "operator": User("ada", ("system:masters",), frozenset({EVERY_PLANE})),
    "unauthorized": User("eve", (), frozenset()),
    "controller": User("system:bootstrap", ("system:masters",), frozenset({EVERY_PLANE})),
}

Player = Callable[[Client], Coroutine[Any, Any, None]]


async def no_controllers(_client: Client) -> None:
    """No controller is running."""


def simulated_gateway(request: Request) -> Response | None:
    """Respond as the gateway of a platform with simulated machines."""
    if not request.path.endswith("/namespaces/default/drivers"):
        return None
    driver = {"driver": "simulated", "why": "as told", "answers": True}  # quoted
    return Response(200, encode({"items": [{"cell": "dfw", **driver}, {"cell": "iad", **driver}]}))


def gateway_without_cell(cell: str, last_heartbeat: str = "") -> Callable[[Request], Any]:
    """Return a gateway that does not reach the cell, and reports its last heartbeat."""

    def respond(request: Request) -> Response | None:
        if not request.path.endswith("/namespaces/default/drivers"):
            return None
        item = {"cell": cell, "driver": "unknown", "answers": False}
        problem = {"words": f"cannot reach cell {cell}", "lastHeartbeat": last_heartbeat}
        return Response(200, encode({"items": [{**item, **problem}]}))

    return respond


async def place_instances(client: Client, cell: str) -> None:
    """Label all instances with their cell, as the copies in a project are."""
    for instance in (await client.list(INSTANCE, NAMESPACE)).items:
        patch = {"metadata": {"labels": {CELL: cell}}}
        await client.patch(INSTANCE, Ref(NAMESPACE, instance.metadata.name), patch)


async def deprecate_type(client: Client, name: str, replacement: str) -> None:
    """Deprecate an instance type; create it and its replacement if they do not exist."""
    existing = {t.metadata.name: t for t in (await client.list(INSTANCE_TYPE)).items}
    resources = {"cpu": "1", "memory": "1Gi"}
    for missing in {name, replacement} - set(existing):
        new = {"metadata": {"name": missing}, "spec": {"resources": resources}}
        await client.create(INSTANCE_TYPE, from_json(new, InstanceType))
    lifecycle = {"phase": "Deprecated", "replacementInstanceType": replacement}
    await client.patch(INSTANCE_TYPE, Ref("", name), {"spec": {"lifecycle": lifecycle}})


@dataclass
class World:
    """An API server over one journal, and hooks for each command.

    ``player`` runs during each command. ``before`` is called before a request is sent, and
    ``after`` before its response is returned. ``gateway`` may respond instead of the server.
    """

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    player: Player = no_controllers
    before: Callable[[Request, Client], Awaitable[None]] | None = None
    after: Callable[[Request], Awaitable[None]] | None = None
    gateway: Callable[[Request], Response | None] = simulated_gateway
    writes: list[Request] = field(default_factory=list)
    uids: int = 0
    planes: tuple[PlaneName, ...] = (PLATFORM, PLANE)

    @asynccontextmanager
    async def open(self, _connection: Connection) -> AsyncIterator[World.Transport]:
        """Open a transport to a server that runs until the transport is closed."""
        async with self._serving() as server:
            client = _client(server)
            async with beside(self.player(client)):
                yield World.Transport(self, server, client)

    def do(self, work: Callable[[Client], Awaitable[Any]], plane: PlaneName = PLANE) -> Any:
        """Run ``work`` with a client of the plane, outside of a command."""

        async def serve_and_work() -> Any:
            async with self._serving() as server:
                return await work(_client(server, plane))

        return run_loop(serve_and_work())

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[ApiServer]:
        store = Store(self.journal)
        await store.load()
        server = ApiServer(
            store,
            ServerEnvironment(lambda: NOW - 300, self._new_uid, lambda: "x"),
            AuthenticationOptions(StaticTokens(TOKENS)),
        )
        async with beside(store.run()):
            for plane in self.planes:
                await store.create_plane(plane)
                await ensure_plane(_client(server, plane), plane)
            await ensure_project(_client(server), PLANE, CELLS, timestamp(NOW))
            yield server

    def _new_uid(self) -> str:
        self.uids += 1
        return f"uid-{self.uids}"

    @dataclass
    class Transport:
        world: World
        server: ApiServer
        client: Client

        async def send(self, request: Request) -> Response:
            if self.world.before is not None:
                await self.world.before(request, self.client)
            if request.method != "GET" and "dryRun" not in request.query:
                self.world.writes.append(request)
            response = self.world.gateway(request) or await self.server.dispatch(request)
            if self.world.after is not None:
                await self.world.after(request)
            return response


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` concurrently with the body of the context."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(
        0
    )  # until its first wait, so that a player watches before the command writes
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _client(server: ApiServer, plane: PlaneName = PLANE) -> Client:
    transport = InProcessTransport(server.dispatch)
    return Client(transport, prefix=path_prefix(plane), token="controller", agent="player/1")


def write_kubeconfig(
    path: Path, token: str = "user", planes: tuple[PlaneName, ...] = (PLANE,)
) -> Path:
    """Write a kubeconfig with a context for each plane of the world."""
    server = "https://127.0.0.1:1"
    document = {
        "current-context": "project/default",
        "clusters": [
            {"name": plane, "cluster": {"server": f"{server}{path_prefix(plane)}"}}
            for plane in planes
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [
            {"name": plane, "context": {"cluster": plane, "user": "u"}} for plane in planes
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def stored(world: World, name: str = "web") -> JsonObject:
    found: JsonObject = world.do(lambda c: c.get_plain(WORKLOAD, Ref(NAMESPACE, name)))
    return found


def spec(world: World) -> JsonObject:
    found: JsonObject = stored(world)["spec"]
    return found


def image(world: World) -> str:
    found: str = spec(world)["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
    return found


def replicas(world: World) -> int:
    found: int = spec(world)["placements"][0]["scaleSettings"]["minReplicas"]
    return found


def sent(request: Request) -> JsonObject:
    body: JsonObject = decode(request.body)
    return body


# --- players


async def workloads(client: Client) -> AsyncIterator[Workload]:
    """Yield each workload whose current generation has no status."""
    async for event in client.watch(WORKLOAD, "", namespace=NAMESPACE, timeout_s=600):
        found = event.object
        if found is None or event.type not in ("ADDED", "MODIFIED"):
            continue
        if found.status.observed_generation < found.metadata.generation:
            yield found


async def healthy(client: Client) -> None:
    """Report every requested instance as ready."""
    async for workload in workloads(client):
        await report(client, workload)


async def image_missing(client: Client) -> None:
    """Nothing starts, because there is no such image."""
    async for workload in workloads(client):
        await report(client, workload, failure=("ImageUnavailable", "no such tag: web:9"))


async def report(
    client: Client, workload: Workload, *, failure: tuple[str, str] | None = None
) -> None:
    """Deployments, instances and statuses as the controllers would leave them in the end."""
    ready = total = 0
    for placement in workload.spec.placements:
        minimum = placement.scale_settings.min_replicas
        total += minimum * len(placement.city_codes)
        for city in placement.city_codes:
            ready += 0 if failure else minimum
            await _report_city(client, workload, (placement.name, city), minimum, failure)
    status, reason, message = ("False", *failure) if failure else ("True", "Available", "")
    fields = {
        "observedGeneration": workload.metadata.generation,
        "conditions": [condition("Available", status, reason, message)],
        **counts(ready, total),
    }
    await set_status(client, WORKLOAD, workload.metadata.name, fields)


async def _report_city(
    client: Client,
    workload: Workload,
    place: tuple[str, str],
    minimum: int,
    failure: tuple[str, str] | None,
) -> None:
    placement, city = place
    uid = workload.metadata.uid
    name = preferred_name(workload, Place(placement, normalize_city(city)))
    labels = {WORKLOAD_UID: uid, PLACEMENT_NAME: placement, CITY_CODE: city}
    spec = {
        "workloadRef": {"name": workload.metadata.name, "uid": uid},
        "placementName": placement,
        "cityCode": city,
        "template": {"spec": template_of(workload)},
        "scaleSettings": {"minReplicas": minimum},
    }
    made = await ensure(client, DEPLOYMENT, name, labels, spec)
    status, reason, message = ("False", *failure) if failure else ("True", "Available", "")
    for ordinal in range(minimum):
        await ensure(client, INSTANCE, f"{name}-{ordinal}", labels, template_of(workload))
        ready = condition("Ready", status, reason, message)
        address = {"assignments": {"networkIP": f"10.0.0.{ordinal}"}}
        quota = condition("QuotaGranted", "True", "QuotaAvailable", "Quota is granted")
        reported = {
            "conditions": [ready, quota],
            "networkInterfaces": [address],
            "resources": {"cpu": "500m", "memory": "1Gi"},
        }
        await set_status(client, INSTANCE, f"{name}-{ordinal}", reported)
    fields = {
        "observedGeneration": made.metadata.generation,
        "conditions": [condition("Available", status, reason, message)],
        **counts(0 if failure else minimum, minimum),
    }
    await set_status(client, DEPLOYMENT, name, fields)


def template_of(workload: Workload) -> JsonObject:
    containers = workload.spec.template.spec.runtime.sandbox.containers
    listed = [{"name": c.name, "image": c.image} for c in containers]
    return {"runtime": {"sandbox": {"containers": listed}}}


def counts(ready: int, total: int) -> JsonObject:
    return {
        "replicas": total,
        "updatedReplicas": total,
        "readyReplicas": ready,
        "desiredReplicas": total,
    }


async def ensure(
    client: Client, kind: KindInfo[Any], name: str, labels: JsonObject, spec: JsonObject
) -> ApiObject:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    try:
        made: ApiObject = await client.create(
            kind, from_json({"metadata": metadata, "spec": spec}, kind.model)
        )
    except AlreadyExists:
        made = await client.patch(kind, Ref(NAMESPACE, name), {"spec": spec})
    return made


async def set_status(client: Client, kind: KindInfo[Any], name: str, status: JsonObject) -> None:
    found = await client.get(kind, Ref(NAMESPACE, name))
    version = found.metadata.resource_version
    await client.patch_status(kind, Ref(NAMESPACE, name), status, version=version)


async def remove_parts(client: Client, uid: str) -> None:
    """What the controllers do once a workload is deleted."""
    kinds: tuple[KindInfo[Any], ...] = (INSTANCE, DEPLOYMENT)
    for kind in kinds:
        listed = await client.list(kind, NAMESPACE, labels={WORKLOAD_UID: uid})
        for found in listed.items:
            await client.delete(kind, Ref(NAMESPACE, found.metadata.name))


async def patch_status_of(
    client: Client, kind: KindInfo[Any], ref: Ref, status: JsonObject
) -> None:
    found = await client.get(kind, ref)
    await client.patch_status(kind, ref, status, version=found.metadata.resource_version)


async def bucket(
    client: Client, metric: QuotaMetric, limit: int, used: int, *, added_up: bool = True
) -> None:
    consumer = {"kind": "Project", "name": "default"}
    made = from_json(
        {
            "metadata": {"name": f"bucket-{metric.name}", "namespace": "milo-system"},
            "spec": {"consumerRef": consumer, "resourceType": metric.resource_type},
        },
        AllowanceBucket,
    )
    await client.create(BUCKET, made)
    if not added_up:
        return
    status = {"limit": limit, "allocated": used, "available": limit - used, "claimCount": 1}
    await patch_status_of(client, BUCKET, Ref("milo-system", f"bucket-{metric.name}"), status)


async def recorder(client: Client) -> None:
    """What the revision controller does, at every change."""
    async for event in client.watch(WORKLOAD, "", namespace=NAMESPACE, timeout_s=600):
        if event.object is None or event.type not in ("ADDED", "MODIFIED"):
            continue
        known = (await client.list(REVISION, NAMESPACE)).items
        for action in plan_revisions(PLANE, event.object, known).actions:
            assert isinstance(action, Create)
            assert isinstance(action.object, WorkloadRevision)
            await client.create(REVISION, action.object)


async def healthy_and_recorded(client: Client) -> None:
    await asyncio.gather(healthy(client), recorder(client))
