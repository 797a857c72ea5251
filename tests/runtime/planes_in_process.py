"""A real store and API server for runtime tests, in process and in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from datum_compute.api.core import Namespace
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.server.access.authentication import EVERY_PLANE, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.journal import MemoryJournal
from datum_compute.store.store import Store
from testkit.sim.loop import VirtualLoop, run_virtual

R = TypeVar("R")

Intercept = Callable[[Request], Awaitable[Response | None]]
Afterwards = Callable[[Request, Response], Awaitable[Response]]


class InProcessPlanes:
    """The planes of one test.

    ``intercept`` may answer, delay or fail a request before the server receives it. ``afterwards``
    may change, delay or drop the response of the server.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.store = Store(MemoryJournal(), watch_window=20)
        self.intercept: Intercept | None = None
        self.afterwards: Afterwards | None = None
        self._ids = 0
        users = {"token": User("test", ("system:masters",), frozenset({EVERY_PLANE}))}
        self.server = ApiServer(
            self.store,
            ServerEnvironment(loop.time, self._next_id, self._next_id),
            AuthenticationOptions(StaticTokens(users)),
        )
        self._task = loop.create_task(self.store.run())

    async def create(self, plane: PlaneName = HUB) -> Client:
        await self.store.create_plane(plane)
        return self.client(plane)

    def client(self, plane: PlaneName = HUB) -> Client:
        transport = InProcessTransport(self._dispatch)
        return Client(transport, prefix=path_prefix(plane), token="token", agent="test")

    async def _dispatch(self, request: Request) -> Response:
        if self.intercept is not None:
            response = await self.intercept(request)
            if response is not None:
                return response
        response = await self.server.dispatch(request)
        return response if self.afterwards is None else await self.afterwards(request, response)

    def _next_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"


def with_planes(test: Callable[[VirtualLoop, InProcessPlanes], Coroutine[Any, Any, R]]) -> R:
    """Run a test in virtual time."""

    async def main(loop: VirtualLoop) -> R:
        return await test(loop, InProcessPlanes(loop))

    return run_virtual(Random(1), main)


def a_namespace(name: str, **labels: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))
