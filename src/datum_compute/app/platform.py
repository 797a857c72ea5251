"""The platform: store, server, clients, controllers and planes of one process.

Production processes and the simulator build the same platform with another ``ProcessEnvironment``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from datum_compute import __version__
from datum_compute.api.errors import ApiError
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONSUMER, PROJECT
from datum_compute.api.meta.objects import KindInfo, Ref
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
from datum_compute.app.controllers import (
    COMPONENT,
    ManagerOptions,
    ManagerTelemetry,
    ServedPlanes,
    build_event_recorder,
    build_manager,
)
from datum_compute.app.default_projects import DefaultProjects
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.project_planes import ProjectPlanes, existence_check
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.controllers import registry
from datum_compute.controllers.context import CellProbing, Context
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.traffic import Traffic
from datum_compute.planes.bootstrap import ensure_cells, ensure_plane, expire_join_tokens
from datum_compute.planes.catalogue import ensure_platform
from datum_compute.planes.cell_members import CellMemberOptions
from datum_compute.planes.lifecycle import finalized_kinds_on
from datum_compute.runtime.cached_client import LabelScope, noop
from datum_compute.runtime.controller import Controller
from datum_compute.server.access.audit import AuditSink, discard
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, User
from datum_compute.server.access.client_certificates import Certify
from datum_compute.server.access.service_accounts import TokenSigner
from datum_compute.server.api_server import ApiServer
from datum_compute.server.metrics import ServerMetrics
from datum_compute.server.options import (
    AdmissionOptions,
    AuthenticationOptions,
    ServerEnvironment,
    ServerTelemetry,
)
from datum_compute.server.verbs.delete import expire_events
from datum_compute.store.journal import Journal
from datum_compute.store.store import Store
from datum_compute.telemetry.context import Tracer

EXPIRY_INTERVAL_S = 60.0
MANAGER_AGENT = f"{COMPONENT}/{__version__}"
# Prepares planes from inside the process. No token or certificate gives this identity.
BOOTSTRAP = User("system:bootstrap", (MASTERS,), frozenset({EVERY_PLANE}))

EVERYTHING = (
    *registry.MANAGEMENT,
    *registry.HUB,
    *registry.CELL,
    *registry.CLUSTER,
    *registry.PROJECT_MEMBERSHIP,
)
_FINALIZED_KINDS = finalized_kinds_on("project", EVERYTHING)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """The planes that the process serves, and the driver of each of its cells.

    ``projects`` exist from the start; others are created and deleted as Projects of the platform. A
    process with ``center=False`` serves only cells. ``elsewhere`` are planes of other processes on
    which controllers of this process work. ``limits`` are the quota of every project, by resource
    type.
    """

    projects: tuple[PlaneName, ...]
    drivers: Mapping[PlaneName, Driver]
    center: bool = True
    elsewhere: tuple[PlaneName, ...] = ()
    limits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)

    @property
    def cells(self) -> tuple[PlaneName, ...]:
        return tuple(self.drivers)

    @property
    def planes(self) -> tuple[PlaneName, ...]:
        return (PLATFORM, *self.projects, HUB, *self.cells) if self.center else self.cells

    @property
    def permanent_planes(self) -> tuple[PlaneName, ...]:
        """The planes that exist as long as the process."""
        return tuple(plane for plane in self.planes if plane not in self.projects)

    @property
    def members(self) -> tuple[PlaneName, ...]:
        """The cells of the hub of this process, including those of other processes."""
        remote = (plane for plane in self.elsewhere if plane_role(plane) == "cell")
        return (*self.cells, *remote) if self.center else ()


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """What the server needs in addition to tokens."""

    authority: str = ""  # the certificates that clients trust, as PEM
    signer: TokenSigner | None = None  # of the tokens of service accounts
    audit: AuditSink = discard
    certify: Certify | None = None  # issues the certificates of cells that join


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The controllers of the process, and how they reach planes and machines."""

    controllers: Sequence[Controller[Context]] = EVERYTHING
    # Returns the client of a plane. None: all planes are in this process.
    reach: Callable[[PlaneName], Client] | None = None
    traffic: Traffic | None = None
    cell_probing: CellProbing = field(default_factory=CellProbing)
    enforces_quota: bool = True
    # The part of each project that a cell reads; None: everything.
    project_scope: LabelScope | None = None
    # How to connect to cells that have joined; None if the process does not connect to them.
    cell_members: CellMemberOptions | None = None


