"""A simulated host: a process of the platform that can crash at any moment and is started again.

A crash keeps what a real host keeps: the committed rows of its disk. The machines of a cell belong
to its provider. Everything else is lost without cleanup.

``roles_of`` returns which hosts a world has and what runs on each; ``CellMachines`` manages hosts
of cells that join and leave.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    path_prefix,
    plane_role,
    project_plane,
)
from datum_compute.api.quota import DEFAULT_LIMITS
from datum_compute.app.controllers import ManagerOptions, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import (
    BOOTSTRAP,
    EVERYTHING,
    MANAGER_AGENT,
    ControllerOptions,
    PlaneLayout,
    Platform,
    PlatformOptions,
    SecurityOptions,
)
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.store.journal import MemoryJournal
from testkit.sim.disk import CommitHook, Disk, DiskJournal
from testkit.sim.loop import HOST, VirtualLoop
from testkit.sim.network import TIMEOUT_S, Around
from testkit.sim.processes import (
    HUB_TOKEN,
    Beside,
    LeadingProcess,
    beside_cell,
    beside_centre,
    certifier,
)
from testkit.sim.provider import Provider
from testkit.sim.scenario.scenario import CENTRE, WorldLayout, host_of_cell, managers_of
from testkit.sim.traffic import SimulatedTraffic

RESTART_S = 2.0
EPOCH_S = 1_700_000_000.0

MANAGER_TOKEN = "token-of-manager"  # noqa: S105 - also a canary: it must turn up nowhere


@dataclass(frozen=True, slots=True)
class HostRoles:
    """What runs on a host: the planes that it serves, its controllers, and its remote planes."""

    name: str
    serves: tuple[PlaneName, ...]
    centre: bool
    controllers: tuple[Controller[Context], ...]
    elsewhere: tuple[PlaneName, ...]
    candidate: bool = False  # runs controllers only while it leads
    # Runs on this host instead of our manager.
    process: Callable[[ProcessEnvironment, Callable[[PlaneName], Transport]], Process] | None = None
    # Name of the only project in single-cluster mode: all remote planes are one API server, and
    # this host runs the machines of the cell.
    single_project: str = ""
    members: bool = False  # connects to cells that have joined
    joins: str = ""  # the cell that joins from this host
    publishes: bool = False  # publishes ports of the machines of its cells


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """What all hosts of a world share."""

    loop: VirtualLoop
    credentials: PlaneTokens
    providers: Mapping[PlaneName, Provider]
    reach: Callable[[str, PlaneName, Around], Transport]
    on_commit: CommitHook
    on_death: Callable[[str], None]
    on_exit: Callable[[str, BaseException], None]
    on_answer: Callable[[Request, Response], None]
    limits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)


class Process(Protocol):
    """One process of a host, from start to crash."""

    async def dispatch(self, request: Request) -> Response: ...

    async def run(self) -> None: ...

    def is_ready(self) -> bool: ...


class SimulatedHost:
    def __init__(
        self, roles: HostRoles, around: HostEnvironment, disk: Disk, ids: Random, number: int
    ) -> None:
        self.roles = roles
        self.disk = disk
        self.lives = 0
        self.crashed = 0
        self.skew_s = 0.0
        self.is_lost = False  # never starts again
        self.certificate = ""  # certificate of a cell that has joined; on its disk
        self._around = around
        self._ids = ids
        self._number = number
        self._made = 0
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._process: Process | None = None
        self.traffic: SimulatedTraffic | None = None
        self._context = contextvars.Context()

    @property
    def name(self) -> str:
        return self.roles.name

    @property
    def life(self) -> str:
        return f"{self.name}#{self.lives}"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_ready()

    def unix_s(self) -> float:
        """Return the time by this host's clock, which may be skewed."""
        return EPOCH_S + self._around.loop.time() + self.skew_s

    # --- start and crash

    def start(self) -> None:
        if self._process is not None or self.is_lost:
            return
        self.lives += 1
        self._context = contextvars.Context()
        self._context.run(HOST.set, self.life)
        self._process = self._built()
        self.spawn(self._live(self._process))

    def crash(self, *, down_s: float = RESTART_S) -> None:
        """Crash now, and start again after ``down_s``."""
        if self._process is None:
            return
        self.crashed += 1
        self._around.loop.kill(self.life)
        self._removed()
        if down_s != float("inf"):
            self._around.loop.call_later(down_s, self.start, context=contextvars.Context())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of this process; a crash of the process stops it."""
        context = self._context.copy()
        self._around.loop.create_task(work, context=context)

    async def _live(self, process: Process) -> None:
        try:
            await process.run()
        except Exception as error:
            self._around.on_exit(self.name, error)
        self._around.loop.call_soon(self.crash, context=contextvars.Context())

    def _removed(self) -> None:
        self._process = self.traffic = None
        unanswered, self._unanswered = self._unanswered, {}
        for future in unanswered:
            if not future.done():
                future.set_exception(Unreachable("the host crashed before it answered"))
        self._around.on_death(self.name)

    # --- serving

    def compact_history(self) -> None:
        """Compact all history: open watches end, and resuming them returns 410."""
        if isinstance(self._process, ServingProcess):
            store = self._process.platform.store
            for plane in store.planes():
                for resource in store.resources(plane):
                    store.close_watches(plane, resource)

    async def answer(self, request: Request) -> Response:
        process = self._process
        if process is not None and HOST.get() == self.life:
            response = await process.dispatch(request)
        elif process is not None and process.is_ready():
            response = await self._answer_another(process, request)
        else:
            raise Unreachable(f"{self.name} is down")
        self._around.on_answer(request, response)
        return response

    async def answer_operator(self, request: Request) -> Response:
        """Answer a request of an operator on the host, without authentication."""
        process = self._process
        if not isinstance(process, ServingProcess) or not process.is_ready():
            raise Unreachable(f"{self.name} is down")
        return await process.platform.server.dispatch_as(BOOTSTRAP, request)

    async def _answer_another(self, process: Process, request: Request) -> Response:
        """Answer in a task of this host. It continues if the client disconnects, and stops if the
        process crashes."""
        loop = self._around.loop
        future: asyncio.Future[Response] = loop.create_future()
        self._unanswered[future] = None

        async def serve() -> None:
            response = await process.dispatch(request)
            if not future.done():
                future.set_result(response)

        def give_up() -> None:
            if not future.done():
                future.set_exception(Unreachable("no answer came in time"))

        timer = loop.call_later(2 * TIMEOUT_S, give_up, context=contextvars.Context())
        self.spawn(serve())
        try:
            return await future
        finally:
            timer.cancel()
            self._unanswered.pop(future, None)

    # --- construction

    def _built(self) -> Process:
        if self.roles.serves:
            environment = self._environment()
            platform = self._platform(environment)
            return ServingProcess(platform, self._beside(platform, environment))
        if self.roles.process is not None:
            return self.roles.process(self._environment(), self._reach)
        if self.roles.candidate:
            return self._candidate()
        return ManagingProcess(self.roles, self._around, self._environment(), self._reach)

    def _candidate(self) -> Process:
        roles, around = self.roles, self._around
        return LeadingProcess(
            life=self.life,
            controllers=roles.controllers,
            planes=roles.elsewhere,
            token=around.credentials.manager,
            environment=self._environment(),
            reach=lambda plane, with_fence: around.reach(self.name, plane, with_fence),
        )

    def _beside(self, platform: Platform, environment: ProcessEnvironment) -> Sequence[Beside]:
        """Return the components next to the planes in worlds whose cells join: they connect to the
        Clusters of the hub."""
        if self.roles.members:
            return beside_centre(platform, environment, self._reach)
        if (cell := self.roles.joins) and self.certificate:
            return beside_cell(cell, platform, environment, self._reach, lambda: self.certificate)
        return ()

    def _platform(self, environment: ProcessEnvironment) -> Platform:
        roles, around = self.roles, self._around
        credentials = around.credentials
        if roles.joins:
            credentials = replace(credentials, hub=HUB_TOKEN)
        guarded = (
            SecurityOptions(certify=certifier(self.unix_s)) if roles.members else SecurityOptions()
        )
        drivers = {
            plane: around.providers[plane].driver()
            for plane in roles.serves
            if plane in around.providers
        }
        if roles.publishes:
            elapsed_s = around.loop.time
            self.traffic = SimulatedTraffic(drivers, around.providers, self.unix_s, elapsed_s)
        return Platform(
            PlaneLayout(
                tuple(p for p in roles.serves if plane_role(p) == "project"),
                self.traffic.drivers if self.traffic is not None else drivers,
                centre=roles.centre,
                elsewhere=roles.elsewhere,
                limits=around.limits,
            ),
            environment,
            DiskJournal(self.disk, around.on_commit, self.crash),
            credentials,
            PlatformOptions(
                control=ControllerOptions(roles.controllers, self._client, self.traffic),
                security=guarded,
            ),
        )

    def _client(self, plane: PlaneName) -> Client:
        token = self._around.credentials.manager
        return Client(
            self._reach(plane), prefix=path_prefix(plane), token=token, agent=MANAGER_AGENT
        )

    def _reach(self, plane: PlaneName) -> Transport:
        return self._around.reach(self.name, plane, lambda link: link)

    def _environment(self) -> ProcessEnvironment:
        return ProcessEnvironment(
            unix_s=self.unix_s,
            new_uid=self._new_uid,
            new_suffix=lambda: f"{self._next_id() % 100000:05d}",
            random=Random(self._ids.getrandbits(64)),  # noqa: S311 - reproducible on purpose
            elapsed_s=self._around.loop.time,
        )

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8{self._number:03d}-{self._next_id():012d}"

    def _next_id(self) -> int:
        self._made += 1
        return self._made

    def continue_ids(self, made: int) -> None:
        """Continue with the next id, after rows that were created elsewhere."""
        self._made = made

    @property
    def ids_made(self) -> int:
        return self._made


@dataclass(frozen=True, slots=True)
class ServingProcess:
    platform: Platform
    beside: Sequence[Beside] = ()

    async def dispatch(self, request: Request) -> Response:
        return await self.platform.dispatch(request)

    async def run(self) -> None:
        await self.platform.load()
        if not self.beside:
            await self.platform.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.platform.run())
            await self.platform.ready.wait()
            for run in self.beside:
                group.create_task(_awaited(run))

    def is_ready(self) -> bool:
        return self.platform.ready.is_set()


@dataclass(frozen=True, slots=True)
class ManagingProcess:
    """Controllers without planes, as in ``compute-manager``."""

    roles: HostRoles
    around: HostEnvironment
    environment: ProcessEnvironment
    reach: Callable[[PlaneName], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"{self.roles.name} serves nothing: {request.path}")

    async def run(self) -> None:
        roles, single = self.roles, self.roles.single_project
        providers = self.around.providers if single else {}
        drivers = {plane: provider.driver() for plane, provider in providers.items()}
        manager = build_manager(
            roles.controllers,
            drivers,
            self.environment,
            options=ManagerOptions(single_project=single, reach=None if single else self._client),
        )
        for plane in roles.elsewhere:
            manager.engage(plane, await self._client(plane))
        await manager.run()

    async def _client(self, plane: PlaneName) -> Client:
        return Client(
            self.reach(plane),
            prefix=path_prefix(PLATFORM if self.roles.single_project else plane),
            token=self.around.credentials.manager,
            agent=MANAGER_AGENT,
        )

    def is_ready(self) -> bool:
        return True


async def _awaited(run: Beside) -> None:
    await run()


def credentials_of(planes: Sequence[PlaneName]) -> PlaneTokens:
    return PlaneTokens(MANAGER_TOKEN, {plane: f"token-of-{plane}" for plane in planes})


def roles_of(layout: WorldLayout) -> list[HostRoles]:
    """Return the roles of all hosts: one process; or a center, managers and cells."""
    cells = tuple(cell_plane(cell) for cell in layout.all_cells)
    central = tuple(plane for plane in layout.planes if plane not in cells)
    if layout.processes == "one":
        everything = (*EVERYTHING, *_publishing(layout))
        return [HostRoles("all", layout.planes, True, everything, (), publishes=layout.published)]
    of_cells = tuple(c for c in registry.CLUSTER if c.role == "cell")
    of_centre = tuple(c for c in registry.CLUSTER if c.role != "cell")
    of_centre += registry.PROJECT_MEMBERSHIP
    managing = (*registry.MANAGEMENT, *registry.HUB)
    if layout.processes == "managers":
        found = [
            HostRoles(CENTRE, central, True, of_centre, cells),
            *(
                _managing(layout, name, (*managing, *registry.PROJECT_MEMBERSHIP))
                for name in managers_of(layout)
            ),
        ]
    else:
        elsewhere = () if layout.joined else cells
        controllers = (*managing, *of_centre)
        found = [HostRoles(CENTRE, central, True, controllers, elsewhere, members=layout.joined)]
    if layout.joined:
        return [*found, *(_joining(layout, cell) for cell in layout.all_cells)]
    for cell in layout.cells:
        controllers = (
            *registry.CELL,
            *of_cells,
            *registry.HUB_NAMESPACE_MEMBERSHIP,
            *_publishing(layout),
        )
        name = host_of_cell(layout, cell)
        above = (HUB, *map(project_plane, layout.projects))  # and the claims of its instances
        own = (cell_plane(cell),)
        found.append(HostRoles(name, own, False, controllers, above, publishes=layout.published))
    return found


def _joining(layout: WorldLayout, cell: str) -> HostRoles:
    name, plane = host_of_cell(layout, cell), cell_plane(cell)
    controllers = (*registry.CELL_PROCESS, *_publishing(layout))
    return HostRoles(name, (plane,), False, controllers, (), joins=cell, publishes=layout.published)


def _publishing(layout: WorldLayout) -> tuple[Controller[Context], ...]:
    return registry.PUBLISHING if layout.published else ()


def _managing(
    layout: WorldLayout, name: str, controllers: tuple[Controller[Context], ...]
) -> HostRoles:
    return HostRoles(name, (), False, controllers, layout.planes, candidate=layout.managers > 1)


_OFF_S = 2.0
_START_S = 0.1


@dataclass(slots=True)
class CellMachines:
    hosts: Mapping[str, SimulatedHost]
    providers: Mapping[PlaneName, Provider]
    drop_plane: Callable[[str], None]
    client: Callable[[PlaneName, str], Client]
    wiped: dict[str, int] = field(default_factory=dict)

    def incarnation(self, cell: str) -> int:
        return self.wiped.get(cell, 0)

    def keep(self, cell: str, certificate: str) -> None:
        """Store the certificate. Start the process of the cell if it was not a member before."""
        host = self._host(cell)
        is_first, host.certificate = not host.certificate, certificate
        if is_first:
            host.crash(down_s=_START_S)

    def wipe(self, cell: str) -> None:
        host, plane = self._host(cell), cell_plane(cell)
        self.wiped[cell] = self.incarnation(cell) + 1
        host.crash(down_s=_OFF_S)
        host.disk.journal = MemoryJournal()
        host.certificate = ""
        self.drop_plane(plane)
        self.providers[plane].machines.clear()

    def joining_with(self, token: str) -> Client:
        return self.client(HUB, token)

    def _host(self, cell: str) -> SimulatedHost:
        return self.hosts[f"cell-{cell}"]
