"""From changes to keys: feeds the queue of one controller from the views of all engaged planes.

Keys of planes that are not engaged are dropped here. What is dropped because a lane is full, or
because its plane was not engaged yet, is not lost: the caches still hold it, and ``replay`` goes
through them once more. A deletion cannot be repeated so, and is never refused.

Edges on which every change must lead to exactly one key: counted, and reported if it does not.

Silence would hide a child whose parent cannot be found; a report for every change would be a
flood. So each object is reported once in REPORT_EVERY_S, for each way in which it goes wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import KindInfo, Ref, ref_of
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Edge, Key
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.metrics import ControllerMetrics, RuntimeMetrics
from datum_compute.runtime.queue import WorkQueue

REPORT_INTERVAL_S = 300.0
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class AmbiguousMapping:
    """A change that led to no key, or to several; material for a Warning event on the object."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    edge: str
    outcome: str  # none or many
    message: str


AmbiguityReporter = Callable[[AmbiguousMapping], None]


class MappingAudit:
    def __init__(self, metrics: RuntimeMetrics | None, report: AmbiguityReporter | None) -> None:
        self._metrics = metrics
        self._report = report
        self._reported: OrderedDict[tuple[str, str, PlaneName, Ref], float] = OrderedDict()

    def record(
        self, edge: str, kind: KindInfo[Any], plane: PlaneName, obj: Any, keys: Sequence[Key]
    ) -> None:
        outcome = "one" if len(keys) == 1 else "many" if keys else "none"
        if self._metrics is not None:
            self._metrics.count_mapping(edge, outcome)
        if outcome != "one" and self._report is not None:
            ref = Ref(obj.metadata.namespace, obj.metadata.name)
            if self._is_due((edge, outcome, plane, ref)):
                found = ", ".join(map(str, keys)) or "nothing"
                message = f"{edge}: exactly one was expected for this {kind.kind}, found {found}"
                uid = obj.metadata.uid
                self._report(AmbiguousMapping(plane, kind, ref, uid, edge, outcome, message))

    def _is_due(self, what: tuple[str, str, PlaneName, Ref]) -> bool:
        now_s = asyncio.get_running_loop().time()
        last_s = self._reported.get(what)
        if last_s is not None and now_s < last_s + REPORT_INTERVAL_S:
            return False
        self._reported[what] = now_s
        self._reported.move_to_end(what)
        if len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)
        return True


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
                view.declare(index.kind).cache.add_index(index)
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
