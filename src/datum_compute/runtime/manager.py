"""Runs controllers over planes that come and go.

``engage`` starts the informers a plane needs and feeds the queues of the controllers for it;
``disengage`` stops them at once, ``drain`` as soon as none of our finalizers is left in the plane.
Keys of a plane that is not engaged are dropped, never retried.

``stop`` lets the reconciles that run come to their end, for STOP_S, and gives up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import ApiObject
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.client.backoff import Backoff
from datum_compute.client.client import Client
from datum_compute.runtime.cache import Index
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.feed import Feed
from datum_compute.runtime.gauges import gauges_of
from datum_compute.runtime.informer import Informer
from datum_compute.runtime.key import Key
from datum_compute.runtime.metrics import RuntimeMetrics
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.reversemap import Report, ReverseMap
from datum_compute.runtime.view import View, nothing_in_the_way
from datum_compute.runtime.worker import Workers

C = TypeVar("C")

STOP_S = 4.0
# For those that have been cancelled and are asked to leave.
CANCEL_S = 0.5
DRAIN_CHECK_S = 60.0

_FINALIZER = "our-finalizer"
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
        report: Report | None = None,
        fence: Callable[[], None] = nothing_in_the_way,
    ) -> None:
        names = [controller.name for controller in controllers]
        assert len(set(names)) == len(names), f"controllers with one name: {sorted(names)}"
        self._controllers = controllers
        self._random = random
        self._fence = fence
        self._finalizers = frozenset(f for c in controllers for f in c.finalizers)
        self._views: dict[PlaneName, View] = {}
        self._tasks: dict[PlaneName, list[asyncio.Task[None]]] = {}
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._context = context(self)
        self._queues: dict[str, WorkQueue] = {}
        self._feeds: dict[str, Feed[C]] = {}
        self._workers: dict[str, Workers[C]] = {}
        reverse_map = ReverseMap(metrics, report)
        for controller in controllers:
            self._add(controller, metrics, reverse_map)
        if metrics is not None:
            metrics.show(gauges_of(self._queues, self._views))

    def view(self, plane: PlaneName) -> View | None:
        """The plane if it is engaged."""
        return self._views.get(plane)

    def engaged(self) -> list[PlaneName]:
        return sorted(self._views)

    async def run(self) -> None:
        """Work until stopped or cancelled; planes may be engaged before or while it runs."""
        finished = False
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for plane in self.engaged():
                    self._start(self._views[plane])
                running = [group.create_task(workers.run()) for workers in self._workers.values()]
                running += [group.create_task(feed.refill()) for feed in self._feeds.values()]
                await self._stopping.wait()
                await self._finish(STOP_S)
                finished = True
                for task in (*running, *(t for tasks in self._tasks.values() for t in tasks)):
                    task.cancel()
        finally:
            self._group = None
            for view in self._views.values():
                view.close()
            if not finished:
                await self._finish(0.0)
            self._stopped.set()

    async def stop(self) -> None:
        """End ``run``, in less than five seconds, whatever the reconciles do."""
        self._stopping.set()
        if self._group is not None:
            await self._stopped.wait()

    async def synced(self, planes: Iterable[PlaneName] | None = None) -> None:
        """Wait until each of these planes, or every engaged one, has answered for every kind:
        with a whole list, or that it does not serve it."""
        for plane in self.engaged() if planes is None else planes:
            view = self._views.get(plane)
            for informer in view.informers() if view is not None else []:
                await informer.answered.wait()

    # --- membership

    def engage(self, plane: PlaneName, client: Client) -> None:
        assert plane, "the empty name is no plane"
        assert plane not in self._views, f"{plane} is engaged already"
        view = View(plane, client, self._random, fence=self._fence)
        self._views[plane] = view
        for feed in self._feeds.values():
            feed.attach(view)
        for informer in view.informers():
            informer.cache.declare(Index(informer.kind, _FINALIZER, self._ours))
        if self._group is not None:
            self._start(view)

    def disengage(self, plane: PlaneName) -> None:
        view = self._views.pop(plane, None)
        if view is not None:
            view.close()
        for task in self._tasks.pop(plane, []):
            task.cancel()
        for queue in self._queues.values():
            queue.drop(plane)
        for workers in self._workers.values():
            workers.drop(plane)

    async def drain(self, plane: PlaneName) -> None:
        """Disengage a plane as soon as none of our finalizers is left in it.

        That is known only of complete views: a plane that cannot be reached is not drained, and
        whoever cannot wait for it disengages it.
        """
        view = self._views.get(plane)
        while view is not None and self._views.get(plane) is view:
            held = next((i for i in view.informers() if not self._is_drained(i)), None)
            if held is None:
                self.disengage(plane)
                return
            await held.progressed(lambda held=held: self._is_drained(held), DRAIN_CHECK_S)  # type: ignore[misc]

    def _is_drained(self, informer: Informer[Any]) -> bool:
        if not informer.served:
            return True
        return informer.synced and not any(
            informer.cache.group((_FINALIZER, name)) for name in sorted(self._finalizers)
        )

    def _ours(self, obj: ApiObject) -> Iterable[str]:
        finalizers = obj.metadata.finalizers
        return [name for name in finalizers if name in self._finalizers] if finalizers else ()

    # --- tasks

    def _add(
        self,
        controller: Controller[C],
        metrics: RuntimeMetrics | None,
        reverse_map: ReverseMap,
    ) -> None:
        own = metrics.of(controller.name) if metrics is not None else None
        queue = WorkQueue(
            self._random,
            Backoff(),
            share=controller.workers,
            lane_of=controller.lane,
            lane_max=controller.lane_max,
        )
        if own is not None:
            queue.on_take = own.wait_seconds.observe
        name = controller.name
        self._queues[name] = queue
        self._feeds[name] = Feed(controller, queue, self._views, reverse_map, own)
        self._workers[name] = Workers(
            controller, queue, self._context, self._views.get, self._random, own
        )

    def _start(self, view: View) -> None:
        assert self._group is not None
        plane, role = view.plane, plane_role(view.plane)
        tasks = [
            self._group.create_task(self._kept_up(f"{informer.kind.kind} on {plane}", informer.run))
            for informer in view.informers()
        ]
        for controller in self._controllers:
            if controller.role != role:
                continue
            for outside in controller.outside:
                pump = partial(self._pump, controller, outside, view)
                name = f"what wakes {controller.name} on {plane}"
                tasks.append(self._group.create_task(self._kept_up(name, pump)))
            if any(edge.on not in ("", role) for edge in controller.edges):
                # What other planes hold for this one was dropped until now.
                feed = self._feeds[controller.name]
                replay = feed.replay(lambda key: key.plane == plane)
                tasks.append(self._group.create_task(replay))
        self._tasks[plane] = tasks

    async def _pump(
        self,
        controller: Controller[C],
        outside: Callable[[C, View], AsyncIterator[Key]],
        view: View,
    ) -> None:
        queue = self._queues[controller.name]
        async for key in outside(self._context, view):
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
