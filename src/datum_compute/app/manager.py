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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, member_name, path_prefix, plane_role
from datum_compute.app.controllers import (
    ManagerOptions,
    ManagerTelemetry,
    build_event_recorder,
    build_manager,
    engage_configured_planes,
)
from datum_compute.app.driver_selection import machine_table_file, simulated_driver
from datum_compute.app.environment import ProcessEnvironment, process_environment
from datum_compute.app.gateway_server import GatewayDependencies, open_gateway
from datum_compute.app.heartbeat import Heartbeat, read_version
from datum_compute.app.listener import PortHandler, open_port, open_tls_port
from datum_compute.app.manager_connections import (
    Connections,
    QuotaTransport,
    leases_of,
    plane_connections,
    project_api,
    quota_connection,
)
from datum_compute.app.metrics import health_dispatch, metrics_dispatch, process_registry
from datum_compute.app.pod_client import ClientPods
from datum_compute.app.process import run_until_stopped
from datum_compute.app.settings.feature_gates import enabled_controllers
from datum_compute.app.settings.options import MILO
from datum_compute.app.settings.settings import ManagerSettings, manager_settings
from datum_compute.app.state_directory import StateError, ensure_private_directory
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
from datum_compute.planes.cell_members import CellMemberOptions
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.leader_election import (
    Election,
    FencedTransport,
    LeadershipLost,
    LeaseConfig,
    check_all,
    lead_all,
)
from datum_compute.runtime.manager import Manager
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from datum_compute.telemetry.context import Tracer
from datum_compute.telemetry.logs import configure_logging

# Together shorter than the 5 s that a stop may take.
FINISH_RECONCILES_S, END_TASKS_S = 2.0, 2.5

_log = logging.getLogger("datum_compute.manager")


@exit_on_broken_pipe
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
    """Connections of this process to its planes, opened until ``stack`` is closed."""

    settings: ManagerSettings
    planes: Connections
    stack: AsyncExitStack
    auth: AuthEnvironment
    environment: ProcessEnvironment

    async def client(
        self, plane: PlaneName, wrap: Callable[[Transport], Transport] | None = None
    ) -> Client:
        connection = self.connection(plane)
        transport = await self._open(connection, wrap)
        quota = quota_connection(self.settings.planes, plane)
        if quota is not None:
            quota_transport = await self._open(quota, wrap)
            transport = QuotaTransport(transport, connection, quota_transport, quota)
        return build_client(connection, transport)

    async def _open(
        self, connection: Connection, wrap: Callable[[Transport], Transport] | None
    ) -> Transport:
        opened = open_transport(connection, self.auth, wrap)
        return await self.stack.enter_async_context(opened)

    def connection(self, plane: PlaneName) -> Connection:
        """Return the connection to a plane.

        A project without a context is a path of the API server of the platform.
        """
        if plane in self.planes:
            return self.planes[plane]
        api = project_api(self.settings.planes, self.planes)
        if api is None:
            raise NotFound(f"{plane} is not one of the projects of this manager")
        return replace(api, path_prefix=path_prefix(plane), context=plane)

    @property
    def is_single_cluster(self) -> bool:
        return self.settings.planes.is_single_cluster

    @property
    def cells(self) -> list[PlaneName]:
        return [plane for plane in self.planes if plane_role(plane) == "cell"]


async def manage(
    settings: ManagerSettings, stop: asyncio.Event, tracer: Tracer | None = None
) -> None:
    async with AsyncExitStack() as stack:
        environment = process_environment()
        auth = AuthEnvironment(
            environ=settings.planes.environment,
            is_terminal=False,
            unix_s=environment.unix_s,
            random=environment.random,
        )
        connections = PlaneConnections(
            settings, plane_connections(settings), stack, auth, environment
        )
        await _open_webhook(connections)
        await _open_gateway(connections)
        elections = await _build_elections(connections)
        run = await _build_controller_run(connections, elections, tracer)
        _log.info("running on %s", _describe_planes(connections))
        running = lead_all(elections, run.run) if elections else run.run()
        await _run_until_stopped(asyncio.create_task(running), stop, run)


