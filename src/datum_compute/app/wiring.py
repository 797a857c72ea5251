"""The platform, constructed top to bottom: store, server, clients, controllers, planes.

A production process and the simulator build the same thing; they differ only in the ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import CollectorRegistry

from datum_compute import __version__
from datum_compute.admission.grace import DEPRECATION_GRACE_S
from datum_compute.api.errors import ApiError
from datum_compute.api.exchange import Request, Response
from datum_compute.api.holdings import Holdings
from datum_compute.api.labels import FEDERATION_FINALIZERS
from datum_compute.api.plane import HUB, PLATFORM, PlaneName, path_prefix, plane_role
from datum_compute.api.quotametrics import DEFAULT_LIMITS
from datum_compute.api.timestamps import timestamp
from datum_compute.app.credentials import Credentials
from datum_compute.app.ports import Ports
from datum_compute.client.client import Client
from datum_compute.client.inprocess import InProcessTransport
from datum_compute.client.transport import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context, uncounted
from datum_compute.controllers.notices import misled_notice
from datum_compute.drivers.driver import Driver
from datum_compute.planes.bootstrap import ensure_cells, ensure_plane
from datum_compute.planes.catalogue import ensure_platform, ensure_project, release_project
from datum_compute.planes.planes import Planes, untold
from datum_compute.planes.revoking import ask_to_go, held_back_on, mark_revoked
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.events import EventRecorder, Notice
from datum_compute.runtime.instrumented import instrumented
from datum_compute.runtime.manager import Manager
from datum_compute.runtime.metrics import RuntimeMetrics
from datum_compute.runtime.view import nothing_in_the_way
from datum_compute.server.access.audit import AuditSink, nowhere
from datum_compute.server.access.signer import TokenSigner
from datum_compute.server.apiserver import ApiServer
from datum_compute.server.authentication import EVERY_PLANE, MASTERS, User
from datum_compute.server.expiry import expire_events
from datum_compute.server.metrics import ServerMetrics
from datum_compute.store.journal import Journal
from datum_compute.store.store import Store
from datum_compute.telemetry.traces import Tracer

SWEEP_S = 60.0
# How often a plane that is being revoked is looked at.
DRAIN_S = 0.5
COMPONENT = "compute-manager"  # what events say they are from
MANAGER_AGENT = f"{COMPONENT}/{__version__}"
# Brings up planes from inside the process; no token or certificate gives this identity.
BOOTSTRAP = User("system:bootstrap", (MASTERS,), frozenset({EVERY_PLANE}))

_log = logging.getLogger(__name__)

EVERYTHING = (
    *registry.MANAGEMENT,
    *registry.HUB,
    *registry.CELL,
    *registry.NEIGHBOURS,
)
_HELD_BACK = held_back_on("project", EVERYTHING)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which planes the process serves, and what realises the servers of each of its cells.

    A process without the centre serves cells only. ``elsewhere`` are planes of other processes
    that controllers of this one work on. ``limits`` are those of the grant that a new project
    gets, by resource type.
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
    tell: Callable[[Notice], None] = untold,
    tracer: Tracer | None = None,
    registry: CollectorRegistry | None = None,
    fence: Callable[[], None] = nothing_in_the_way,
    single_project: str = "",
) -> Manager[Context]:
    """``single_project`` is the only one there is, where one API server is everything."""

    def context(manager: Manager[Context]) -> Context:
        unreleased = FEDERATION_FINALIZERS if single_project else frozenset[str]()
        planes = Planes(manager.view, manager.engaged, tell, unreleased)
        mapped = metrics.mapped if metrics is not None else uncounted
        return Context(planes, drivers, ports.unix_s, holdings, authority, single_project, mapped)

    metrics = RuntimeMetrics(registry) if registry is not None else None
    return Manager(
        [instrumented(controller, tracer) for controller in controllers],
        context,
        ports.random,
        metrics=metrics,
        report=lambda misled: tell(misled_notice(misled)),
        fence=fence,
    )


def build_recorder(
    client_of: Callable[[PlaneName], Client | None], ports: Ports, registry: CollectorRegistry
) -> EventRecorder:
    return EventRecorder(client_of, component=COMPONENT, unix_s=ports.unix_s, registry=registry)


class Platform:
    """All planes of one process, and its controllers.

    ``reach`` says how controllers get to a plane; without it all planes are in this process.
    """

    def __init__(
        self,
        layout: Layout,
        ports: Ports,
        journal: Journal,
        credentials: Credentials,
        *,
        controllers: Sequence[Controller[Context]] = EVERYTHING,
        authority: str = "",
        signer: TokenSigner | None = None,
        audit: AuditSink = nowhere,
        registry: CollectorRegistry | None = None,
        tracer: Tracer | None = None,
        reach: Callable[[PlaneName], Transport] | None = None,
        deprecation_grace_s: float = DEPRECATION_GRACE_S,
    ) -> None:
        assert reach is not None or not layout.elsewhere, "nothing leads to the other planes"
        self._reach = reach
        self.ready = asyncio.Event()
        self._layout = layout
        self._credentials = credentials
        registry = registry or CollectorRegistry()
        metrics = ServerMetrics(registry)
        self.store = Store(journal, on_commit=metrics.committed)
        self.server = ApiServer(
            self.store,
            clock=ports.unix_s,
            new_uid=ports.new_uid,
            new_suffix=ports.new_suffix,
            authenticator=credentials.authenticator(),
            is_ready=self.ready.is_set,
            signer=signer,
            audit=audit,
            new_request_id=ports.new_uid,
            metrics=metrics,
            tracer=tracer,
            deprecation_grace_s=deprecation_grace_s,
        )
        self._unix_s = ports.unix_s
        self._events = build_recorder(self._engaged_client, ports, registry)
        self._manager = build_manager(
            controllers,
            layout.drivers,
            ports,
            holdings=self.server.holdings,
            authority=authority,
            tell=self._events.tell,
            tracer=tracer,
            registry=registry,
        )

    @property
    def cells(self) -> tuple[PlaneName, ...]:
        return self._layout.cells

    async def dispatch(self, request: Request) -> Response:
        return await self.server.dispatch(request)

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
        """Bring up every plane, then run controllers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.store.run())
            planes = (*self._layout.planes, *self._added_before())
            for plane in planes:
                await self.store.create_plane(plane)
                await self._bring_up(plane)
            if self._layout.centre:
                await ensure_cells(self._bootstrap_client(HUB), self._layout.members)
            for plane in (*planes, *self._layout.elsewhere):
                self._manager.engage(plane, self._own_client(plane))
            group.create_task(self._events.run())
            group.create_task(self._manager.run())
            group.create_task(self._sweep())
            # Others may be away for long; what is served here does not wait for them.
            await self._manager.synced(planes)
            self.ready.set()

    async def add_plane(self, plane: PlaneName) -> None:
        """A project's plane from now on, also after a restart; one that is there stays."""
        if plane_role(plane) != "project":
            raise ValueError(f"{plane} cannot be added while running: only projects can")
        await self.store.create_plane(plane)
        await self._bring_up(plane)
        await mark_revoked(self._bootstrap_client(plane), revoked=False)
        if self._manager.view(plane) is None:
            self._manager.engage(plane, self._own_client(plane))

    async def remove_plane(self, plane: PlaneName) -> None:
        """Drain the plane, then it and everything in it are gone; its watches end. No plane of
        that name is fine.

        This takes as long as its workloads take to leave hub and cells. Cancelled, or cut short by
        a restart, it leaves a plane that is there; whoever wants it gone asks again.
        """
        if plane_role(plane) != "project" or plane in self._layout.projects:
            raise ValueError(f"{plane} belongs to the layout and cannot be removed while running")
        if self._manager.view(plane) is not None:
            await self._drain(plane)
        await self.store.delete_plane(plane)
        await release_project(self._bootstrap_client(PLATFORM), self._bootstrap_client(HUB), plane)

    async def _drain(self, plane: PlaneName) -> None:
        """Everything that is held back is asked to go. The plane stays engaged until it has gone,
        because who holds it back must still see it."""
        client, told = self._bootstrap_client(plane), ""
        await mark_revoked(client, revoked=True)
        while self._manager.view(plane) is not None:
            if held := await ask_to_go(client, _HELD_BACK):
                if told != held[0]:
                    told = held[0]
                    _log.info("%s is drained: %d are held, such as %s", plane, len(held), told)
                await asyncio.sleep(DRAIN_S)
                continue
            with suppress(TimeoutError):  # something new is there, and must be asked as well
                async with asyncio.timeout(DRAIN_S):
                    await self._manager.drain(plane)

    async def _bring_up(self, plane: PlaneName) -> None:
        """What the plane holds from its first moment."""
        client, cells = self._bootstrap_client(plane), self._layout.members
        await ensure_plane(client, plane)
        if plane_role(plane) == "platform":
            await ensure_platform(client, cells, timestamp(self._unix_s()))
        if plane_role(plane) == "project":
            now = timestamp(self._unix_s())
            await ensure_project(client, plane, cells, now, self._layout.limits)

    def _added_before(self) -> list[PlaneName]:
        """Planes of projects that were added in an earlier run."""
        stored = (PlaneName(name) for name in self.store.planes())
        return [p for p in stored if p not in self._layout.planes and plane_role(p) == "project"]

    async def _sweep(self) -> None:
        """Remove what has had its time, on every plane, again and again."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for plane in self.store.planes():
                try:
                    await expire_events(self.store, plane, self._unix_s())
                except ApiError as error:  # a full disk, a plane that has just gone
                    _log.warning("events of %s are not swept: %s", plane, error)

    def _engaged_client(self, plane: PlaneName) -> Client | None:
        view = self._manager.view(plane)
        return view.client if view is not None else None

    def _bootstrap_client(self, plane: PlaneName) -> Client:
        transport = InProcessTransport(partial(self.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="bootstrap")

    def _own_client(self, plane: PlaneName) -> Client:
        token = self._credentials.manager
        if self._reach is None:
            return self.client(plane, token)
        return Client(
            self._reach(plane), prefix=path_prefix(plane), token=token, agent=MANAGER_AGENT
        )
