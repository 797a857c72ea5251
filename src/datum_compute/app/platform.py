"""The platform, constructed top to bottom: store, server, clients, controllers, planes.

A production process and the simulator build the same thing; they differ only in the ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from datum_compute import __version__
from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.api.errors import ApiError
from datum_compute.api.http import Request, Response
from datum_compute.api.inventory import Holdings
from datum_compute.api.kinds import CONSUMER, PROJECT
from datum_compute.api.labels import FEDERATION_FINALIZERS
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    member_name,
    path_prefix,
    plane_role,
)
from datum_compute.api.quota import DEFAULT_LIMITS, SERVICE
from datum_compute.api.services import can_use_service
from datum_compute.app.default_projects import DefaultProjects
from datum_compute.app.environment import Ports
from datum_compute.app.project_planes import ProjectPlanes, holds_of
from datum_compute.app.project_planes import untold as untold_projects
from datum_compute.app.state_credentials import Credentials
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.controllers import registry
from datum_compute.controllers.context import CellProbing, Context, ignore_mapping
from datum_compute.controllers.events import ambiguous_mapping_event
from datum_compute.controllers.federation.instances import quarantine_gauge
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.bootstrap import ensure_cells, ensure_plane, expire_join_tokens
from datum_compute.planes.catalogue import ensure_platform
from datum_compute.planes.lifecycle import PlaneLifecycle, finalized_kinds_on
from datum_compute.planes.membership import ProjectMembership, Reach
from datum_compute.planes.planes import Planes, discard_event
from datum_compute.runtime.cached_client import LabelScope, noop
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.event_recorder import EventRecorder, EventRequest
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import RuntimeMetrics
from datum_compute.runtime.worker import instrument
from datum_compute.server.access.audit import AuditSink, discard
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, User
from datum_compute.server.access.client_certificates import Certify
from datum_compute.server.access.service_accounts import TokenSigner
from datum_compute.server.api_server import ApiServer
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.metrics import ServerMetrics
from datum_compute.server.options import (
    AdmissionOptions,
    AuthenticationOptions,
    ServerEnvironment,
    ServerTelemetry,
)
from datum_compute.server.verbs.event_ttl import expire_events
from datum_compute.store.journal import Journal
from datum_compute.store.store import Store
from datum_compute.telemetry.context import Tracer

SWEEP_S = 60.0
COMPONENT = "compute-manager"  # what events say they are from
MANAGER_AGENT = f"{COMPONENT}/{__version__}"
# Brings up planes from inside the process; no token or certificate gives this identity.
BOOTSTRAP = User("system:bootstrap", (MASTERS,), frozenset({EVERY_PLANE}))

_log = logging.getLogger(__name__)

EVERYTHING = (
    *registry.MANAGEMENT,
    *registry.HUB,
    *registry.CELL,
    *registry.CLUSTER,
    *registry.PROJECT_MEMBERSHIP,
)
_HELD_BACK = finalized_kinds_on("project", EVERYTHING)


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """Which planes the process serves, and what realises the servers of each of its cells.

    ``projects`` are there from the first moment; others come and go as objects of the platform. A
    process without the centre serves cells only. ``elsewhere`` are planes of other processes that
    controllers of this one work on. ``limits`` are what every project gets, by resource type.
    """

    projects: tuple[PlaneName, ...]
    drivers: Mapping[PlaneName, Driver]
    centre: bool = True
    elsewhere: tuple[PlaneName, ...] = ()
    limits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)

    @property
    def cells(self) -> tuple[PlaneName, ...]:
        return tuple(self.drivers)

    @property
    def planes(self) -> tuple[PlaneName, ...]:
        return (PLATFORM, *self.projects, HUB, *self.cells) if self.centre else self.cells

    @property
    def lasting(self) -> tuple[PlaneName, ...]:
        """Those that are there as long as the process."""
        return tuple(plane for plane in self.planes if plane not in self.projects)

    @property
    def members(self) -> tuple[PlaneName, ...]:
        """The cells that the hub of this process works with, wherever they are."""
        away = (plane for plane in self.elsewhere if plane_role(plane) == "cell")
        return (*self.cells, *away) if self.centre else ()


def _nothing_held(plane: PlaneName) -> Holdings:
    raise AssertionError(f"{plane} is served elsewhere; what it holds is not known here")


def build_manager(
    controllers: Sequence[Controller[Context]],
    drivers: Mapping[PlaneName, Driver],
    ports: Ports,
    *,
    holdings: Callable[[PlaneName], Holdings] = _nothing_held,
    authority: str = "",
    record_event: Callable[[EventRequest], None] = discard_event,
    tracer: Tracer | None = None,
    registry: CollectorRegistry | None = None,
    fence: Callable[[], None] = noop,
    single_project: str = "",
    reach: Reach | None = None,
    plane_lifecycle: PlaneLifecycle | None = None,
    traffic: Traffic | None = None,
    cell_probing: CellProbing | None = None,
) -> Manager[Context]:
    """``single_project`` is the only one there is, where one API server is everything; elsewhere
    ``reach`` gives the clients for projects that come later."""

    def context(manager: Manager[Context]) -> Context:
        unmanaged_finalizers = FEDERATION_FINALIZERS if single_project else frozenset[str]()
        planes = Planes(manager.cached_client, manager.engaged, record_event, unmanaged_finalizers)
        count_mapping = metrics.count_mapping if metrics is not None else ignore_mapping
        return Context(
            planes,
            drivers,
            ports.unix_s,
            ports.elapsed_s,
            holdings,
            authority,
            single_project,
            membership=ProjectMembership(manager, reach) if reach is not None else None,
            plane_lifecycle=plane_lifecycle,
            count_mapping=count_mapping,
            traffic=traffic,
            cell_probing=cell_probing or CellProbing(),
        )

    metrics = RuntimeMetrics(registry) if registry is not None else None
    manager = Manager(
        [instrument(controller, tracer) for controller in controllers],
        context,
        ports.random,
        metrics=metrics,
        report=lambda misled: record_event(ambiguous_mapping_event(misled)),
        fence=fence,
    )
    if metrics is not None:
        metrics.register_gauges((quarantine_gauge(manager.cached_client),))
    return manager


def build_recorder(
    client_of: Callable[[PlaneName], Client | None], ports: Ports, registry: CollectorRegistry
) -> EventRecorder:
    return EventRecorder(
        client_of,
        component=COMPONENT,
        unix_s=ports.unix_s,
        elapsed_s=ports.elapsed_s,
        registry=registry,
    )


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """What the server needs besides tokens: ``authority`` is what clients trust, ``signer`` signs
    the tokens of accounts, ``certify`` the certificates of cells that join."""

    authority: str = ""
    signer: TokenSigner | None = None
    audit: AuditSink = discard
    certify: Certify | None = None


_UNGUARDED = SecurityOptions()


class Platform:
    """All planes of one process, and its controllers.

    ``reach`` says how controllers get to a plane; without it all planes are in this process.
    """

    def __init__(
        self,
        layout: PlaneLayout,
        ports: Ports,
        journal: Journal,
        credentials: Credentials,
        *,
        controllers: Sequence[Controller[Context]] = EVERYTHING,
        safeguards: SecurityOptions = _UNGUARDED,
        registry: CollectorRegistry | None = None,
        tracer: Tracer | None = None,
        reach: Callable[[PlaneName], Client] | None = None,
        deprecation_grace_s: float = DEPRECATION_GRACE_S,
        projects_changed: Callable[[], None] = untold_projects,
        traffic: Traffic | None = None,
        cell_probing: CellProbing | None = None,
        flow_limits: FlowLimits | None = None,
    ) -> None:
        assert reach is not None or not layout.elsewhere, "nothing leads to the other planes"
        self._reach, self.ready = reach, asyncio.Event()
        self._layout, self._credentials = layout, credentials
        self._offered: dict[PlaneName, None] = {}
        self.registry = registry = registry or CollectorRegistry()
        metrics = ServerMetrics(registry)
        self.store = Store(journal, on_commit=metrics.observe_commit)
        self.authenticator = credentials.authenticator()
        environment = ServerEnvironment(
            ports.unix_s,
            ports.new_uid,
            ports.new_suffix,
            new_request_id=ports.new_uid,
            work_clock=ports.work_s,
            is_ready=self.ready.is_set,
        )
        self.server = ApiServer(
            self.store,
            environment,
            AuthenticationOptions(self.authenticator, safeguards.signer, safeguards.certify),
            telemetry=ServerTelemetry(metrics, tracer, safeguards.audit),
            admission=AdmissionOptions(
                flow_limits=flow_limits, deprecation_grace_s=deprecation_grace_s
            ),
        )
        self._unix_s, self._random = ports.unix_s, ports.random
        opened, nobody = self.bootstrap_client, BOOTSTRAP.name
        self.projects = ProjectPlanes(
            self.store, opened, _HELD_BACK, nobody=nobody, changed=projects_changed
        )
        self._events = build_recorder(self._engaged_client, ports, registry)
        self._manager = build_manager(
            controllers,
            layout.drivers,
            ports,
            holdings=self.server.inventory,
            authority=safeguards.authority,
            record_event=self._events.record,
            tracer=tracer,
            registry=registry,
            reach=self._reached,
            plane_lifecycle=self.projects if layout.centre else None,
            traffic=traffic,
            cell_probing=cell_probing,
        )

    @property
    def cells(self) -> tuple[PlaneName, ...]:
        return self._layout.cells

    def dispatch(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self.server.dispatch(request)

    def client(self, plane: PlaneName, token: str) -> Client:
        return Client(
            InProcessTransport(self.dispatch),
            prefix=path_prefix(plane),
            token=token,
            agent=MANAGER_AGENT,
        )

    async def load(self) -> None:
        """Take over what the journal holds; before run()."""
        await self.store.load()

    async def run(self) -> None:
        """Bring up every plane, then run controllers until cancelled.

        The store ends last: whoever was in the middle of a write has gone by then.
        """
        async with asyncio.TaskGroup() as storing:
            storing.create_task(self.store.run())
            async with asyncio.TaskGroup() as group:
                await self._run(group)

    async def _run(self, group: asyncio.TaskGroup) -> None:
        for plane in self._layout.lasting:
            await self.store.create_plane(plane)
            await self._bring_up(plane)
        projects = await self._open_projects() if self._layout.centre else {}
        for plane in (*self._layout.lasting, *self._layout.elsewhere):
            self._manager.engage(plane, self._own_client(plane))
        for plane, entitled in projects.items():
            self._manager.engage(plane, self._own_client(plane), entitled=entitled)
        group.create_task(self._events.run())
        group.create_task(self._manager.run())
        group.create_task(self._sweep())
        # Others may be away for long; what is served here does not wait for them.
        await self._manager.wait_for_sync((*self._layout.lasting, *projects))
        self.ready.set()

    async def _open_projects(self) -> dict[PlaneName, bool]:
        """The planes of all projects there are, and whether each may use compute."""
        hub = self.bootstrap_client(HUB)
        await ensure_cells(hub, self._layout.members, holds_of(self.store, HUB))
        platform, now = self.bootstrap_client(PLATFORM), timestamp(self._unix_s())
        founding = DefaultProjects(self.bootstrap_client, self.projects, now, self._random)
        older = [p for p in self.projects.stored() if p not in self._layout.projects]
        known = {project.metadata.name for project in (await platform.list(PROJECT)).items}
        strays = [plane for plane in older if member_name(plane) not in known]
        await founding.found((*self._layout.projects, *strays))
        entitled = {
            consumer.spec.consumer_project_ref.name
            for consumer in (await platform.list(CONSUMER)).items
            if can_use_service(consumer) and consumer.spec.service_ref.name == SERVICE
        }
        stored = self.projects.stored()
        return {plane: member_name(plane) in entitled for plane in stored}

    # --- planes of other processes, which come and go

    def engage(self, plane: PlaneName, client: Client, part: LabelScope | None = None) -> None:
        """Work with a plane that is served elsewhere, from now on; with ``part`` with the objects
        that bear its labels only."""
        self._manager.engage(plane, client, part)

    def disengage(self, plane: PlaneName) -> None:
        self._manager.disengage(plane)

    def count(self, plane: PlaneName, kind: KindInfo[Any]) -> int:
        """How many objects of a kind a plane of this process holds."""
        return len(self.store.snapshot(plane, kind.storage, None).records)

    async def offer(self, city: str) -> None:
        """A cell that has joined serves the city: projects that are entitled may use it."""
        place = cell_plane(city.lower())  # what a plane starts with is told by cells
        if place in self._offered or place in self._layout.members:
            return
        now, limits = timestamp(self._unix_s()), self._layout.limits
        platform, holds = self.bootstrap_client(PLATFORM), holds_of(self.store, PLATFORM)
        await ensure_platform(platform, (place,), now, limits, holds)
        self._offered[place] = None

    async def _bring_up(self, plane: PlaneName) -> None:
        """What the plane holds from its first moment."""
        client, holds = self.bootstrap_client(plane), holds_of(self.store, plane)
        cells = (*self._layout.members, *self._offered)
        await ensure_plane(client, plane, holds)
        if plane_role(plane) == "platform":
            now = timestamp(self._unix_s())
            await ensure_platform(client, cells, now, self._layout.limits, holds)

    async def _sweep(self) -> None:
        """Remove what has had its time, on every plane, again and again."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for plane in self.store.planes():
                try:
                    await expire_events(self.store, plane, self._unix_s())
                except ApiError as error:  # a full disk, a plane that has just gone
                    _log.warning("events of %s are not swept: %s", plane, error)
            if self._layout.centre:
                try:
                    await expire_join_tokens(self.bootstrap_client(HUB), self._unix_s())
                except ApiError as error:
                    _log.warning("join tokens are not swept: %s", error)

    def _engaged_client(self, plane: PlaneName) -> Client | None:
        view = self._manager.cached_client(plane)
        return view.client if view is not None else None

    def bootstrap_client(self, plane: PlaneName) -> Client:
        """As somebody who may do everything, for what this process does on its own account."""
        transport = InProcessTransport(partial(self.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="bootstrap")

    async def _reached(self, plane: PlaneName) -> Client:
        return self._own_client(plane)

    def _own_client(self, plane: PlaneName) -> Client:
        if self._reach is None:
            return self.client(plane, self._credentials.manager)
        return self._reach(plane)
