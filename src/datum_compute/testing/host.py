"""One simulated machine that runs the whole platform, can die at any commit, and starts again.

What survives a crash is what a real machine would keep: the committed rows of its journal and
the machines its driver runs. Everything else is gone without a farewell.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.plane import PlaneName, path_prefix
from datum_compute.app.credentials import Credentials
from datum_compute.app.ports import Ports
from datum_compute.app.wiring import EVERYTHING, Layout, Platform
from datum_compute.client.client import Client
from datum_compute.controllers.context import Context
from datum_compute.drivers.simulated import Machine, SimulatedDriver
from datum_compute.runtime.controller import Controller
from datum_compute.store.journal import Entry, LoadedPlane
from datum_compute.store.memory import MemoryJournal
from datum_compute.testing.virtual_loop import HOST, VirtualLoop

RESTART_S = 2.0

CommitHook = Callable[[int, Sequence[Entry]], None]


@dataclass(frozen=True, slots=True)
class Crash:
    """The host dies around its n-th commit: before it is durable, or right after."""

    commit: int
    durable: bool


@dataclass(slots=True)
class Disk:
    """What the host keeps: rows, machines, and how often it has committed."""

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    machines: dict[PlaneName, dict[str, Machine]] = field(default_factory=dict)
    commits: int = 0


class SimulatedHost:
    def __init__(
        self,
        loop: VirtualLoop,
        random: Random,
        *,
        projects: Sequence[PlaneName],
        cells: Sequence[PlaneName],
        crashes: Sequence[Crash],
        on_commit: CommitHook,
        boot_s: float = 0.2,
        stop_s: float = 0.1,
        controllers: Sequence[Controller[Context]] = EVERYTHING,
    ) -> None:
        self.disk = Disk(machines={cell: {} for cell in cells})
        self.crashed = 0
        self._loop = loop
        self._random = random
        self._projects = tuple(projects)
        self._crashes = set(crashes)
        self._on_commit = on_commit
        self._boot_s, self._stop_s = boot_s, stop_s
        self._controllers = controllers
        self._life = 0
        self._ids = 0
        self._down = asyncio.Event()
        self._platform: Platform | None = None
        tokens = {plane: f"token-of-{plane}" for plane in (*projects, *cells, "hub", "platform")}
        self._credentials = Credentials("token-of-manager", dict(tokens))  # type: ignore[arg-type]

    def unix_s(self) -> float:
        return 1_700_000_000.0 + self._loop.time()

    def start(self) -> None:
        self._life += 1
        self._down = asyncio.Event()
        context = contextvars.copy_context()
        context.run(HOST.set, self._host_name)
        self._loop.create_task(self._boot(), context=context)

    def crash(self) -> None:
        """Die now; somebody switches the machine on again a little later."""
        self.crashed += 1
        self._loop.kill(self._host_name)
        self._platform = None
        self._down.set()
        self._loop.call_later(RESTART_S, self.start, context=contextvars.Context())

    def client(self, plane: PlaneName) -> Client:
        """A user's client: the host may die between request and answer."""
        return Client(
            HostTransport(self),
            prefix=path_prefix(plane),
            token=self._credentials.planes[plane],
            agent="simulated-user",
        )

    async def answer(self, request: Request) -> Response:
        platform, down = self._platform, self._down
        if platform is None or not platform.ready.is_set():
            raise Unreachable("the host is down")
        context = contextvars.copy_context()
        context.run(HOST.set, self._host_name)
        answering = self._loop.create_task(platform.dispatch(request), context=context)
        dying = self._loop.create_task(down.wait())
        await asyncio.wait((answering, dying), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise Unreachable("the host died before it answered")
        dying.cancel()
        return answering.result()

    async def commit(self, batch: Sequence[Entry]) -> None:
        """One durable commit, and the moments around it at which the host may die."""
        await asyncio.sleep(self._random.uniform(0.0005, 0.004))
        self.disk.commits += 1
        number = self.disk.commits
        if Crash(number, durable=False) in self._crashes:
            await self._die()
        await self.disk.journal.append(batch)
        self._on_commit(number, batch)
        if Crash(number, durable=True) in self._crashes:
            await self._die()

    async def _die(self) -> None:
        self.crash()
        await self._loop.create_future()  # never: this host has no future

    async def _boot(self) -> None:
        drivers = {
            cell: SimulatedDriver(table, now=self.unix_s, boot_s=self._boot_s, stop_s=self._stop_s)
            for cell, table in self.disk.machines.items()
        }
        platform = Platform(
            Layout(self._projects, drivers),
            self._ports(),
            HostJournal(self),
            self._credentials,
            controllers=self._controllers,
        )
        self._platform = platform
        await platform.load()
        await platform.run()

    def _ports(self) -> Ports:
        return Ports(
            unix_s=self.unix_s,
            new_uid=lambda: f"00000000-0000-4000-8000-{self._next_id():012d}",
            new_suffix=lambda: f"{self._next_id() % 100000:05d}",
            random=Random(self._random.getrandbits(64)),  # noqa: S311 - reproducible on purpose
        )

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    @property
    def _host_name(self) -> str:
        return f"host-{self._life}"


@dataclass(frozen=True, slots=True)
class HostTransport:
    host: SimulatedHost

    async def send(self, request: Request) -> Response:
        return await self.host.answer(request)


@dataclass(frozen=True, slots=True)
class HostJournal:
    """The journal of one life of the host, on the disk that all its lives share."""

    host: SimulatedHost

    async def load(self) -> dict[str, LoadedPlane]:
        return await self.host.disk.journal.load()

    async def append(self, batch: Sequence[Entry]) -> None:
        await self.host.commit(batch)

    async def close(self) -> None:
        return None
