"""Runs controllers over planes that come and go.

``engage`` starts the informers a plane needs and feeds the queues of the controllers for it;
``disengage`` stops them. Keys of a plane that is not engaged are dropped, never retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.client.backoff import Backoff
from datum_compute.client.client import Client
from datum_compute.runtime.controller import Controller, Watches, own_key
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.view import View
from datum_compute.runtime.worker import Worker

C = TypeVar("C")

_log = logging.getLogger(__name__)


class Manager(Generic[C]):
    def __init__(
        self,
        controllers: Sequence[Controller[C]],
        context: Callable[[Manager[C]], C],
        random: Random,
    ) -> None:
        names = [controller.name for controller in controllers]
        assert len(set(names)) == len(names), f"controllers with one name: {sorted(names)}"
        self._controllers = controllers
        self._random = random
        self._views: dict[PlaneName, View] = {}
        self._tasks: dict[PlaneName, list[asyncio.Task[None]]] = {}
        self._queues = {name: WorkQueue(random, Backoff()) for name in names}
        self._context = context(self)
        self._group: asyncio.TaskGroup | None = None

    def view(self, plane: PlaneName) -> View | None:
        """The plane if it is engaged."""
        return self._views.get(plane)

    def engaged(self) -> list[PlaneName]:
        return sorted(self._views)

    async def run(self) -> None:
        """Work until cancelled; planes may be engaged before or while it runs."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for plane in self.engaged():
                    self._start(self._views[plane])
                for controller in self._controllers:
                    worker = self._worker(controller)
                    for _ in range(controller.workers):
                        group.create_task(worker.run())
        finally:
            self._group = None
            for queue in self._queues.values():
                queue.close()

    async def synced(self, planes: Iterable[PlaneName] | None = None) -> None:
        """Wait until each of these planes, or every engaged one, has been listed once."""
        for plane in self.engaged() if planes is None else planes:
            view = self._views.get(plane)
            for informer in view.informers() if view is not None else []:
                await informer.first_sync.wait()

    def engage(self, plane: PlaneName, client: Client) -> None:
        assert plane, "the empty name is no plane"
        assert plane not in self._views, f"{plane} is engaged already"
        view = self._views[plane] = View(plane, client, self._random)
        for controller in self._controllers:
            for source in _sources(controller):
                if source.role == plane_role(plane):
                    self._feed(controller, source, view)
        if self._group is not None:
            self._start(view)

    def disengage(self, plane: PlaneName) -> None:
        self._views.pop(plane, None)
        for task in self._tasks.pop(plane, []):
            task.cancel()

    def _start(self, view: View) -> None:
        assert self._group is not None
        tasks = [self._group.create_task(informer.run()) for informer in view.informers()]
        for controller in self._controllers:
            if controller.outside is not None and controller.role == plane_role(view.plane):
                wakes = controller.outside(self._context, view)
                tasks.append(self._group.create_task(self._pump(controller, wakes)))
        self._tasks[view.plane] = tasks

    def _feed(self, controller: Controller[C], source: Watches, view: View) -> None:
        queue = self._queues[controller.name]

        def wake(change: Change[Any]) -> None:
            try:
                for key in source.to_keys(view, change):
                    queue.add(key)
            except Exception:
                # One odd object must not end the view that everybody shares.
                name = f"{source.kind.kind} {ref_of(change.latest)} on {view.plane}"
                _log.exception("%s cannot tell whom %s concerns", controller.name, name)

        view.declare(source.kind).subscribe(wake)

    async def _pump(self, controller: Controller[C], wakes: AsyncIterator[Key]) -> None:
        async for key in wakes:
            self._queues[controller.name].add(key)

    def _worker(self, controller: Controller[C]) -> Worker[C]:
        return Worker(
            controller,
            self._queues[controller.name],
            self._context,
            lambda key: key.plane in self._views,
        )


def _sources(controller: Controller[Any]) -> list[Watches]:
    if controller.kind is None:
        return list(controller.watches)
    return [Watches(controller.role, controller.kind, own_key), *controller.watches]
