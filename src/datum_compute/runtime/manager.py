"""Manager: runs controllers on planes that come and go.

- ``engage`` starts the informers of a plane and maps its objects to keys. ``disengage`` stops them.
  Keys on a plane that is not engaged are dropped, not retried.
- A plane may be engaged without being entitled. Controllers with ``entitled_only`` ignore it.
- ``stop`` lets running reconciles finish for STOP_TIMEOUT_S and cancels the others.
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

from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.client.client import Client
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.cached_client import CachedClient, LabelScope, noop
from datum_compute.runtime.controller import Controller, Key, namespace_of
from datum_compute.runtime.event_mapping import AmbiguityReporter, EventMapper, MappingAudit
from datum_compute.runtime.metrics import RuntimeMetrics, runtime_gauges
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.worker import WorkerPool

C = TypeVar("C")

STOP_TIMEOUT_S = 4.0
# Time for cancelled tasks to end.
CANCEL_TIMEOUT_S = 0.5

_RESTART_BACKOFF = Backoff(first_s=0.5, most_s=60.0)

_log = logging.getLogger(__name__)


class Manager(Generic[C]):
    """Runs controllers on the engaged planes.

    ``context`` creates the first argument of each reconcile. ``report`` receives changes on edges
    with ``must_map_to_one`` that map to no key or to several. ``fence`` is called before every
    write and raises if the process may not write.
    """

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
        assert len(set(names)) == len(names), f"duplicate controller names: {sorted(names)}"
        self._controllers = controllers
        self._random = random
        self._fence = fence
        self._clients: dict[PlaneName, CachedClient] = {}
        self._entitled_clients: dict[PlaneName, CachedClient] = {}
        self._plane_tasks: dict[PlaneName, list[asyncio.Task[None]]] = {}
        # Tasks of external sources. They run code of controllers that may not end when cancelled,
        # so they are outside of the task group.
        self._source_tasks: dict[asyncio.Task[None], PlaneName] = {}
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        # Set while planes may start tasks; None before the run and when it ends.
        self._group: asyncio.TaskGroup | None = None
        self._has_started = False
        self._context = context(self)
        self._queues: dict[str, WorkQueue] = {}
        self._mappers: dict[str, EventMapper[C]] = {}
        self._workers: dict[str, WorkerPool[C]] = {}
        audit = MappingAudit(metrics, report)
        for controller in controllers:
            self._add_controller(controller, metrics, audit)
        if metrics is not None:
            metrics.register_gauges(runtime_gauges(self._queues, self._clients))

    def cached_client(self, plane: PlaneName) -> CachedClient | None:
        """Return the client of a plane if the plane is engaged."""
        return self._clients.get(plane)

    def engaged_planes(self) -> list[PlaneName]:
        return sorted(self._clients)

    def is_entitled(self, plane: PlaneName) -> bool:
        return plane in self._entitled_clients

    @property
    def uses_entitlement(self) -> bool:
        """True if a controller of this manager runs only on entitled planes."""
        return any(controller.entitled_only for controller in self._controllers)

    async def run(self) -> None:
        """Run until stopped or cancelled. Planes may be engaged before and during the run."""
        self._has_started, finished = True, False
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for plane in self.engaged_planes():
                    self._start_plane(self._clients[plane], is_late=False)
                for workers in self._workers.values():
                    workers.start()
                replays = [
                    group.create_task(mapper.replay_full_lanes())
                    for mapper in self._mappers.values()
                ]
                try:
                    await self._stopping.wait()
                    self._cancel_sources(self._clients)
                    await self._finish_reconciles(STOP_TIMEOUT_S)
                finally:
                    # Reconciles run outside of the group. One that engages a plane while the group
                    # ends must not add tasks to it.
                    self._group = None
                finished = True
                plane_tasks = (t for tasks in self._plane_tasks.values() for t in tasks)
                for task in (*replays, *plane_tasks):
                    task.cancel()
        finally:
            self._cancel_sources(self._clients)
            for client in self._clients.values():
                client.close()
            if not finished:
                await self._finish_reconciles(0.0)
            if self._source_tasks:
                await asyncio.wait(self._source_tasks, timeout=CANCEL_TIMEOUT_S / 2)
            for task in [task for task in self._source_tasks if not task.done()]:
                _log.error("%s did not end after it was cancelled; abandoning it", task)
            self._stopped.set()

    async def stop(self) -> None:
        """End ``run`` within five seconds, whatever the reconciles do."""
        self._stopping.set()
        if self._has_started:
            await self._stopped.wait()

    async def wait_for_sync(self, planes: Iterable[PlaneName] | None = None) -> None:
        """Wait until the planes (by default all engaged ones) have answered for every kind.

        The answer is a complete list, or that the plane does not serve the kind.
        """
        for plane in self.engaged_planes() if planes is None else planes:
            answered: CachedClient | None = None
            while (client := self._clients.get(plane)) is not None and client is not answered:
                for informer in client.informers():
                    await informer.answered.wait()
                answered = client

    # --- planes

    def engage(
        self,
        plane: PlaneName,
        client: Client,
        scope: LabelScope | None = None,
        *,
        entitled: bool = True,
    ) -> None:
        """Run the controllers on a plane. With ``scope`` they see only objects with its labels."""
        assert plane, "the name of a plane is empty"
        assert plane not in self._clients, f"{plane} is engaged already"
        plane_role(plane)  # raises for an invalid name, before anything is changed
        successor = partial(self.cached_client, plane)
        cached_client = CachedClient(
            plane, client, self._random, fence=self._fence, scope=scope, successor=successor
        )
        self._clients[plane] = cached_client
        if entitled:
            self._entitled_clients[plane] = cached_client
        for controller in self._controllers:
            if plane in self._clients_for(controller):
                self._mappers[controller.name].attach(cached_client)
        if self._group is not None:
            self._start_plane(cached_client, is_late=True)

    def disengage(self, plane: PlaneName) -> None:
        client = self._clients.pop(plane, None)
        self._entitled_clients.pop(plane, None)
        if client is not None:
            client.close()
            for informer in client.informers():
                informer.answered.set()  # ends wait_for_sync
        for task in self._plane_tasks.pop(plane, []):
            task.cancel()
        self._cancel_sources((plane,))
        for queue in self._queues.values():
            queue.drop_plane(plane)
        for workers in self._workers.values():
            workers.drop_plane(plane)

    def _clients_for(self, controller: Controller[C]) -> dict[PlaneName, CachedClient]:
        return self._entitled_clients if controller.entitled_only else self._clients

    # --- tasks

    def _add_controller(
        self,
        controller: Controller[C],
        metrics: RuntimeMetrics | None,
        audit: MappingAudit,
    ) -> None:
        own_metrics = metrics.for_controller(controller.name) if metrics is not None else None
        clients = self._clients_for(controller)
        queue = WorkQueue(
            self._random,
            Backoff(),
            lane_concurrency=controller.workers,
            lane_of=controller.lane,
            flow_of=_flow_by_index(controller, clients),
            lane_max=controller.lane_max,
        )
        if own_metrics is not None:
            queue.on_pop = own_metrics.wait_seconds.observe
        name = controller.name
        self._queues[name] = queue
        self._mappers[name] = EventMapper(controller, queue, clients, audit, own_metrics)
        self._workers[name] = WorkerPool(
            controller, queue, self._context, clients.get, self._random, own_metrics
        )

    def _start_plane(self, client: CachedClient, *, is_late: bool) -> None:
        assert self._group is not None
        plane, role = client.plane, plane_role(client.plane)
        tasks = [
            self._group.create_task(
                self._run_forever(f"informer of {informer.kind.kind} on {plane}", informer.run)
            )
            for informer in client.informers()
        ]
        for controller in self._controllers:
            if plane not in self._clients_for(controller):
                continue
            mapper = self._mappers[controller.name]
            if controller.role != role:
                if is_late and controller.edges_on(role):
                    # Reconciles that needed this plane before may have requeued with a long delay.
                    tasks.append(self._group.create_task(mapper.replay(lambda _key: True)))
                continue
            for source in controller.external_sources:
                self._start_source(controller, source, client)
            if any(edge.on not in ("", role) for edge in controller.edges):
                # Keys on this plane that other planes map to were dropped until now.
                replay = mapper.replay(lambda key: key.plane == plane)
                tasks.append(self._group.create_task(replay))
        self._plane_tasks[plane] = tasks

    def _start_source(
        self,
        controller: Controller[C],
        source: Callable[[C, CachedClient], AsyncIterator[Key]],
        client: CachedClient,
    ) -> None:
        name = f"external source of {controller.name} on {client.plane}"
        run = partial(self._add_keys_of, controller, source, client)
        task = asyncio.get_running_loop().create_task(self._run_forever(name, run))
        self._source_tasks[task] = client.plane
        task.add_done_callback(self._source_tasks.pop)

    def _cancel_sources(self, planes: Container[PlaneName]) -> None:
        for task, plane in self._source_tasks.items():
            if plane in planes:
                task.cancel()

    async def _add_keys_of(
        self,
        controller: Controller[C],
        source: Callable[[C, CachedClient], AsyncIterator[Key]],
        client: CachedClient,
    ) -> None:
        queue = self._queues[controller.name]
        async for key in source(self._context, client):
            await queue.wait_for_room(key)
            queue.add(key)

    async def _run_forever(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Restart ``run`` with backoff if it raises."""
        failures = 0
        while True:
            try:
                return await run()
            except Exception:
                failures += 1
                delay_s = _RESTART_BACKOFF.delay_s(failures, self._random)
                _log.exception("%s failed; restart in %.1f s", name, delay_s)
                await asyncio.sleep(delay_s)

    async def _finish_reconciles(self, timeout_s: float) -> None:
        """Close the queues and wait for running reconciles. Cancel those that do not end."""
        for queue in self._queues.values():
            queue.close()
        for wait_s in (timeout_s, CANCEL_TIMEOUT_S):
            tasks = [task for workers in self._workers.values() for task in workers.running_tasks()]
            if tasks and wait_s:
                await asyncio.wait(tasks, timeout=wait_s)
            for task in tasks:
                task.cancel()
        for workers in self._workers.values():
            for task in workers.running_tasks():
                _log.error("%s did not end after it was cancelled; abandoning it", task)


def _flow_by_index(
    controller: Controller[C], clients: Mapping[PlaneName, CachedClient]
) -> Callable[[Key], str]:
    """Return a function for the flow of a key: its value in the flow index, else its namespace."""
    kind, index = controller.kind, controller.flow_index
    if not index:
        return namespace_of
    assert kind is not None, f"{controller.name} has a flow index but no primary kind"

    def flow_of(key: Key) -> str:
        client = clients.get(key.plane)
        informer = client.informer(kind) if client is not None else None
        entry = informer.cache.entry(key.ref) if informer is not None else None
        index_keys = entry.index_keys if entry is not None else ()
        return next((value for name, value in index_keys if name == index), namespace_of(key))

    return flow_of
