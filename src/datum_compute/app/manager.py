"""``compute-manager``: the controllers without the planes, against any Kubernetes-like APIs.

A group of controllers runs only if its flag is given, and needs a connection to its planes
(``manager_connections.py``). In single-cluster mode both groups run against one API server.

Several managers may run. Each group of controllers has a Lease on its plane: management and
propagator on the hub, cell on each cell. Only a manager that holds all its Leases runs controllers.
A manager that loses one ends with exit code 1; its supervisor restarts it, and it waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from prometheus_client import CollectorRegistry

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, member_name, path_prefix, plane_role
from datum_compute.app.cluster_members import Members, unoffered
from datum_compute.app.driver_selection import simulated_driver
from datum_compute.app.environment import Ports, real_ports
from datum_compute.app.gateway_server import GatewayDependencies, open_gateway
from datum_compute.app.heartbeat import Heartbeat, version_of
from datum_compute.app.listener import PortHandler, open_port
from datum_compute.app.manager_connections import (
    Connections,
    leases_of,
    plane_connections,
    project_api,
)
from datum_compute.app.metrics import health_dispatch, metrics_dispatch, process_registry
from datum_compute.app.platform import build_manager, build_recorder
from datum_compute.app.pod_client import ClientPods
from datum_compute.app.process import run_until_stopped
from datum_compute.app.settings.feature_gates import enabled_controllers
from datum_compute.app.settings.options import MILO
from datum_compute.app.settings.settings import ManagerSettings, manager_settings
from datum_compute.app.state_directory import StateError, private_directory
from datum_compute.app.tracing import tracing
from datum_compute.app.webhook import WebhookDispatcher, open_webhook_port
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.kubeconfig import KubeconfigError, build_client
from datum_compute.client.client import Client
from datum_compute.client.connect import open_transport
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.drivers.driver import Driver, FencedDriver
from datum_compute.drivers.pods.driver import PodsDriver
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.event_recorder import EventRecorder
from datum_compute.runtime.leader_election import (
    Election,
    FencedTransport,
    LeadershipLost,
    LeaseConfig,
    check_all,
    lead_all,
)
from datum_compute.runtime.manager import Manager
from datum_compute.telemetry.broken_pipe import quiet_when_unread
from datum_compute.telemetry.context import Tracer
from datum_compute.telemetry.logs import configure_logging

# Together less than the five seconds that a stop may take.
FINISH_S, STOP_S = 2.0, 2.5

_log = logging.getLogger("datum_compute.manager")


@quiet_when_unread
def main(arguments: Sequence[str] | None = None) -> int:
    settings = manager_settings(sys.argv[1:] if arguments is None else arguments)
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    try:
        with tracing(settings.telemetry.otlp_endpoint, "compute-manager") as tracer:
            return run_until_stopped(lambda stop: manage(settings, stop, tracer))
    except (KubeconfigError, StateError, OSError, LeadershipLost) as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return 1


@dataclass(frozen=True, slots=True)
class PlaneConnections:
    """How this process reaches the planes it works on."""

    settings: ManagerSettings
    planes: Connections
    connections: AsyncExitStack
    outside: AuthEnvironment
    ports: Ports

    async def client(
        self, plane: PlaneName, around: Callable[[Transport], Transport] | None = None
    ) -> Client:
        connection = self.connection(plane)
        opened = open_transport(connection, self.outside, around)
        return build_client(connection, await self.connections.enter_async_context(opened))

    def connection(self, plane: PlaneName) -> Connection:
        """As it was told; for a project that came later as the platform, under its own path."""
        if plane in self.planes:
            return self.planes[plane]
        api = project_api(self.settings.planes, self.planes)
        if api is None:
            raise NotFound(f"{plane} is not one of the projects of this manager")
        return replace(api, path_prefix=path_prefix(plane), context=plane)


async def manage(
    settings: ManagerSettings, stop: asyncio.Event, tracer: Tracer | None = None
) -> None:
    async with AsyncExitStack() as connections:
        ports = real_ports()
        outside = AuthEnvironment(
            environ=settings.planes.environment,
            is_terminal=False,
            unix_s=ports.unix_s,
            random=ports.random,
        )
        planes = plane_connections(settings)
        world = PlaneConnections(settings, planes, connections, outside, ports)
        await _open_webhook(world)
        await _open_gateway(world)
        elections = await _elections(world)
        work = await _build_work(world, elections, tracer)
        _log.info("running on %s", _told(world))
        whole = lead_all(elections, work.run) if elections else work.run()
        await _until(asyncio.create_task(whole), stop, work)


@dataclass(frozen=True, slots=True)
class ControllerRun:
    """What to do while leading."""

    manager: Manager[Context]
    recorder: EventRecorder
    members: Members | None = None
    pods: Sequence[PodsDriver] = ()
    heartbeats: Sequence[Heartbeat] = ()
    elections: Sequence[Election] = ()
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.begun.set()
        async with asyncio.TaskGroup() as group:
            besides = [group.create_task(self.recorder.run()), group.create_task(self._sync())]
            if self.members is not None:
                besides.append(group.create_task(self.members.run()))
            besides += [group.create_task(driver.run()) for driver in self.pods]
            besides += [group.create_task(heartbeat.run()) for heartbeat in self.heartbeats]
            await self.manager.run()
            for task in besides:
                task.cancel()

    async def _sync(self) -> None:
        await self.manager.wait_for_sync()
        self.synced.set()

    def not_ready_reason(self) -> str:
        """One that stands by knows the lease that it waits for; one that leads has seen every
        plane. Once known is enough: the webhook answers while the plane of the lease is away."""
        if not self.begun.is_set():
            awaited = next((e for e in self.elections if not e.fence.is_up), None)
            return awaited.not_ready_reason if awaited is not None else ""
        if self.begun.is_set() and not self.synced.is_set():
            return "the planes have not been read yet"
        return ""


async def _until(running: asyncio.Task[None], stop: asyncio.Event, work: ControllerRun) -> None:
    """Until told to stop, or until the work fails.

    Reconciles that run may come to their end for a while, then they are given up. Work that ends
    gives the leases back; it is cut short only if that takes too long.
    """
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    finishing = asyncio.create_task(work.manager.stop())
    await asyncio.wait([finishing], timeout=FINISH_S)
    if finishing.done() and work.begun.is_set():
        await asyncio.wait([running], timeout=STOP_S)
    finishing.cancel()
    running.cancel()
    await asyncio.wait([running], timeout=STOP_S)
    if running.done() and not running.cancelled():
        running.result()


async def _build_work(
    world: PlaneConnections, elections: Sequence[Election], tracer: Tracer | None
) -> ControllerRun:
    """Every write, to a plane or a machine, is checked first."""
    settings, ports = world.settings, world.ports
    check = check_all(election.fence for election in elections)
    numbers = process_registry()
    clients = {
        plane: await world.client(plane, lambda inner: FencedTransport(inner, check))
        for plane in world.planes
    }

    async def reach(plane: PlaneName) -> Client:
        if plane not in clients:
            clients[plane] = await world.client(plane, lambda inner: FencedTransport(inner, check))
        return clients[plane]

    recorder = build_recorder(clients.get, ports, numbers)
    pods = _pods(world, clients)
    manager = build_manager(
        _controllers(settings, single=world.settings.planes.is_single_cluster),
        {p: FencedDriver(d, check) for p, d in (pods or _simulated(world)).items()},
        ports,
        single_project=settings.planes.single.project
        if world.settings.planes.is_single_cluster
        else "",
        record_event=recorder.record,
        tracer=tracer,
        registry=numbers,
        fence=check,
        reach=None if world.settings.planes.is_single_cluster else reach,
        cell_probing=settings.controllers.cell_probing,
    )
    for plane, client in clients.items():
        manager.engage(plane, client)
    members = _members(world, manager, clients, check)
    heartbeats = _heartbeats(world, manager, clients)
    work = ControllerRun(manager, recorder, members, tuple(pods.values()), heartbeats, elections)
    await _open_ports(world, numbers, work)
    return work


def _members(
    world: PlaneConnections,
    manager: Manager[Context],
    clients: Mapping[PlaneName, Client],
    check: Callable[[], None],
) -> Members | None:
    """The propagator also works with cells that have joined; the hub says how they are reached."""
    if not world.settings.controllers.propagator:
        return None

    def opened(connection: Connection) -> AbstractAsyncContextManager[Transport]:
        return open_transport(connection, world.outside, lambda t: FencedTransport(t, check))

    return Members(clients[HUB], manager, unoffered, opened, world.ports.random, world.planes)


def _heartbeats(
    world: PlaneConnections, manager: Manager[Context], clients: Mapping[PlaneName, Client]
) -> list[Heartbeat]:
    """Of the cells that this manager works on, to their hub."""
    if world.settings.planes.is_single_cluster or not world.settings.controllers.cell:
        return []

    def instances(cell: PlaneName) -> dict[str, str]:
        view = manager.cached_client(cell)
        return {"instances": str(len(view.cached(INSTANCE).refs()))} if view is not None else {}

    return [
        Heartbeat(
            clients[HUB],
            member_name(cell),
            world.settings.heartbeat.every_s,
            world.ports.unix_s,
            world.settings.heartbeat.capacity,
            partial(instances, cell),
            partial(version_of, client),
        )
        for cell, client in clients.items()
        if plane_role(cell) == "cell"
    ]


async def _open_ports(
    world: PlaneConnections, numbers: CollectorRegistry, work: ControllerRun
) -> None:
    ports, unix_s = world.settings.ports, world.ports.unix_s
    for address, name, dispatch in (
        (ports.metrics, "metrics", metrics_dispatch(numbers, ports.metrics_token)),
        (ports.health, "health", health_dispatch(work.not_ready_reason)),
    ):
        if address is not None:
            handler = PortHandler(name, dispatch, unix_s)
            await world.connections.enter_async_context(open_port(address, handler))


async def _open_webhook(world: PlaneConnections) -> None:
    """With clients of its own: who answers questions need not lead."""
    settings = world.settings
    if settings.ports.webhook is None:
        return
    asked = [plane for plane in world.planes if plane_role(plane) in ("platform", "project")]
    dispatcher = WebhookDispatcher(
        {plane: await world.client(plane) for plane in asked},
        world.ports.unix_s,
        settings.deprecation_grace_s,
    )
    opened = open_webhook_port(settings.ports.webhook, dispatcher, settings.state_dir)
    await world.connections.enter_async_context(opened)


async def _open_gateway(world: PlaneConnections) -> None:
    surroundings = GatewayDependencies(
        planes=world.planes,
        connection_of=world.connection,
        open_transport=partial(open_transport, outside=world.outside),
        stack=world.connections,
        ports=world.ports,
        single=world.settings.planes.is_single_cluster,
    )
    await open_gateway(world.settings, surroundings)


def _pods(
    world: PlaneConnections, clients: Mapping[PlaneName, Client]
) -> dict[PlaneName, PodsDriver]:
    """Of cells whose instances are pods of their own cluster."""
    if world.settings.driver.name != "pods":
        return {}
    return {
        plane: PodsDriver(
            ClientPods(client), unix_s=world.ports.unix_s, elapsed_s=world.ports.elapsed_s
        )
        for plane, client in clients.items()
        if plane_role(plane) == "cell"
    }


def _simulated(world: PlaneConnections) -> dict[PlaneName, Driver]:
    state, settings = private_directory(world.settings.state_dir), world.settings
    tables = {
        plane: state / f"machines-{plane.replace('/', '-')}.json"
        for plane in world.planes
        if plane_role(plane) == "cell"
    }
    return {
        plane: simulated_driver(table, world.ports.unix_s, boot_s=settings.driver.boot_s)
        for plane, table in tables.items()
    }


def _told(world: PlaneConnections) -> str:
    names = ", ".join(sorted(world.planes))
    if not world.settings.planes.is_single_cluster:
        return names
    one = next(iter(world.planes.values()))
    return f"{one.server}{one.path_prefix} alone (single-cluster mode, as {names})"


def _controllers(settings: ManagerSettings, *, single: bool) -> tuple[Controller[Context], ...]:
    if single:
        return enabled_controllers(
            registry.single_cluster(settings.planes.single.project), settings.controllers.gates
        )
    chosen = (
        *(registry.MANAGEMENT if settings.controllers.management else ()),
        *(registry.HUB if settings.controllers.propagator else ()),
        *(registry.CELL if settings.controllers.cell else ()),
    )
    return (*enabled_controllers(chosen, settings.controllers.gates), *_following(settings))


def _following(settings: ManagerSettings) -> tuple[Controller[Context], ...]:
    """Projects come and go only where Milo keeps them; else nobody but us tells of their cities."""
    if not (settings.controllers.management or settings.controllers.cell):
        return ()
    if settings.planes.discovery.mode != MILO:
        return registry.LOCATION_BINDINGS if settings.controllers.management else ()
    return (
        registry.PROJECT_MEMBERSHIP
        if settings.controllers.management
        else registry.HUB_NAMESPACE_MEMBERSHIP
    )


async def _elections(world: PlaneConnections) -> list[Election]:
    """One for each lease."""
    if not world.settings.leader.enabled:
        return []
    identity = f"{socket.gethostname()}_{world.ports.new_uid()}"
    return [
        Election(
            await world.client(plane),
            LeaseConfig(Ref(world.settings.leader.namespace, name), identity),
            clock=world.ports.elapsed_s,
            unix_s=world.ports.unix_s,
            random=world.ports.random,
        )
        for plane, name in leases_of(world.settings, world.planes)
    ]
