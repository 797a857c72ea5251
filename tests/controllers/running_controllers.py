"""Controllers that run against real planes, in process and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import msgspec

from datum_compute.api.meta.objects import ApiObject, KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.app.controllers import (
    ManagerOptions,
    ManagerTelemetry,
    ServedPlanes,
    build_manager,
)
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.controllers.context import Context
from datum_compute.drivers.driver import Driver
from datum_compute.planes.planes import Planes
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.event_recorder import EventRequest
from datum_compute.runtime.informer import ObjectChange
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes

NOW_S = 1_000_000.0

T = TypeVar("T", bound=ApiObject)


class Clock:
    """The time of day of a host."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew_s = 0.0

    def unix_s(self) -> float:
        return NOW_S + self._loop.time() + self.skew_s


@asynccontextmanager
async def running(
    controllers: Controller[Context] | Iterable[Controller[Context]],
    loop: VirtualLoop,
    planes: InProcessPlanes,
    *engaged: PlaneName,
    drivers: Mapping[PlaneName, Driver] | None = None,
    events: list[EventRequest] | None = None,
    options: ManagerOptions = ManagerOptions(),  # noqa: B008 - immutable
    served: ServedPlanes | None = None,
) -> AsyncIterator[Clock]:
    """Run the controllers. ``events`` collects the events that they record."""
    clock = Clock(loop)
    environment = ProcessEnvironment(
        clock.unix_s, lambda: "uid", lambda: "suffix", Random(1), loop.time
    )
    recorded = events if events is not None else []
    manager = build_manager(
        [controllers] if isinstance(controllers, Controller) else list(controllers),
        drivers or {},
        environment,
        served=served or ServedPlanes(planes.server.inventory, "CERTIFICATE"),
        telemetry=ManagerTelemetry(recorded.append),
        options=options,
    )
    for plane in engaged:
        manager.engage(plane, planes.client(plane))
    task = loop.create_task(manager.run())
    yield clock
    task.cancel()
    await asyncio.wait([task])


def as_new(obj: T, **metadata: Any) -> T:
    """Return the object without the fields that the API server sets, with other metadata."""
    empty = {"uid": "", "resource_version": "", "generation": 0}
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, **{**empty, **metadata})
    )


def is_reconciled(
    controller: Controller[Context], kind: KindInfo[Any], old: ApiObject, new: ApiObject
) -> bool:
    """Return True if the filters of the controller pass an update."""
    edges = (edge for edge in controller.edges if edge.kind is kind and edge.enqueues)
    return any(edge.matches(ObjectChange(old, new)) for edge in edges)


async def a_synced_view(
    loop: VirtualLoop,
    planes: InProcessPlanes,
    plane: PlaneName,
    *kinds: KindInfo[Any],
    indexes: Iterable[Index[Any]] = (),
) -> CachedClient:
    """Return a cached client of the plane after the first list of each kind."""
    view = CachedClient(plane, planes.client(plane), Random(1))
    for index in indexes:
        view.declare(index.kind).cache.add_index(index)
    for kind in kinds:
        informer = view.declare(kind)
        loop.create_task(informer.run())
        await informer.first_sync.wait()
    return view


def a_context(loop: VirtualLoop, planes: InProcessPlanes, *views: CachedClient) -> Context:
    """Return the context of a process that is engaged with the planes of these views."""
    by_plane = {view.plane: view for view in views}
    return Context(
        planes=Planes(by_plane.get, lambda: tuple(by_plane)),
        drivers={},
        unix_s=Clock(loop).unix_s,
        elapsed_s=loop.time,
        holdings=planes.server.inventory,
        authority="",
    )
