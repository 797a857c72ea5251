"""Event mapping: turns the changes of all engaged planes into the keys of one controller.

- Keys on planes that are not engaged are dropped.
- A key that a full lane rejects is not lost, and neither is one that was dropped before its plane
  was engaged: ``replay`` maps all cached objects again. Deletions cannot be replayed and are never
  rejected.
- An exception in a filter or a mapping function is logged and counted. It affects no other edge.
- On edges with ``must_map_to_one`` a ``MappingAudit`` counts the number of keys and reports changes
  that do not map to exactly one, for each object once in REPORT_INTERVAL_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from datum_compute.api.meta.objects import KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Edge, Key
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.metrics import ControllerMetrics, RuntimeMetrics
from datum_compute.runtime.queue import WorkQueue

C = TypeVar("C")

REPORT_INTERVAL_S = 300.0
_REPORTED_OBJECTS_MAX = 1000

# Objects that a replay maps before other tasks may run.
REPLAY_BATCH_SIZE = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AmbiguousMapping:
    """A change that did not map to exactly one key."""

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
        self._reported_s: OrderedDict[tuple[str, str, PlaneName, Ref], float] = OrderedDict()

    def record(
        self, edge: str, kind: KindInfo[Any], plane: PlaneName, obj: Any, keys: Sequence[Key]
    ) -> None:
        outcome = "one" if len(keys) == 1 else "many" if keys else "none"
        if self._metrics is not None:
            self._metrics.count_mapping(edge, outcome)
        if outcome != "one" and self._report is not None:
            ref = Ref(obj.metadata.namespace, obj.metadata.name)
            if self._is_due((edge, outcome, plane, ref)):
                found = ", ".join(map(str, keys)) or "none"
                message = f"{edge}: expected exactly one object for this {kind.kind}, found {found}"
                uid = obj.metadata.uid
                self._report(AmbiguousMapping(plane, kind, ref, uid, edge, outcome, message))

    def _is_due(self, subject: tuple[str, str, PlaneName, Ref]) -> bool:
        now_s = asyncio.get_running_loop().time()
        last_s = self._reported_s.get(subject)
        if last_s is not None and now_s < last_s + REPORT_INTERVAL_S:
            return False
        self._reported_s[subject] = now_s
        self._reported_s.move_to_end(subject)
        if len(self._reported_s) > _REPORTED_OBJECTS_MAX:
            self._reported_s.popitem(last=False)
        return True


class EventMapper(Generic[C]):
    """Fills the queue of one controller from the planes in ``clients``."""

    def __init__(
        self,
        controller: Controller[C],
        queue: WorkQueue,
        clients: dict[PlaneName, CachedClient],
        audit: MappingAudit,
        metrics: ControllerMetrics | None,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._clients = clients
        self._audit = audit
        self._metrics = metrics
        self._full_lanes: dict[str, None] = {}
        self._has_full_lane = asyncio.Event()

    def attach(self, client: CachedClient) -> None:
        """Declare the kinds that the controller reads on a plane and subscribe to changes."""
        controller = self._controller
        role = plane_role(client.plane)
        for index in controller.indexes:
            if (index.on or controller.role) == role:
                client.declare(index.kind, "").cache.add_index(index)
        for edge in controller.edges_on(role):
            informer = client.declare(edge.kind, edge.namespace)
            if edge.enqueues:
                informer.subscribe(partial(self._handle, edge, client))

    async def replay_full_lanes(self) -> None:
        """Replay the lanes that rejected keys, until cancelled."""
        while True:
            await self._has_full_lane.wait()
            self._has_full_lane.clear()
            lanes, self._full_lanes = self._full_lanes, {}
            for lane in lanes:
                if self._metrics is not None:
                    self._metrics.replays.inc()
                await self.replay(lambda key, lane=lane: self._queue.lane(key) == lane)  # type: ignore[misc]

    async def replay(self, is_selected: Callable[[Key], bool]) -> None:
        """Map all cached objects again and add the selected keys as their lanes have room."""
        mapped = 0
        for plane in list(self._clients):
            client = self._clients.get(plane)
            if client is None:
                continue
            for edge in self._controller.edges_on(plane_role(plane)):
                objects = client.read_unsynced(edge.kind)
                for ref in objects.refs():
                    obj = objects.get(ref)
                    if obj is not None:
                        keys = self._map(edge, client, ObjectChange(None, obj))
                        await self._add_when_room(filter(is_selected, keys))
                    mapped += 1
                    if mapped % REPLAY_BATCH_SIZE == 0:
                        await asyncio.sleep(0)

    async def _add_when_room(self, keys: Iterable[Key]) -> None:
        for key in keys:
            await self._queue.wait_for_room(key)
            if key.plane in self._clients:
                self._queue.add(key)

    def _handle(self, edge: Edge, client: CachedClient, change: ObjectChange[Any]) -> None:
        try:
            if not edge.matches(change):
                return
        except Exception:
            self._log_failure(edge, client, change)
            return
        keys = self._map(edge, client, change)
        if edge.must_map_to_one and change.new is not None:
            self._audit.record(edge.must_map_to_one, edge.kind, client.plane, change.new, keys)
        for key in keys:
            if key.plane not in self._clients:
                continue
            if change.new is None:
                self._queue.add(key)
            elif not self._queue.offer(key):
                self._full_lanes[self._queue.lane(key)] = None
                self._has_full_lane.set()

    def _map(self, edge: Edge, client: CachedClient, change: ObjectChange[Any]) -> list[Key]:
        """Return the keys of a change; none if the mapping function fails."""
        try:
            keys = list(self._controller.keys(edge, client, change))
            for key in keys:
                if not isinstance(key, Key):
                    raise TypeError(f"a mapping function must return Keys, not {key!r}")
                hash(key)
        except Exception:
            self._log_failure(edge, client, change)
            return []
        return keys

    def _log_failure(self, edge: Edge, client: CachedClient, change: ObjectChange[Any]) -> None:
        if self._metrics is not None:
            self._metrics.mapping_errors.inc()
        name = f"{edge.kind.kind} {ref_of(change.latest)} on {client.plane}"
        _log.exception("%s: mapping a change of %s failed", self._controller.name, name)
