"""Single-cluster mode in this process: one durable API server with all controllers.

Workloads pass quota, networks and both gates. All writes can be recorded, so that ``replay.py``
sends them again as the lower bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from datum_compute.api.compute.workload import Workload
from datum_compute.api.core import Namespace
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    NETWORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.networking.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from datum_compute.api.quota import METRICS, QUOTA_NAMESPACE
from datum_compute.app.controllers import (
    ManagerOptions,
    ManagerTelemetry,
    build_event_recorder,
    build_manager,
)
from datum_compute.app.environment import ProcessEnvironment, process_environment
from datum_compute.app.platform import (
    BOOTSTRAP,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
)
from datum_compute.app.process import settle_memory
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.planes.catalogue import project_objects
from datum_compute.planes.roles import MANAGER_USER
from datum_compute.runtime.controller import Controller
from datum_compute.store.sqlite import SqliteJournal
from hack.account_rules import single_cluster_rules

PROJECT, CELL = project_plane("default"), cell_plane("dfw")
SPACE = "default"
PLENTY = 10**9
REPLICAS_MAX = 1000  # of one Workload in one city

CREDENTIALS = PlaneTokens("manager", {PLATFORM: "user", HUB: "hub"})
_RBAC = "rbac.authorization.k8s.io"
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A write and its response. It is cheap to create and not traversed by the garbage collector,
    because its cost is counted as a cost of the controllers."""

    request: Request
    answer: Response
    number: int  # order in which requests were sent; responses may arrive in another order


class RecordingTransport:
    """Passes requests on, and records successful writes."""

    def __init__(self, inner: Transport, kept: list[Recorded]) -> None:
        self._inner = inner
        self._kept = kept
        self._sent = 0

    async def send(self, request: Request) -> Response:
        self._sent += 1
        number = self._sent
        response = await self._inner.send(request)
        if request.method in _WRITES and response.status < 300:
            self._kept.append(Recorded(request, response, number))
        return response


@dataclass(frozen=True, slots=True)
class World:
    user: Client
    written: list[Recorded]
    versions: Callable[[], int]  # number of writes
    names: list[str] = field(default_factory=list)  # of the Workloads

    async def deploy(self, replicas: int) -> list[str]:
        """Create instances in Workloads of the largest size; return the Workload names."""
        known = len(self.names)
        while replicas > 0:
            self.names.append(f"web{len(self.names)}")
            await self._deploy(self.names[-1], min(replicas, REPLICAS_MAX))
            replicas -= REPLICAS_MAX
        return self.names[known:]

    async def _deploy(self, name: str, replicas: int) -> None:
        """Create a Workload and a network: one network has 4,093 addresses in a city."""
        spec = NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"])
        metadata = ObjectMeta(name=name, namespace=SPACE)
        await self.user.create(NETWORK, Network(metadata=metadata, spec=spec))
        await self.user.create_plain(WORKLOAD, workload(name, replicas))

    async def roll(self, names: Iterable[str]) -> None:
        container = {"name": "app", "image": "web:2"}
        template = {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}
        for name in names:
            await self.user.patch(WORKLOAD, Ref(SPACE, name), {"spec": {"template": template}})

    async def ready(self, names: Iterable[str]) -> None:
        """Wait until the newest generation of every Workload is ready."""
        for name in names:
            await self.user.wait(WORKLOAD, Ref(SPACE, name), _is_rolled_out, timeout_s=1800)

    async def wait_until_quiet(self, seconds: float = 1.5) -> None:
        """Return when nothing has been written for this time."""
        before = -1
        while before != self.versions():
            before = self.versions()
            await asyncio.sleep(seconds)


@asynccontextmanager
async def new_world(state: Path) -> AsyncIterator[World]:
    written: list[Recorded] = []
    environment = process_environment()
    async with served(state / "bench.db", environment, registry.CLUSTER) as platform:
        sending = InProcessTransport(platform.dispatch)
        transport = RecordingTransport(sending, written)
        await bring_up(platform, written)
        user = client_of(transport, "user")
        async with managed(client_of(transport, "manager"), environment):
            world = World(user, written, lambda: platform.store.version(PLATFORM))
            await world.wait_until_quiet()
            settle_memory()
            yield world


@asynccontextmanager
async def served(
    database: Path, environment: ProcessEnvironment, controllers: Sequence[Controller[Context]]
) -> AsyncIterator[Platform]:
    """An API server for one plane."""
    journal = SqliteJournal(database)
    layout = PlaneLayout((), {})
    options = PlatformOptions(control=ControllerOptions(controllers))
    platform = Platform(layout, environment, journal, CREDENTIALS, options)
    await platform.load()
    running = asyncio.create_task(platform.run())
    try:
        await platform.ready.wait()
        yield platform
    finally:
        running.cancel()
        await asyncio.wait([running])
        await journal.close()


@asynccontextmanager
async def managed(client: Client, environment: ProcessEnvironment) -> AsyncIterator[None]:
    """``compute-manager`` in single-cluster mode."""
    numbers = CollectorRegistry()
    names = (PLATFORM, PROJECT, CELL)
    clients: dict[PlaneName, Client] = dict.fromkeys(names, client)
    recorder = build_event_recorder(clients.get, environment, numbers)
    manager = build_manager(
        registry.single_cluster("default"),
        {CELL: SimulatedDriver(MachineTable(), now=environment.unix_s)},
        environment,
        telemetry=ManagerTelemetry(recorder.record, registry=numbers),
        options=ManagerOptions(single_project="default"),
    )
    for name in names:
        manager.engage(name, client)
    running = [asyncio.create_task(manager.run()), asyncio.create_task(recorder.run())]
    try:
        await manager.wait_for_sync()
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


def client_of(transport: RecordingTransport, token: str) -> Client:
    return Client(transport, prefix="", token=token, agent="bench")


async def bring_up(platform: Platform, written: list[Recorded]) -> None:
    """Create what the files in deploy/single-cluster create, with a high quota."""
    answering = InProcessTransport(partial(platform.server.dispatch_as, BOOTSTRAP))
    operator = client_of(RecordingTransport(answering, written), "")
    metadata = {"metadata": {"name": "compute-manager"}, "apiVersion": f"{_RBAC}/v1"}
    rules = list(single_cluster_rules())
    await operator.create_plain(CLUSTER_ROLE, {**metadata, "kind": "ClusterRole", "rules": rules})
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "compute-manager"}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": MANAGER_USER}]
    binding = {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects}
    await operator.create_plain(CLUSTER_ROLE_BINDING, {**metadata, **binding})
    await operator.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=QUOTA_NAMESPACE)))
    limits = {metric.resource_type: PLENTY for metric in METRICS}
    for kind, obj in project_objects(PROJECT, (CELL,), limits):
        await operator.create(kind, obj)


def workload(name: str, replicas: int) -> JsonObject:
    scale = {
        "minReplicas": replicas,
        "instanceManagementPolicy": "Parallel",
        "maxUnavailable": "25%",
    }
    template = {
        "runtime": {"sandbox": {"containers": [{"name": "app", "image": "web:1"}]}},
        "networkInterfaces": [{"network": {"name": name}}],
    }
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "template": {"spec": template},
            "placements": [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": scale}],
        },
    }


def _is_rolled_out(found: Workload | None) -> bool:
    if found is None or found.status.observed_generation != found.metadata.generation:
        return False
    status, wanted = found.status, found.spec.placements[0].scale_settings.min_replicas
    return status.replicas == status.ready_replicas == status.updated_replicas == wanted
