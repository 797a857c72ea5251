"""One simulated machine: a process of the platform that can die at any moment and starts again.

What survives a death is what a real machine would keep: the committed rows of its disk. The
machines of a cell live with its provider. Everything else is gone without a farewell.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.plane import PLATFORM, PlaneName, path_prefix
from datum_compute.api.quotametrics import DEFAULT_LIMITS
from datum_compute.app.credentials import Credentials
from datum_compute.app.ports import Ports
from datum_compute.app.wiring import BOOTSTRAP, MANAGER_AGENT, Layout, Platform, build_manager
from datum_compute.client.client import Client
from datum_compute.client.transport import Transport
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.testing.disk import CommitHook, Disk, DiskJournal
from datum_compute.testing.network import TIMEOUT_S
from datum_compute.testing.provider import Provider
from datum_compute.testing.virtual_loop import HOST, VirtualLoop

RESTART_S = 2.0
EPOCH_S = 1_700_000_000.0

MANAGER_TOKEN = "token-of-manager"  # noqa: S105 - also a canary: it must turn up nowhere


@dataclass(frozen=True, slots=True)
class Duties:
    """What a host runs: the planes it serves, the controllers, the planes it works on elsewhere."""

    name: str
    serves: tuple[PlaneName, ...]
    centre: bool
    controllers: tuple[Controller[Context], ...]
    elsewhere: tuple[PlaneName, ...]
    # With the name of the only project, all planes elsewhere are one API server, and the machines
    # of its cell are this host's to drive.
    single_project: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all hosts of a world share."""

    loop: VirtualLoop
    credentials: Credentials
    providers: Mapping[PlaneName, Provider]
    reach: Callable[[str, PlaneName], Transport]
    on_commit: CommitHook
    on_death: Callable[[str], None]
    on_exit: Callable[[str, BaseException], None]
    on_answer: Callable[[Request, Response], None]
    limits: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LIMITS)


class Process(Protocol):
    """One life of a host."""

    async def dispatch(self, request: Request) -> Response: ...

    async def run(self) -> None: ...

    def is_ready(self) -> bool: ...


class SimulatedHost:
    def __init__(
        self, duties: Duties, around: Surroundings, disk: Disk, ids: Random, number: int
    ) -> None:
        self.duties = duties
        self.disk = disk
        self.lives = 0
        self.crashed = 0
        self.skew_s = 0.0
        self._around = around
        self._ids = ids
        self._number = number
        self._made = 0
        self._unanswered: dict[asyncio.Future[Response], None] = {}
        self._process: Process | None = None
        self._context = contextvars.Context()

    @property
    def name(self) -> str:
        return self.duties.name

    @property
    def life(self) -> str:
        return f"{self.name}#{self.lives}"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_ready()

    def unix_s(self) -> float:
        """What this host believes."""
        return EPOCH_S + self._around.loop.time() + self.skew_s

    # --- life and death

    def start(self) -> None:
        if self._process is not None:
            return
        self.lives += 1
        self._context = contextvars.Context()
        self._context.run(HOST.set, self.life)
        self._process = self._built()
        self.spawn(self._live(self._process))

    def crash(self, *, down_s: float = RESTART_S) -> None:
        """Die now; somebody switches the machine on again a little later."""
        if self._process is None:
            return
        self.crashed += 1
        self._around.loop.kill(self.life)
        self._gone()
        if down_s != float("inf"):
            self._around.loop.call_later(down_s, self.start, context=contextvars.Context())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in this life of the host, to die with it."""
        context = self._context.copy()
        self._around.loop.create_task(work, context=context)

    async def _live(self, process: Process) -> None:
        try:
            await process.run()
        except Exception as error:
            self._around.on_exit(self.name, error)
        self._around.loop.call_soon(self.crash, context=contextvars.Context())

    def _gone(self) -> None:
        self._process = None
        unanswered, self._unanswered = self._unanswered, {}
        for future in unanswered:
            if not future.done():
                future.set_exception(Unreachable("the host died before it answered"))
        self._around.on_death(self.name)

    # --- serving

    def forget_history(self) -> None:
        """Compact everything: open watches end, and resuming them is answered with 410."""
        if isinstance(self._process, ServingProcess):
            store = self._process.platform.store
            for plane in store.planes():
                for resource in store.resources(plane):
                    store.forget(plane, resource)

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
        """Somebody who may do everything, from inside the machine."""
        process = self._process
        if not isinstance(process, ServingProcess) or not process.is_ready():
            raise Unreachable(f"{self.name} is down")
        return await process.platform.server.dispatch_as(BOOTSTRAP, request)

    async def _answer_another(self, process: Process, request: Request) -> Response:
        """In a task of this host, which goes on when the asker leaves, and ends when we die."""
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
        if self.duties.serves:
            return ServingProcess(self._platform())
        return ManagingProcess(self.duties, self._around, self._ports(), self._reach)

    def _platform(self) -> Platform:
        duties, around = self.duties, self._around
        drivers = {
            plane: around.providers[plane].driver()
            for plane in duties.serves
            if plane in around.providers
        }
        return Platform(
            Layout(
                tuple(p for p in duties.serves if p.startswith("project/")),
                drivers,
                centre=duties.centre,
                elsewhere=duties.elsewhere,
                limits=around.limits,
            ),
            self._ports(),
            DiskJournal(self.disk, around.on_commit, self.crash),
            around.credentials,
            controllers=duties.controllers,
            reach=self._reach,
        )

    def _reach(self, plane: PlaneName) -> Transport:
        return self._around.reach(self.name, plane)

    def _ports(self) -> Ports:
        return Ports(
            unix_s=self.unix_s,
            new_uid=self._new_uid,
            new_suffix=lambda: f"{self._next_id() % 100000:05d}",
            random=Random(self._ids.getrandbits(64)),  # noqa: S311 - reproducible on purpose
        )

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8{self._number:03d}-{self._next_id():012d}"

    def _next_id(self) -> int:
        self._made += 1
        return self._made

    def continue_ids(self, made: int) -> None:
        """After rows that were made elsewhere with ids up to this one."""
        self._made = made

    @property
    def ids_made(self) -> int:
        return self._made


@dataclass(frozen=True, slots=True)
class ServingProcess:
    platform: Platform

    async def dispatch(self, request: Request) -> Response:
        return await self.platform.dispatch(request)

    async def run(self) -> None:
        await self.platform.load()
        await self.platform.run()

    def is_ready(self) -> bool:
        return self.platform.ready.is_set()


@dataclass(frozen=True, slots=True)
class ManagingProcess:
    """Controllers without planes, as ``compute-manager`` runs them."""

    duties: Duties
    around: Surroundings
    ports: Ports
    reach: Callable[[PlaneName], Transport]

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"{self.duties.name} serves nothing: {request.path}")

    async def run(self) -> None:
        duties, single = self.duties, self.duties.single_project
        providers = self.around.providers if single else {}
        drivers = {plane: provider.driver() for plane, provider in providers.items()}
        manager = build_manager(duties.controllers, drivers, self.ports, single_project=single)
        for plane in duties.elsewhere:
            client = Client(
                self.reach(plane),
                prefix=path_prefix(PLATFORM if single else plane),
                token=self.around.credentials.manager,
                agent=MANAGER_AGENT,
            )
            manager.engage(plane, client)
        await manager.run()

    def is_ready(self) -> bool:
        return True


def credentials_of(planes: Sequence[PlaneName]) -> Credentials:
    return Credentials(MANAGER_TOKEN, {plane: f"token-of-{plane}" for plane in planes})
