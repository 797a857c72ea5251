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
from datum_compute.app.controllers import (
    ManagerOptions,
    build_manager,
    engage_configured_planes,
)
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
from datum_compute.planes.planes import project_label_scope
from datum_compute.runtime.controller import Controller
from datum_compute.store.journal import MemoryJournal
from testkit.sim.disk import CommitHook, Disk, DiskJournal
from testkit.sim.loop import HOST, VirtualLoop
from testkit.sim.network import TIMEOUT_S, WrapTransport
from testkit.sim.processes import (
    HUB_TOKEN,
    LeadingProcess,
    RunComponent,
    build_cell_components,
    cell_member_options,
    certifier,
    client_with_certificate,
)
from testkit.sim.provider import Provider
from testkit.sim.scenario.scenario import CENTER, WorldLayout, host_of_cell, managers_of
from testkit.sim.traffic import SimulatedTraffic

RESTART_S = 2.0
EPOCH_S = 1_700_000_000.0

MANAGER_TOKEN = "token-of-manager"  # noqa: S105 - also a canary: no log or object may contain it


@dataclass(frozen=True, slots=True)
class HostRoles:
    """What runs on a host: the planes that it serves, its controllers, and its remote planes."""

    name: str
    serves: tuple[PlaneName, ...]
    center: bool
    controllers: tuple[Controller[Context], ...]
    remote_planes: tuple[PlaneName, ...]
    elects_leader: bool = False  # runs controllers only while it leads
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
    """The loop, network, providers and callbacks that all hosts of a world share."""

    loop: VirtualLoop
    credentials: PlaneTokens
    providers: Mapping[PlaneName, Provider]
    reach: Callable[[str, PlaneName, WrapTransport], Transport]
    on_commit: CommitHook
    on_crash: Callable[[str], None]
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
        self,
        roles: HostRoles,
        host_environment: HostEnvironment,
        disk: Disk,
        ids: Random,
        number: int,
    ) -> None:
        self.roles = roles
        self.disk = disk
        self.start_count = 0
        self.crash_count = 0
        self.skew_s = 0.0
        self.is_lost = False  # if True, the host never starts again
        self.certificate = ""  # certificate of a cell that has joined; on its disk
        self._host_environment = host_environment
        self._ids = ids
        self._number = number
        self._last_id = 0
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._process: Process | None = None
        self.traffic: SimulatedTraffic | None = None
        self._context = contextvars.Context()

    @property
    def name(self) -> str:
        return self.roles.name

    @property
    def process_name(self) -> str:
        return f"{self.name}#{self.start_count}"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_ready()

    def unix_s(self) -> float:
        """Return the time by this host's clock, which may be skewed."""
        return EPOCH_S + self._host_environment.loop.time() + self.skew_s

    # --- start and crash

    def start(self) -> None:
        if self._process is not None or self.is_lost:
            return
        self.start_count += 1
        self._context = contextvars.Context()
        self._context.run(HOST.set, self.process_name)
        self._process = self._build_process()
        self.spawn(self._run_process(self._process))

    def crash(self, *, down_s: float = RESTART_S) -> None:
        """Crash now, and start again after ``down_s``."""
        if self._process is None:
            return
        self.crash_count += 1
        self._host_environment.loop.kill(self.process_name)
        self._drop_process()
        if down_s != float("inf"):
            self._host_environment.loop.call_later(
                down_s, self.start, context=contextvars.Context()
            )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of this process; a crash of the process stops it."""
        context = self._context.copy()
        self._host_environment.loop.create_task(work, context=context)

    async def _run_process(self, process: Process) -> None:
        try:
            await process.run()
        except Exception as error:
            self._host_environment.on_exit(self.name, error)
        self._host_environment.loop.call_soon(self.crash, context=contextvars.Context())

    def _drop_process(self) -> None:
        self._process = self.traffic = None
        unanswered, self._unanswered = self._unanswered, {}
        for future in unanswered:
            if not future.done():
                future.set_exception(Unreachable("the host crashed before it answered"))
        self._host_environment.on_crash(self.name)

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
        if process is not None and HOST.get() == self.process_name:
            response = await process.dispatch(request)
        elif process is not None and process.is_ready():
            response = await self._answer_another(process, request)
        else:
            raise Unreachable(f"{self.name} is down")
        self._host_environment.on_answer(request, response)
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
        loop = self._host_environment.loop
        future: asyncio.Future[Response] = loop.create_future()
        self._unanswered[future] = None

        async def serve() -> None:
            response = await process.dispatch(request)
            if not future.done():
                future.set_result(response)

        def time_out() -> None:
            if not future.done():
                future.set_exception(Unreachable("no response in time"))

        timer = loop.call_later(2 * TIMEOUT_S, time_out, context=contextvars.Context())
        self.spawn(serve())
        try:
            return await future
        finally:
            timer.cancel()
            self._unanswered.pop(future, None)

    # --- construction

    def _build_process(self) -> Process:
        if self.roles.serves:
            environment = self._build_environment()
            platform = self._build_platform(environment)
            return ServingProcess(platform, self._build_components(platform, environment))
        if self.roles.process is not None:
            return self.roles.process(self._build_environment(), self._reach)
        if self.roles.elects_leader:
            return self._build_leading_process()
        return ManagingProcess(
            self.roles, self._host_environment, self._build_environment(), self._reach
        )

    def _build_leading_process(self) -> Process:
        roles, host_environment = self.roles, self._host_environment
        return LeadingProcess(
            process_name=self.process_name,
            controllers=roles.controllers,
            planes=roles.remote_planes,
            token=host_environment.credentials.manager,
            environment=self._build_environment(),
            reach=lambda plane, with_fence: host_environment.reach(self.name, plane, with_fence),
        )

    def _build_components(
        self, platform: Platform, environment: ProcessEnvironment
    ) -> Sequence[RunComponent]:
        """Return the components next to the planes of a cell that has joined."""
        if (cell := self.roles.joins) and self.certificate:
            return build_cell_components(cell, platform, environment, self._client_of_cell(HUB))
        return ()

    def _build_platform(self, environment: ProcessEnvironment) -> Platform:
        roles, host_environment = self.roles, self._host_environment
        credentials = host_environment.credentials
        if roles.joins:
            credentials = replace(credentials, hub=HUB_TOKEN)
        security = (
            SecurityOptions(certify=certifier(self.unix_s)) if roles.members else SecurityOptions()
        )
        drivers = {
            plane: host_environment.providers[plane].driver()
            for plane in roles.serves
            if plane in host_environment.providers
        }
        if roles.publishes:
            elapsed_s = host_environment.loop.time
            self.traffic = SimulatedTraffic(
                drivers, host_environment.providers, self.unix_s, elapsed_s
            )
        return Platform(
            PlaneLayout(
                tuple(p for p in roles.serves if plane_role(p) == "project"),
                self.traffic.drivers if self.traffic is not None else drivers,
                center=roles.center,
                elsewhere=roles.remote_planes,
                limits=host_environment.limits,
            ),
            environment,
            DiskJournal(self.disk, host_environment.on_commit, self.crash),
            credentials,
            PlatformOptions(
                control=ControllerOptions(
                    roles.controllers,
                    self._client_of_cell if roles.joins else self._client,
                    self.traffic,
                    project_scope=project_label_scope(roles.joins) if roles.joins else None,
                    cell_members=cell_member_options(self._reach) if roles.members else None,
                ),
                security=security,
            ),
        )

    def _client(self, plane: PlaneName) -> Client:
        token = self._host_environment.credentials.manager
        return Client(
            self._reach(plane), prefix=path_prefix(plane), token=token, agent=MANAGER_AGENT
        )

    def _client_of_cell(self, plane: PlaneName) -> Client:
        """Return the client of a joined cell. It reaches other planes with its certificate."""
        if plane in self.roles.serves:
            return self._client(plane)
        return client_with_certificate(plane, self._reach, lambda: self.certificate)

    def _reach(self, plane: PlaneName) -> Transport:
        return self._host_environment.reach(self.name, plane, lambda link: link)

    def _build_environment(self) -> ProcessEnvironment:
        return ProcessEnvironment(
            unix_s=self.unix_s,
            new_uid=self._new_uid,
            new_suffix=lambda: f"{self._next_id() % 100000:05d}",
            random=Random(self._ids.getrandbits(64)),  # noqa: S311 - reproducible on purpose
            elapsed_s=self._host_environment.loop.time,
        )

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8{self._number:03d}-{self._next_id():012d}"

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def continue_ids(self, last_id: int) -> None:
        """Continue with the next id, after rows that were created elsewhere."""
        self._last_id = last_id

    @property
    def last_id(self) -> int:
        return self._last_id


@dataclass(frozen=True, slots=True)
class ServingProcess:
    platform: Platform
    components: Sequence[RunComponent] = ()

    async def dispatch(self, request: Request) -> Response:
        return await self.platform.dispatch(request)

    async def run(self) -> None:
        await self.platform.load()
        if not self.components:
            await self.platform.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self.platform.run())
            await self.platform.ready.wait()
            for run in self.components:
                group.create_task(_run_component(run))

    def is_ready(self) -> bool:
        return self.platform.ready.is_set()


@dataclass(frozen=True, slots=True)
class ManagingProcess:
    """Controllers without planes, as in ``compute-manager``."""

    roles: HostRoles
    host_environment: HostEnvironment
    environment: ProcessEnvironment
    reach: Callable[[PlaneName], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"{self.roles.name} serves no plane: {request.path}")

    async def run(self) -> None:
        roles, single = self.roles, self.roles.single_project
        providers = self.host_environment.providers if single else {}
        drivers = {plane: provider.driver() for plane, provider in providers.items()}
        manager = build_manager(
            roles.controllers,
            drivers,
            self.environment,
            options=ManagerOptions(single_project=single, reach=None if single else self._client),
        )
        clients = {plane: await self._client(plane) for plane in roles.remote_planes}
        engage_configured_planes(manager, clients, roles.controllers)
        await manager.run()

    async def _client(self, plane: PlaneName) -> Client:
        return Client(
            self.reach(plane),
            prefix=path_prefix(PLATFORM if self.roles.single_project else plane),
            token=self.host_environment.credentials.manager,
            agent=MANAGER_AGENT,
        )

    def is_ready(self) -> bool:
        return True


async def _run_component(run: RunComponent) -> None:
    await run()


def credentials_of(planes: Sequence[PlaneName]) -> PlaneTokens:
    return PlaneTokens(MANAGER_TOKEN, {plane: f"token-of-{plane}" for plane in planes})


def roles_of(layout: WorldLayout) -> list[HostRoles]:
    """Return the roles of all hosts: one process; or a center, managers and cells."""
    cells = tuple(cell_plane(cell) for cell in layout.all_cells)
    central = tuple(plane for plane in layout.planes if plane not in cells)
    if layout.processes == "one":
        everything = (*EVERYTHING, *_publishing_controllers(layout))
        return [HostRoles("all", layout.planes, True, everything, (), publishes=layout.published)]
    cell_controllers = tuple(c for c in registry.CLUSTER if c.role == "cell")
    center_controllers = tuple(c for c in registry.CLUSTER if c.role != "cell")
    center_controllers += registry.PROJECT_MEMBERSHIP
    managing = (*registry.MANAGEMENT, *registry.HUB)
    if layout.processes == "managers":
        hosts = [
            HostRoles(CENTER, central, True, center_controllers, cells),
            *(
                _manager_roles(layout, name, (*managing, *registry.PROJECT_MEMBERSHIP))
                for name in managers_of(layout)
            ),
        ]
    else:
        remote_planes = () if layout.joined else cells
        controllers = (*managing, *center_controllers)
        hosts = [
            HostRoles(CENTER, central, True, controllers, remote_planes, members=layout.joined)
        ]
    if layout.joined:
        return [*hosts, *(_joining_cell_roles(layout, cell) for cell in layout.all_cells)]
    for cell in layout.cells:
        controllers = (
            *registry.CELL,
            *cell_controllers,
            *registry.HUB_NAMESPACE_MEMBERSHIP,
            *_publishing_controllers(layout),
        )
        name = host_of_cell(layout, cell)
        # The projects contain the quota claims of the cell's instances.
        remote_planes = (HUB, *map(project_plane, layout.projects))
        own_planes = (cell_plane(cell),)
        hosts.append(
            HostRoles(
                name, own_planes, False, controllers, remote_planes, publishes=layout.published
            )
        )
    return hosts


def _joining_cell_roles(layout: WorldLayout, cell: str) -> HostRoles:
    name, plane = host_of_cell(layout, cell), cell_plane(cell)
    controllers = (*registry.CELL_PROCESS, *_publishing_controllers(layout))
    return HostRoles(name, (plane,), False, controllers, (), joins=cell, publishes=layout.published)


def _publishing_controllers(layout: WorldLayout) -> tuple[Controller[Context], ...]:
    return registry.PUBLISHING if layout.published else ()


def _manager_roles(
    layout: WorldLayout, name: str, controllers: tuple[Controller[Context], ...]
) -> HostRoles:
    return HostRoles(name, (), False, controllers, layout.planes, elects_leader=layout.managers > 1)


_WIPE_DOWN_S = 2.0
_START_S = 0.1


@dataclass(slots=True)
class CellMachines:
    hosts: Mapping[str, SimulatedHost]
    providers: Mapping[PlaneName, Provider]
    drop_plane: Callable[[str], None]
    client: Callable[[PlaneName, str], Client]
    wiped: dict[str, int] = field(default_factory=dict)

    def wipe_count(self, cell: str) -> int:
        return self.wiped.get(cell, 0)

    def store_certificate(self, cell: str, certificate: str) -> None:
        """Store the certificate. Start the process of the cell if it was not a member before."""
        host = self._host(cell)
        is_first, host.certificate = not host.certificate, certificate
        if is_first:
            host.crash(down_s=_START_S)

    def wipe(self, cell: str) -> None:
        host, plane = self._host(cell), cell_plane(cell)
        self.wiped[cell] = self.wipe_count(cell) + 1
        host.crash(down_s=_WIPE_DOWN_S)
        host.disk.journal = MemoryJournal()
        host.certificate = ""
        self.drop_plane(plane)
        self.providers[plane].machines.clear()

    def joining_client(self, token: str) -> Client:
        return self.client(HUB, token)

    def _host(self, cell: str) -> SimulatedHost:
        return self.hosts[f"cell-{cell}"]
