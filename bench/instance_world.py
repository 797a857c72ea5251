"""A cell with its project in this process, durable, with the controllers that make instances.

The deployments are written to the cell itself, with their network attached, as the hub would have
it; claims lie in the project beside it. Quota and network gates are part of the way, hub copies
are not. Every write of the controllers can be recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.exchange import Request, Response
from datum_compute.api.identity import encoded_cluster
from datum_compute.api.instance import InstanceTemplate
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PLATFORM, cell_plane, path_prefix, project_plane
from datum_compute.api.quotametrics import METRICS
from datum_compute.api.workload import ScaleSettings
from datum_compute.api.workloaddeployment import (
    AttachedPrefix,
    NetworkAttachment,
    WorkloadDeployment,
    WorkloadDeploymentSpec,
    WorkloadRef,
)
from datum_compute.app.credentials import Credentials
from datum_compute.app.local_server import settle_memory
from datum_compute.app.ports import real_ports
from datum_compute.app.wiring import Layout, Platform
from datum_compute.client.client import Client
from datum_compute.client.inprocess import InProcessTransport
from datum_compute.controllers import registry
from datum_compute.controllers.management import quota, registration
from datum_compute.drivers.machinetable import MachineTable
from datum_compute.drivers.simulated import SimulatedDriver
from datum_compute.store.sqlite import SqliteJournal

PROJECT, CELL = project_plane("default"), cell_plane("dfw")
SPACE = "bench"
PLENTY = 10**9

CONTROLLERS = (
    *registry.CELL,
    *quota.CONTROLLERS,
    registration.CONTROLLER,
    *registry.NEIGHBOURS,
)
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A write that was made: what was sent, and the object as it was answered."""

    request: Request
    answer: Response


class RecordingTransport:
    """Hands requests on, and keeps the writes among them that succeeded."""

    def __init__(self, inner: InProcessTransport, kept: list[Recorded]) -> None:
        self._inner = inner
        self._kept = kept

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        if request.method in _WRITES and response.status < 300:
            self._kept.append(Recorded(request, response))
        return response


@dataclass(frozen=True, slots=True)
class World:
    platform: Platform
    cell: Client  # as somebody who may do everything there
    written: list[Recorded]

    async def deploy(self, names: Iterable[str], replicas: int) -> None:
        for name in names:
            await self.cell.create(DEPLOYMENT, deployment(name, replicas))

    async def roll(self, name: str) -> None:
        template = template_of("web:2")
        await self.cell.patch(DEPLOYMENT, Ref(SPACE, name), {"spec": {"template": template}})

    async def ready(self, names: Iterable[str]) -> None:
        """Every deployment says of its newest generation that all of it is ready."""
        for name in names:
            await self.cell.wait(DEPLOYMENT, Ref(SPACE, name), _is_rolled_out, timeout_s=600)

    def versions(self) -> int:
        """How many writes all planes have seen."""
        return sum(self.platform.store.version(p) for p in self.platform.store.planes())

    async def quiet(self, seconds: float = 0.5) -> None:
        """Nothing has been written for so long."""
        before = -1
        while before != (before := self.versions()):
            await asyncio.sleep(seconds)


@asynccontextmanager
async def new_world(state: Path) -> AsyncIterator[World]:
    tokens = {plane: f"token-{plane}" for plane in (PLATFORM, HUB, PROJECT, CELL)}
    ports, journal = real_ports(), SqliteJournal(state / "bench.db")
    driver = SimulatedDriver(MachineTable(), now=ports.unix_s)
    limits = {metric.resource_type: PLENTY for metric in METRICS}
    written: list[Recorded] = []
    registry_ = CollectorRegistry()
    platform = Platform(
        Layout((PROJECT,), {CELL: driver}, limits=limits),
        ports,
        journal,
        Credentials("manager", tokens),
        controllers=CONTROLLERS,
        registry=registry_,
        reach=lambda _plane: transport,
    )
    transport = RecordingTransport(InProcessTransport(platform.dispatch), written)
    await platform.load()
    running = asyncio.create_task(platform.run())
    try:
        await platform.ready.wait()
        prefix = path_prefix(CELL)
        user = Client(transport, prefix=prefix, token=tokens[CELL], agent="bench")
        world = World(platform, user, written)
        platform.registry = registry_
        await world.cell.create(NAMESPACE, space())
        await world.quiet()
        settle_memory()
        yield world
    finally:
        running.cancel()
        await asyncio.wait([running])
        await journal.close()


def space() -> Namespace:
    identity = {
        labels.UPSTREAM_CLUSTER: encoded_cluster("default"),
        labels.UPSTREAM_NAMESPACE: "default",
    }
    return Namespace(metadata=ObjectMeta(name=SPACE, labels=identity))


def template_of(image: str) -> JsonObject:
    container = {"name": "app", "image": image}
    return {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}


def deployment(name: str, replicas: int) -> WorkloadDeployment:
    from datum_compute.api.codec import typed

    return WorkloadDeployment(
        metadata=ObjectMeta(name=name, namespace=SPACE),
        spec=WorkloadDeploymentSpec(
            workload_ref=WorkloadRef(name=name, uid=f"uid-of-{name}"),
            placement_name="default",
            city_code="DFW",
            template=typed(template_of("web:1"), InstanceTemplate),
            scale_settings=ScaleSettings(
                min_replicas=replicas,
                instance_management_policy="Parallel",
                max_unavailable="25%",
            ),
            network_attachment=NetworkAttachment(
                network="default",
                namespace="default",
                prefixes=[AttachedPrefix(family="IPv4", prefix="10.0.0.0/12", gateway="10.0.0.1")],
                mtu=1400,
            ),
        ),
    )


def _is_rolled_out(found: WorkloadDeployment | None) -> bool:
    if found is None or found.status.observed_generation != found.metadata.generation:
        return False
    status, wanted = found.status, found.spec.scale_settings.min_replicas
    return status.replicas == status.ready_replicas == status.updated_replicas == wanted
