"""Runs controllers over planes that come and go.

``engage`` starts the informers a plane needs and feeds the queues of the controllers for it;
``disengage`` stops them at once. Keys of a plane that is not engaged are dropped, never retried. A
plane may be engaged without being entitled: then controllers that are for entitled planes only do
not see it.

``stop`` lets the reconciles that run come to their end, for STOP_S, and gives up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from random import Random
from typing import Generic, TypeVar

from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.client.backoff import Backoff
from datum_compute.client.client import Client
from datum_compute.runtime.cached_client import CachedClient, LabelScope, noop
from datum_compute.runtime.controller import Controller, Key, namespace_of
from datum_compute.runtime.debounce import Bustle
from datum_compute.runtime.event_mapping import AmbiguityReporter, Feed, MappingAudit
from datum_compute.runtime.metrics import RuntimeMetrics, gauges_of
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.worker import WorkerPool

C = TypeVar("C")

STOP_S = 4.0
# For those that have been cancelled and are asked to leave.
CANCEL_S = 0.5

_RESTART = Backoff(first_s=0.5, most_s=60.0)

_log = logging.getLogger(__name__)


class Manager(Generic[C]):
    """``report`` is told of changes that lead to no key, or to several, where exactly one is
    expected; ``fence`` is asked before every write."""

    def __init__(
        self,
        controllers: Sequence[Controller[C]],
        context: Callable[[Manager[C]], C],
        random: Random,
        *,
        metrics: RuntimeMetrics | None = None,
        report: AmbiguityReporter | None = None,
        fence: Callable[[], None] = noop,
    ) -> None:
        names = [controller.name for controller in controllers]
        assert len(set(names)) == len(names), f"controllers with one name: {sorted(names)}"
        self._controllers = controllers
        self._random = random
        self._fence = fence
        self._views: dict[PlaneName, CachedClient] = {}
        # Without those that are not entitled: all that some controllers see.
        self._entitled: dict[PlaneName, CachedClient] = {}
        self._tasks: dict[PlaneName, list[asyncio.Task[None]]] = {}
        # What wakes from outside is not ours, and need not end when it is asked to: nobody waits
        # for it beyond CANCEL_S.
        self._pumps: dict[asyncio.Task[None], PlaneName] = {}
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._context = context(self)
        self._bustle = Bustle()
        self._queues: dict[str, WorkQueue] = {}
        self._feeds: dict[str, Feed[C]] = {}
        self._workers: dict[str, WorkerPool[C]] = {}
        reverse_map = MappingAudit(metrics, report)
        for controller in controllers:
            self._add(controller, metrics, reverse_map)
        if metrics is not None:
            metrics.register_gauges(gauges_of(self._queues, self._views))

    def cached_client(self, plane: PlaneName) -> CachedClient | None:
        """The plane if it is engaged."""
        return self._views.get(plane)

    def engaged(self) -> list[PlaneName]:
        return sorted(self._views)

    def is_entitled(self, plane: PlaneName) -> bool:
        """Whether every controller sees the plane."""
        return plane in self._entitled

    @property
    def uses_entitlement(self) -> bool:
        """Whether it makes a difference here."""
        return any(controller.entitled_only for controller in self._controllers)

    async def run(self) -> None:
        """Work until stopped or cancelled; planes may be engaged before or while it runs."""
        finished = False
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for plane in self.engaged():
                    self._start(self._views[plane], late=False)
                for workers in self._workers.values():
                    workers.start()
                running = [group.create_task(feed.refill()) for feed in self._feeds.values()]
                await self._stopping.wait()
                self._cancel_pumps(self._views)
                await self._finish(STOP_S)
                finished = True
                for task in (*running, *(t for tasks in self._tasks.values() for t in tasks)):
                    task.cancel()
        finally:
            self._group = None
            self._cancel_pumps(self._views)
            for view in self._views.values():
                view.close()
            if not finished:
                await self._finish(0.0)
            if self._pumps:
                await asyncio.wait(self._pumps, timeout=CANCEL_S / 2)
            for task in [pump for pump in self._pumps if not pump.done()]:
                _log.error("%s does not end though it was cancelled; it is left alone", task)
            self._stopped.set()

    async def stop(self) -> None:
        """End ``run``, in less than five seconds, whatever the reconciles do."""
        self._stopping.set()
        if self._group is not None:
            await self._stopped.wait()

    async def wait_for_sync(self, planes: Iterable[PlaneName] | None = None) -> None:
        """Wait until each of these planes, or every engaged one, has answered for every kind:
        with a whole list, or that it does not serve it."""
        for plane in self.engaged() if planes is None else planes:
            answered: CachedClient | None = None
            while (view := self._views.get(plane)) is not None and view is not answered:
                for informer in view.informers():
                    await informer.answered.wait()
                answered = view

    # --- membership

    def engage(
        self,
        plane: PlaneName,
        client: Client,
        scope: LabelScope | None = None,
        *,
        entitled: bool = True,
    ) -> None:
        """With ``scope`` only the objects that bear its labels are seen. A plane that is not
        ``entitled`` is worked on only by controllers of every plane."""
        assert plane, "the empty name is no plane"
        assert plane not in self._views, f"{plane} is engaged already"
        plane_role(plane)  # refuses what names no plane, before anything knows of it
        successor = partial(self.cached_client, plane)
        view = CachedClient(
            plane, client, self._random, fence=self._fence, scope=scope, successor=successor
        )
        self._views[plane] = view
        if entitled:
            self._entitled[plane] = view
        for controller in self._controllers:
            if plane in self._seen_by(controller):
                self._feeds[controller.name].attach(view)
        if self._group is not None:
            self._start(view, late=True)

    def disengage(self, plane: PlaneName) -> None:
        view = self._views.pop(plane, None)
        self._entitled.pop(plane, None)
        if view is not None:
            view.close()
            for informer in view.informers():
                informer.answered.set()  # nobody waits for it any more
        for task in self._tasks.pop(plane, []):
            task.cancel()
        self._cancel_pumps((plane,))
        for queue in self._queues.values():
            queue.drop(plane)
        for workers in self._workers.values():
            workers.drop(plane)

    def _seen_by(self, controller: Controller[C]) -> dict[PlaneName, CachedClient]:
        return self._entitled if controller.entitled_only else self._views

    # --- tasks

    def _add(
        self,
        controller: Controller[C],
        metrics: RuntimeMetrics | None,
        reverse_map: MappingAudit,
    ) -> None:
        own = metrics.of(controller.name) if metrics is not None else None
        queue = WorkQueue(
            self._random,
            Backoff(),
            share=controller.workers,
            lane_of=controller.lane,
            flow_of=_flow_by_index(controller, self._seen_by(controller)),
            lane_max=controller.lane_max,
            bustle=self._bustle,
        )
        if own is not None:
            queue.on_pop = own.wait_seconds.observe
        name = controller.name
        self._queues[name] = queue
        seen = self._seen_by(controller)
        self._feeds[name] = Feed(controller, queue, seen, reverse_map, own)
        self._workers[name] = WorkerPool(
            controller, queue, self._context, seen.get, self._random, own
        )

    def _start(self, view: CachedClient, *, late: bool) -> None:
        assert self._group is not None
        plane, role = view.plane, plane_role(view.plane)
        tasks = [
            self._group.create_task(self._kept_up(f"{informer.kind.kind} on {plane}", informer.run))
            for informer in view.informers()
        ]
        for controller in self._controllers:
            if plane not in self._seen_by(controller):
                continue
            if controller.role != role:
                if late and controller.edges_on(role):
                    # Whoever looked for the plane before has not found it, and may wait for long.
                    again = self._feeds[controller.name].replay(lambda _key: True)
                    tasks.append(self._group.create_task(again))
                continue
            for source in controller.external_sources:
                pump = partial(self._pump, controller, source, view)
                name = f"what wakes {controller.name} on {plane}"
                pumping = asyncio.get_running_loop().create_task(self._kept_up(name, pump))
                self._pumps[pumping] = plane
                pumping.add_done_callback(self._pumps.pop)
            if any(edge.on not in ("", role) for edge in controller.edges):
                # What other planes hold for this one was dropped until now.
                feed = self._feeds[controller.name]
                replay = feed.replay(lambda key: key.plane == plane)
                tasks.append(self._group.create_task(replay))
        self._tasks[plane] = tasks

    def _cancel_pumps(self, planes: Container[PlaneName]) -> None:
        for task, plane in self._pumps.items():
            if plane in planes:
                task.cancel()

    async def _pump(
        self,
        controller: Controller[C],
        source: Callable[[C, CachedClient], AsyncIterator[Key]],
        view: CachedClient,
    ) -> None:
        queue = self._queues[controller.name]
        async for key in source(self._context, view):
            await queue.room(key)
            queue.add(key)

    async def _kept_up(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong in one of the many does not end the others; it begins anew."""
        failures = 0
        while True:
            try:
                return await run()
            except Exception:
                failures += 1
                delay_s = _RESTART.delay_s(failures, self._random)
                _log.exception("%s failed; again in %.1f s", what, delay_s)
                await asyncio.sleep(delay_s)

    async def _finish(self, patience_s: float) -> None:
        """Hand out nothing any more, and wait for what runs; give up what does not end."""
        for queue in self._queues.values():
            queue.close()
        for wait_s in (patience_s, CANCEL_S):
            busy = [task for workers in self._workers.values() for task in workers.busy()]
            if busy and wait_s:
                await asyncio.wait(busy, timeout=wait_s)
            for task in busy:
                task.cancel()
        for workers in self._workers.values():
            for task in workers.busy():
                _log.error("%s does not end though it was cancelled; it is left alone", task)


def _flow_by_index(
    controller: Controller[C], views: Mapping[PlaneName, CachedClient]
) -> Callable[[Key], str]:
    """Return a function for the flow of a key: its value in the flow index, else its namespace."""
    kind, index = controller.kind, controller.flow_index
    if not index:
        return namespace_of
    assert kind is not None, f"{controller.name} has a flow index but no kind"

    def flow_of(key: Key) -> str:
        view = views.get(key.plane)
        informer = view.informer(kind) if view is not None else None
        entry = informer.cache.entry(key.ref) if informer is not None else None
        terms = entry.index_keys if entry is not None else ()
        return next((value for name, value in terms if name == index), namespace_of(key))

    return flow_of