@dataclass(frozen=True, slots=True)
class ControllerRun:
    """The tasks that run while this process leads."""

    manager: Manager[Context]
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]]
    elections: Sequence[Election] = ()
    started: asyncio.Event = field(default_factory=asyncio.Event)
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.started.set()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._wait_for_sync())]
            tasks += [group.create_task(run()) for run in self.tasks]
            await self.manager.run()
            for task in tasks:
                task.cancel()

    async def _wait_for_sync(self) -> None:
        await self.manager.wait_for_sync()
        self.synced.set()

    def not_ready_reason(self) -> str:
        """Return why the process is not ready, or an empty string.

        A standby is ready after it has read the Lease that it waits for, and a leader after the
        first sync of all planes. Both stay ready when a plane becomes unreachable later, because
        the webhook must continue to answer.
        """
        if not self.started.is_set():
            awaited = next((e for e in self.elections if not e.fence.is_up), None)
            return awaited.not_ready_reason if awaited is not None else ""
        return "" if self.synced.is_set() else "the planes have not been read yet"


async def _run_until_stopped(
    running: asyncio.Task[None], stop: asyncio.Event, run: ControllerRun
) -> None:
    """Run until ``stop`` is set or the task ends.

    Running reconciles get ``FINISH_RECONCILES_S`` to finish. Then the task ends and releases its
    Leases; it is cancelled if that takes longer than ``END_TASKS_S``.
    """
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    finishing = asyncio.create_task(run.manager.stop())
    await asyncio.wait([finishing], timeout=FINISH_RECONCILES_S)
    if finishing.done() and run.started.is_set():
        await asyncio.wait([running], timeout=END_TASKS_S)
    finishing.cancel()
    running.cancel()
    await asyncio.wait([running], timeout=END_TASKS_S)
    if running.done() and not running.cancelled():
        running.result()


async def _build_controller_run(
    connections: PlaneConnections, elections: Sequence[Election], tracer: Tracer | None
) -> ControllerRun:
    """Build the controllers and what runs with them.

    Every write to a plane or a machine first checks that this process leads.
    """
    settings, environment = connections.settings, connections.environment
    check_leading = check_all(election.fence for election in elections)

    def fence(inner: Transport) -> Transport:
        return FencedTransport(inner, check_leading)

    clients = {plane: await connections.client(plane, fence) for plane in connections.planes}

    async def reach(plane: PlaneName) -> Client:
        if plane not in clients:
            clients[plane] = await connections.client(plane, fence)
        return clients[plane]

    metrics = process_registry()
    recorder = build_event_recorder(clients.get, environment, metrics)
    pods = _build_pod_drivers(connections, clients)
    drivers: Mapping[PlaneName, Driver] = pods or _build_simulated_drivers(connections)
    is_single_cluster = connections.is_single_cluster
    controllers = _select_controllers(settings)
    manager = build_manager(
        controllers,
        {plane: FencedDriver(driver, check_leading) for plane, driver in drivers.items()},
        environment,
        telemetry=ManagerTelemetry(recorder.record, tracer, metrics),
        options=ManagerOptions(
            single_project=settings.planes.single.project if is_single_cluster else "",
            reach=None if is_single_cluster else reach,
            fence=check_leading,
            cell_probing=settings.controllers.cell_probing,
            enforces_quota=settings.controllers.enforces_quota,
            cell_members=(
                _cell_members(connections, fence) if settings.controllers.propagator else None
            ),
        ),
    )
    engage_configured_planes(manager, clients, controllers)
    tasks = [recorder.run, *(driver.run for driver in pods.values())]
    tasks += [heartbeat.run for heartbeat in _build_heartbeats(connections, manager, clients)]
    run = ControllerRun(manager, tasks, elections)
    await _open_status_ports(connections, metrics, run)
    return run


def _cell_members(
    connections: PlaneConnections, fence: Callable[[Transport], Transport]
) -> CellMemberOptions:
    """Return how the propagator connects to cells that have joined the hub."""

    def open_cell(connection: Connection) -> AbstractAsyncContextManager[Transport]:
        return open_transport(connection, connections.auth, fence)

    return CellMemberOptions(open_cell, local_cells=connections.planes)


def _build_heartbeats(
    connections: PlaneConnections, manager: Manager[Context], clients: Mapping[PlaneName, Client]
) -> list[Heartbeat]:
    """Return the heartbeats of the cells of this manager."""
    settings = connections.settings
    if connections.is_single_cluster or not settings.controllers.cell:
        return []

    def count_instances(cell: PlaneName) -> dict[str, str]:
        cached = manager.cached_client(cell)
        return (
            {"instances": str(len(cached.read_unsynced(INSTANCE).refs()))}
            if cached is not None
            else {}
        )

    return [
        Heartbeat(
            clients[HUB],
            member_name(cell),
            settings.heartbeat,
            connections.environment.unix_s,
            partial(count_instances, cell),
            partial(read_version, clients[cell]),
        )
        for cell in connections.cells
    ]


# --- Ports


