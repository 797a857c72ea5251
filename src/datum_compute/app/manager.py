"""``compute-manager``: the controllers without the planes, against any Kubernetes-like APIs.

Which planes there are and how they are reached is for ``reached_planes.py`` to say. Each group of
controllers runs only if its flag is given; the planes it needs must be there. Both groups against
one API server, without a hub, are the single-cluster mode.

Several managers may run: each group of controllers has a Lease on its plane (management and
propagator on the hub, cell on each cell), and only who holds all that it needs works. A manager
that loses one ends with exit code 1; what supervises it starts it again, and it waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from datum_compute.api.meta import Ref
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.app.files import StateError, private_directory
from datum_compute.app.loop import run_until_stopped
from datum_compute.app.machines import simulated_driver
from datum_compute.app.metrics import health_pages, metrics_pages, pages_port, process_registry
from datum_compute.app.ports import Ports, real_ports
from datum_compute.app.reached_planes import (
    Connections,
    is_single_cluster,
    leases_of,
    reached_planes,
)
from datum_compute.app.settings import ManagerSettings, manager_settings
from datum_compute.app.tracing import tracing
from datum_compute.app.webhook import WebhookDispatcher
from datum_compute.app.webhook_port import webhook_port
from datum_compute.app.wiring import build_manager, build_recorder
from datum_compute.client.client import Client
from datum_compute.client.connecting import open_transport
from datum_compute.client.credentials import Outside
from datum_compute.client.kubeconfig import KubeconfigError, build_client
from datum_compute.client.transport import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.fenced import FencedDriver
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.events import EventRecorder
from datum_compute.runtime.leader import (
    Election,
    FencedTransport,
    LeadershipLost,
    Terms,
    check_all,
    lead_all,
)
from datum_compute.runtime.manager import Manager
from datum_compute.telemetry.logs import configure_logging
from datum_compute.telemetry.traces import Tracer

# Together less than the five seconds that a stop may take.
FINISH_S, STOP_S = 2.0, 2.5

_log = logging.getLogger("datum_compute.manager")


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
class _World:
    """How this process reaches the planes it works on."""

    settings: ManagerSettings
    single: bool
    planes: Connections
    connections: AsyncExitStack
    outside: Outside
    ports: Ports

    async def client(
        self, plane: PlaneName, around: Callable[[Transport], Transport] | None = None
    ) -> Client:
        connection = self.planes[plane]
        opened = open_transport(connection, self.outside, around)
        return build_client(connection, await self.connections.enter_async_context(opened))


async def manage(
    settings: ManagerSettings, stop: asyncio.Event, tracer: Tracer | None = None
) -> None:
    async with AsyncExitStack() as connections:
        ports = real_ports()
        outside = Outside(
            environ=settings.environment,
            is_terminal=False,
            unix_s=ports.unix_s,
            random=ports.random,
        )
        single = is_single_cluster(settings)
        planes = reached_planes(settings, single=single)
        world = _World(settings, single, planes, connections, outside, ports)
        await _open_webhook(world)
        elections = await _elections(world)
        work = await _build_work(world, check_all(e.fence for e in elections), tracer)
        _log.info("running on %s", _told(world))
        whole = lead_all(elections, work.run) if elections else work.run()
        await _until(asyncio.create_task(whole), stop, work)


@dataclass(frozen=True, slots=True)
class _Work:
    """What to do while leading."""

    manager: Manager[Context]
    recorder: EventRecorder
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.begun.set()
        async with asyncio.TaskGroup() as group:
            besides = [group.create_task(self.recorder.run()), group.create_task(self._sync())]
            await self.manager.run()
            for task in besides:
                task.cancel()

    async def _sync(self) -> None:
        await self.manager.synced()
        self.synced.set()

    def what_is_missing(self) -> str:
        """One that stands by is as ready as it can be; one that leads has seen every plane."""
        if self.begun.is_set() and not self.synced.is_set():
            return "the planes have not been read yet"
        return ""


async def _until(running: asyncio.Task[None], stop: asyncio.Event, work: _Work) -> None:
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


async def _build_work(world: _World, check: Callable[[], None], tracer: Tracer | None) -> _Work:
    """Every write, to a plane or a machine, is checked first."""
    settings, ports = world.settings, world.ports
    numbers = process_registry()
    clients = {
        plane: await world.client(plane, lambda inner: FencedTransport(inner, check))
        for plane in world.planes
    }
    recorder = build_recorder(clients.get, ports, numbers)
    manager = build_manager(
        _controllers(settings, single=world.single),
        _drivers(world, check),
        ports,
        single_project=settings.single.project if world.single else "",
        tell=recorder.tell,
        tracer=tracer,
        registry=numbers,
        fence=check,
    )
    for plane, client in clients.items():
        manager.engage(plane, client)
    work = _Work(manager, recorder)
    await _open_ports(world, numbers, work)
    return work


async def _open_ports(world: _World, numbers: CollectorRegistry, work: _Work) -> None:
    settings = world.settings
    for what, path, address, pages in (
        ("metrics", "/metrics", settings.metrics_address, metrics_pages(numbers)),
        ("health", "/readyz", settings.health_address, health_pages(work.what_is_missing)),
    ):
        port = await world.connections.enter_async_context(pages_port(address, pages))
        if address is not None:
            _log.info("%s on http://%s:%d%s", what, address[0], port, path)


async def _open_webhook(world: _World) -> None:
    """With clients of its own: who answers questions need not lead."""
    settings = world.settings
    if settings.webhook is None:
        return
    asked = [plane for plane in world.planes if plane_role(plane) in ("platform", "project")]
    dispatcher = WebhookDispatcher(
        {plane: await world.client(plane) for plane in asked},
        world.ports.unix_s,
        settings.deprecation_grace_s,
    )
    opened = webhook_port(settings.webhook, dispatcher, settings.state_dir)
    port = await world.connections.enter_async_context(opened)
    _log.info("webhook on https://%s:%d", settings.webhook.address[0], port)


def _drivers(world: _World, check: Callable[[], None]) -> dict[PlaneName, Driver]:
    state, ports = private_directory(world.settings.state_dir), world.ports
    found: dict[PlaneName, Driver] = {}
    for plane in world.planes:
        if plane_role(plane) == "cell":
            table = state / f"machines-{plane.replace('/', '-')}.json"
            found[plane] = FencedDriver(
                simulated_driver(table, ports.unix_s, boot_s=world.settings.boot_s), check
            )
    return found


def _told(world: _World) -> str:
    names = ", ".join(sorted(world.planes))
    if not world.single:
        return names
    one = next(iter(world.planes.values()))
    return f"{one.server}{one.path_prefix} alone (single-cluster mode, as {names})"


def _controllers(settings: ManagerSettings, *, single: bool) -> tuple[Controller[Context], ...]:
    if single:
        return registry.single_cluster(settings.single.project)
    return (
        *(registry.MANAGEMENT if settings.management else ()),
        *(registry.HUB if settings.propagator else ()),
        *(registry.CELL if settings.cell else ()),
    )


async def _elections(world: _World) -> list[Election]:
    """One for each lease."""
    if not world.settings.leader.enabled:
        return []
    identity = f"{socket.gethostname()}_{world.ports.new_uid()}"
    return [
        Election(
            await world.client(plane),
            Terms(Ref(world.settings.leader.namespace, name), identity),
            clock=world.ports.elapsed_s,
            unix_s=world.ports.unix_s,
            random=world.ports.random,
        )
        for plane, name in leases_of(world.settings, world.planes, single=world.single)
    ]
