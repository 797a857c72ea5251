"""The whole platform on one simulated host, without a scenario: for short tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, path_prefix
from datum_compute.app.platform import EVERYTHING
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.store.journal import Change, Entry
from testkit.sim.disk import Disk
from testkit.sim.host import EPOCH_S, HostEnvironment, HostRoles, SimulatedHost, credentials_of
from testkit.sim.loop import VirtualLoop
from testkit.sim.network import WrapTransport
from testkit.sim.provider import Provider


@dataclass(frozen=True, slots=True)
class HostTransport:
    answer: Callable[[Request], Awaitable[Response]]

    async def send(self, request: Request) -> Response:
        return await self.answer(request)


@dataclass(frozen=True, slots=True)
class SingleHost:
    """One host with the providers of its cells. Records every row that the host writes, and which
    planes its controllers cannot reach."""

    host: SimulatedHost
    providers: dict[PlaneName, Provider]
    writes: list[Change] = field(default_factory=list)
    silent: set[PlaneName] = field(default_factory=set)

    def client(self, plane: PlaneName) -> Client:
        """Return a client of a user, with the token of the plane."""
        return Client(
            HostTransport(self.host.answer),
            prefix=path_prefix(plane),
            token=f"token-of-{plane}",
            agent="simulated-user",
        )

    def operator(self, plane: PlaneName) -> Client:
        """Return a client that may change grants, claims and records, which users may only read."""
        transport = HostTransport(self.host.answer_operator)
        return Client(transport, prefix=path_prefix(plane), token="", agent="operator")


@dataclass(frozen=True, slots=True)
class CrashAt:
    """Crash at this commit, counted over all processes of the host."""

    disk: Disk
    commit: int
    durable: bool

    def __call__(self, _batch: Sequence[Entry], durable: bool) -> bool:
        return (self.disk.commits, durable) == (self.commit, self.durable)


def single_host(
    loop: VirtualLoop,
    *,
    projects: tuple[PlaneName, ...],
    cells: tuple[PlaneName, ...],
    boot_s: float = 0.2,
    controllers: tuple[Controller[Context], ...] = EVERYTHING,
) -> SingleHost:
    planes = (PLATFORM, *projects, HUB, *cells)
    writes: list[Change] = []
    providers = {cell: Provider(lambda: EPOCH_S + loop.time(), boot_s=boot_s) for cell in cells}

    def record_writes(_number: int, batch: Sequence[Entry]) -> None:
        writes.extend(entry for entry in batch if isinstance(entry, Change))

    silent: set[PlaneName] = set()

    def reach(_source: str, plane: PlaneName, _wrap: WrapTransport) -> Transport:
        async def answer(request: Request) -> Response:
            if plane in silent:
                raise Unreachable(f"{plane} does not respond")
            return await host.answer(request)

        return HostTransport(answer)

    def raise_exit_error(_name: str, error: BaseException) -> None:
        raise error

    host_environment = HostEnvironment(
        loop=loop,
        credentials=credentials_of(planes),
        providers=providers,
        reach=reach,
        on_commit=record_writes,
        on_crash=lambda _name: None,
        on_exit=raise_exit_error,
        on_answer=lambda _request, _response: None,
    )
    roles = HostRoles("all", planes, True, controllers, ())
    host = SimulatedHost(roles, host_environment, Disk(Random(1)), Random(1), 0)  # noqa: S311
    return SingleHost(host, providers, writes, silent)