async def _open_status_ports(
    connections: PlaneConnections, metrics: CollectorRegistry, run: ControllerRun
) -> None:
    ports, unix_s = connections.settings.ports, connections.environment.unix_s
    for address, tls, name, dispatch in (
        (
            ports.metrics,
            ports.metrics_tls,
            "metrics",
            metrics_dispatch(metrics, ports.metrics_token),
        ),
        (ports.health, None, "health", health_dispatch(run.not_ready_reason)),
    ):
        if address is None:
            continue
        handler = PortHandler(name, dispatch, unix_s)
        if tls is None:
            opened = open_port(address, handler)
        else:
            opened = open_tls_port(tls, handler, connections.settings.state_dir)
        await connections.stack.enter_async_context(opened)


async def _open_webhook(connections: PlaneConnections) -> None:
    """Serve the webhook, also while another replica leads, so its clients have no fence."""
    settings = connections.settings
    if settings.ports.webhook is None:
        return
    planes = [p for p in connections.planes if plane_role(p) in ("platform", "project")]
    dispatcher = WebhookDispatcher(
        {plane: await connections.client(plane) for plane in planes},
        connections.environment.unix_s,
        settings.deprecation_grace_s,
    )
    opened = open_webhook_port(settings.ports.webhook, dispatcher, settings.state_dir)
    await connections.stack.enter_async_context(opened)


async def _open_gateway(connections: PlaneConnections) -> None:
    dependencies = GatewayDependencies(
        planes=connections.planes,
        connection_of=connections.connection,
        open_transport=partial(open_transport, environment=connections.auth),
        stack=connections.stack,
        environment=connections.environment,
    )
    await open_gateway(connections.settings, dependencies)


# --- Drivers


def _build_pod_drivers(
    connections: PlaneConnections, clients: Mapping[PlaneName, Client]
) -> dict[PlaneName, PodsDriver]:
    """Return the drivers of cells whose instances are pods of their own cluster."""
    if connections.settings.driver.name != "pods":
        return {}
    unix_s, elapsed_s = connections.environment.unix_s, connections.environment.elapsed_s
    return {
        cell: PodsDriver(ClientPods(clients[cell]), unix_s=unix_s, elapsed_s=elapsed_s)
        for cell in connections.cells
    }


def _build_simulated_drivers(connections: PlaneConnections) -> dict[PlaneName, Driver]:
    settings, unix_s = connections.settings, connections.environment.unix_s
    state = ensure_private_directory(settings.state_dir)
    return {
        cell: simulated_driver(
            machine_table_file(state, cell), unix_s, boot_s=settings.driver.boot_s
        )
        for cell in connections.cells
    }


# --- Selection of controllers and Leases


def _describe_planes(connections: PlaneConnections) -> str:
    names = ", ".join(sorted(connections.planes))
    if not connections.is_single_cluster:
        return names
    api = next(iter(connections.planes.values()))
    return f"{api.server}{api.path_prefix} in single-cluster mode, as {names}"


def _select_controllers(settings: ManagerSettings) -> tuple[Controller[Context], ...]:
    groups = settings.controllers
    if settings.planes.is_single_cluster:
        controllers = registry.single_cluster(settings.planes.single.project)
        return enabled_controllers(controllers, groups.gates)
    controllers = (
        *(registry.MANAGEMENT if groups.management else ()),
        *(registry.HUB if groups.propagator else ()),
        *(registry.CELL if groups.cell else ()),
    )
    return (*enabled_controllers(controllers, groups.gates), *_membership_controllers(settings))


def _membership_controllers(settings: ManagerSettings) -> tuple[Controller[Context], ...]:
    """Return the controllers that select projects and their cities.

    Only Milo creates and deletes projects at run time. Elsewhere this manager publishes the cities
    of projects.
    """
    groups = settings.controllers
    if not (groups.management or groups.cell):
        return ()
    if settings.planes.discovery.mode != MILO:
        return registry.LOCATION_BINDINGS if groups.management else ()
    if groups.management:
        return registry.PROJECT_MEMBERSHIP
    return registry.HUB_NAMESPACE_MEMBERSHIP


async def _build_elections(connections: PlaneConnections) -> list[Election]:
    """Return an election for each Lease."""
    leader, environment = connections.settings.leader, connections.environment
    if not leader.enabled:
        return []
    identity = f"{socket.gethostname()}_{environment.new_uid()}"
    return [
        Election(
            await connections.client(plane),
            LeaseConfig(Ref(leader.namespace, name), identity),
            clock=environment.elapsed_s,
            unix_s=environment.unix_s,
            random=environment.random,
        )
        for plane, name in leases_of(connections.settings, connections.planes)
    ]


if __name__ == "__main__":
    sys.exit(main())
