"""From changes to keys: feeds the queue of one controller from the views of all engaged planes.

Keys of planes that are not engaged are dropped here. What is dropped because a lane is full, or
because its plane was not engaged yet, is not lost: the caches still hold it, and ``replay`` goes
through them once more. A deletion cannot be repeated so, and is never refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Edge
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.key import Key
from datum_compute.runtime.metrics import ControllerMetrics
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.reversemap import MappingAudit

C = TypeVar("C")

# Objects that a replay looks at before it lets others work.
AT_ONCE = 100

_log = logging.getLogger(__name__)


class Feed(Generic[C]):
    def __init__(
        self,
        controller: Controller[C],
        queue: WorkQueue,
        views: dict[PlaneName, CachedClient],
        reverse_map: MappingAudit,
        metrics: ControllerMetrics | None,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._views = views
        self._reverse_map = reverse_map
        self._metrics = metrics
        self._overflowed: dict[str, None] = {}
        self._overflow = asyncio.Event()

    def attach(self, view: CachedClient) -> None:
        """Take in the changes of a plane from now on."""
        controller = self._controller
        role = plane_role(view.plane)
        for index in controller.indexes:
            if (index.on or controller.role) == role:
                view.declare(index.kind).cache.declare(index)
        for edge in controller.edges_on(role):
            informer = view.declare(edge.kind)
            if edge.wakes:
                informer.subscribe(partial(self._wake, edge, view))

    async def refill(self) -> None:
        """Feed lanes that overflowed from the caches, for ever."""
        while True:
            await self._overflow.wait()
            self._overflow.clear()
            lanes, self._overflowed = self._overflowed, {}
            for lane in lanes:
                if self._metrics is not None:
                    self._metrics.replays.inc()
                await self.replay(lambda key, lane=lane: self._queue.lane(key) == lane)  # type: ignore[misc]

    async def replay(self, is_wanted: Callable[[Key], bool]) -> None:
        """Add the wanted keys of everything in the caches, no faster than they are worked on."""
        looked_at = 0
        for plane in list(self._views):
            view = self._views.get(plane)
            for edge in self._controller.edges_on(plane_role(plane)) if view is not None else ():
                assert view is not None
                for ref in view.cached(edge.kind).refs():
                    obj = view.cached(edge.kind).get(ref)
                    keys = (
                        self._keys(edge, view, ObjectChange(None, obj)) if obj is not None else ()
                    )
                    for key in filter(is_wanted, keys):
                        await self._queue.room(key)
                        if key.plane in self._views:
                            self._queue.add(key)
                    looked_at += 1
                    if looked_at % AT_ONCE == 0:
                        await asyncio.sleep(0)

    def _wake(self, edge: Edge, view: CachedClient, change: ObjectChange[Any]) -> None:
        try:
            if not edge.matches(change):
                return
        except Exception:
            self._note_odd(edge, view, change)
            return
        keys = self._keys(edge, view, change)
        if edge.must_map_to_one and change.new is not None:
            self._reverse_map.record(edge.must_map_to_one, edge.kind, view.plane, change.new, keys)
        for key in keys:
            if key.plane not in self._views:
                continue
            if change.new is None:
                self._queue.add(key)
            elif not self._queue.offer(key):
                self._overflowed[self._queue.lane(key)] = None
                self._overflow.set()

    def _keys(self, edge: Edge, view: CachedClient, change: ObjectChange[Any]) -> list[Key]:
        """Whom the change wakes, in keys that a queue can take."""
        try:
            keys = list(self._controller.keys(edge, view, change))
            for key in keys:
                if not isinstance(key, Key):
                    raise TypeError(f"a mapping function names Keys, not {key!r}")
                hash(key)
        except Exception:
            self._note_odd(edge, view, change)
            return []
        return keys

    def _note_odd(self, edge: Edge, view: CachedClient, change: ObjectChange[Any]) -> None:
        """One odd object, or function, must not end the view that everybody shares."""
        if self._metrics is not None:
            self._metrics.mapping_errors.inc()
        name = f"{edge.kind.kind} {ref_of(change.latest)} on {view.plane}"
        _log.exception("%s cannot tell whom %s concerns", self._controller.name, name)