@dataclass(frozen=True, slots=True)
class PlatformOptions:
    """What differs between processes."""

    control: ControllerOptions = field(default_factory=ControllerOptions)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    admission: AdmissionOptions = field(default_factory=AdmissionOptions)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    tracer: Tracer | None = None
    on_projects_changed: Callable[[], None] = noop


class Platform:
    """All planes of one process, and its controllers."""

    def __init__(
        self,
        layout: PlaneLayout,
        environment: ProcessEnvironment,
        journal: Journal,
        credentials: PlaneTokens,
        options: PlatformOptions | None = None,
    ) -> None:
        options = options or PlatformOptions()
        control, security = options.control, options.security
        assert control.reach is not None or not layout.elsewhere, "other planes are unreachable"
        self._reach, self.ready = control.reach, asyncio.Event()
        self._layout, self._credentials = layout, credentials
        self._registered_cities: dict[PlaneName, None] = {}
        self.unix_s, self._random = environment.unix_s, environment.random
        self.registry = options.registry
        metrics = ServerMetrics(self.registry)
        self.store = Store(journal, on_commit=metrics.observe_commit)
        self.authenticator = credentials.authenticator()
        server_environment = ServerEnvironment(
            environment.unix_s,
            environment.new_uid,
            environment.new_suffix,
            new_request_id=environment.new_uid,
            work_clock=environment.work_s,
            is_ready=self.ready.is_set,
        )
        self.server = ApiServer(
            self.store,
            server_environment,
            AuthenticationOptions(self.authenticator, security.signer, security.certify),
            telemetry=ServerTelemetry(metrics, options.tracer, security.audit),
            admission=options.admission,
        )
        self.projects = ProjectPlanes(
            self.store,
            self.bootstrap_client,
            _FINALIZED_KINDS,
            bootstrap_user=BOOTSTRAP.name,
            on_changed=options.on_projects_changed,
        )
        self._events = build_event_recorder(self._engaged_client, environment, self.registry)
        self._manager = build_manager(
            control.controllers,
            layout.drivers,
            environment,
            served=ServedPlanes(
                self.server.inventory,
                security.authority,
                self.projects if layout.center else None,
            ),
            telemetry=ManagerTelemetry(self._events.record, options.tracer, self.registry),
            options=ManagerOptions(
                reach=self._project_client,
                project_scope=control.project_scope,
                cell_members=self._cell_members(control.cell_members),
                traffic=control.traffic,
                cell_probing=control.cell_probing,
                enforces_quota=control.enforces_quota,
            ),
        )

    def _cell_members(self, options: CellMemberOptions | None) -> CellMemberOptions | None:
        if options is None:
            return None
        return replace(options, register_city=self.register_city, local_cells=self.cells)

    @property
    def cells(self) -> tuple[PlaneName, ...]:
        return self._layout.cells

    def dispatch(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self.server.dispatch(request)

    # --- Clients

    def client(self, plane: PlaneName, token: str) -> Client:
        return Client(
            InProcessTransport(self.dispatch),
            prefix=path_prefix(plane),
            token=token,
            agent=MANAGER_AGENT,
        )

    def bootstrap_client(self, plane: PlaneName) -> Client:
        """Return a client without access control, for writes of the process itself."""
        transport = InProcessTransport(partial(self.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="bootstrap")

    def _controller_client(self, plane: PlaneName) -> Client:
        if self._reach is None:
            return self.client(plane, self._credentials.manager)
        return self._reach(plane)

    async def _project_client(self, plane: PlaneName) -> Client:
        return self._controller_client(plane)

    def _engaged_client(self, plane: PlaneName) -> Client | None:
        cached = self._manager.cached_client(plane)
        return cached.uncached if cached is not None else None

    # --- Start and run

    async def load(self) -> None:
        """Load the journal. Call it before ``run``."""
        await self.store.load()

    async def run(self) -> None:
        """Prepare every plane, then run controllers until cancelled.

        The store ends last, so that no controller waits for a write that the store never answers.
        """
        async with asyncio.TaskGroup() as storing:
            storing.create_task(self.store.run())
            async with asyncio.TaskGroup() as group:
                await self._run(group)

    async def _run(self, group: asyncio.TaskGroup) -> None:
        for plane in self._layout.permanent_planes:
            await self.store.create_plane(plane)
            await self._prepare_plane(plane)
        projects = await self._open_projects() if self._layout.center else {}
        for plane in (*self._layout.permanent_planes, *self._layout.elsewhere):
            self._manager.engage(plane, self._controller_client(plane))
        for plane, entitled in projects.items():
            self._manager.engage(plane, self._controller_client(plane), entitled=entitled)
        group.create_task(self._events.run())
        group.create_task(self._manager.run())
        group.create_task(self._expire_objects())
        # Planes of other processes may be unreachable for long; the start does not wait for them.
        await self._manager.wait_for_sync((*self._layout.permanent_planes, *projects))
        self.ready.set()

    async def _prepare_plane(self, plane: PlaneName) -> None:
        """Create the initial objects of the plane."""
        client, exists = self.bootstrap_client(plane), existence_check(self.store, plane)
        cells = (*self._layout.members, *self._registered_cities)
        await ensure_plane(client, plane, exists)
        if plane_role(plane) == "platform":
            now = timestamp(self.unix_s())
            await ensure_platform(client, cells, now, self._layout.limits, exists)

    async def _open_projects(self) -> dict[PlaneName, bool]:
        """Return the planes of all projects, and whether each is entitled to compute."""
        hub = self.bootstrap_client(HUB)
        await ensure_cells(hub, self._layout.members, existence_check(self.store, HUB))
        platform, now = self.bootstrap_client(PLATFORM), timestamp(self.unix_s())
        default_projects = DefaultProjects(self.bootstrap_client, self.projects, now, self._random)
        older = [p for p in self.projects.list_stored() if p not in self._layout.projects]
        known = {project.metadata.name for project in (await platform.list(PROJECT)).items}
        strays = [plane for plane in older if member_name(plane) not in known]
        await default_projects.create((*self._layout.projects, *strays))
        entitled = {
            consumer.spec.consumer_project_ref.name
            for consumer in (await platform.list(CONSUMER)).items
            if can_use_service(consumer) and consumer.spec.service_ref.name == SERVICE
        }
        stored = self.projects.list_stored()
        return {plane: member_name(plane) in entitled for plane in stored}

    # --- Planes of other processes, which come and go

    def engage(self, plane: PlaneName, client: Client, part: LabelScope | None = None) -> None:
        """Run controllers on a plane of another process, limited to the objects of ``part``."""
        self._manager.engage(plane, client, part)

    def disengage(self, plane: PlaneName) -> None:
        self._manager.disengage(plane)

    def count_objects(self, plane: PlaneName, kind: KindInfo[Any]) -> int:
        """Return the number of objects of a kind on a plane of this process."""
        return len(self.store.snapshot(plane, kind.storage, None).records)

    def list_refs(self, plane: PlaneName, kind: KindInfo[Any]) -> list[Ref]:
        """Return the names of all objects of a kind on a plane of this process."""
        keys = (record.key for record in self.store.snapshot(plane, kind.storage, None).records)
        return [Ref(key.namespace, key.name) for key in keys]

    async def register_city(self, city: str) -> None:
        """Add the city of a cell that has joined, for all projects that are entitled."""
        place = cell_plane(city.lower())  # the catalogue derives cities from the names of cells
        if place in self._registered_cities or place in self._layout.members:
            return
        now, limits = timestamp(self.unix_s()), self._layout.limits
        platform, exists = self.bootstrap_client(PLATFORM), existence_check(self.store, PLATFORM)
        await ensure_platform(platform, (place,), now, limits, exists)
        self._registered_cities[place] = None

    # --- Expiry

    async def _expire_objects(self) -> None:
        """Delete expired events and join tokens until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            for plane in self.store.planes():
                try:
                    await expire_events(self.store, plane, self.unix_s())
                except ApiError as error:  # a full disk, or a plane that was just deleted
                    _log.warning("cannot delete expired events of %s: %s", plane, error)
            if self._layout.center:
                try:
                    await expire_join_tokens(self.bootstrap_client(HUB), self.unix_s())
                except ApiError as error:
                    _log.warning("cannot delete expired join tokens: %s", error)
