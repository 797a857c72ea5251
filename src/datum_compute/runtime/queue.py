"""Work queue of one controller. Each key is queued at most once and never in flight twice.

- A key that is added while it is in flight is queued again when it is done.
- Keys are in lanes, by default one for each plane. Lanes take turns, and at most
  ``lane_concurrency`` keys of a lane are in flight. So many keys on one plane, or a plane that does
  not respond, do not block other lanes. A key stays in its lane until it is done. If the lane
  function raises, the key is in the lane of its plane.
- The keys of a lane are in flows, by default one for each namespace, and flows take turns too. On
  the hub and on cells a namespace belongs to one project: 10,000 keys of one project delay a key of
  another project by one key.
- ``offer`` rejects a key if its lane holds ``lane_max`` keys. The caller offers it again after
  ``wait_for_room``. Keys of a flow that has less than an equal share of a full lane are accepted
  until the lane holds twice ``lane_max`` keys. Deletions, retries and delayed keys are never
  rejected, because no caller could repeat them.
- ``debounce`` coalesces the next events of a key (see ``debounce.py``).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from random import Random

from datum_compute.api.planes import PlaneName
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.controller import LANE_MAX, Debounce, Key, namespace_of, plane_of
from datum_compute.runtime.debounce import Debouncer

# Timers from SHORT_DELAY_S on are rounded up to TICK_S, and from LONG_DELAY_S on to LONG_TICK_S.
# Shorter delays are exact.
TICK_S = 0.1
SHORT_DELAY_S = 1.0
LONG_TICK_S = 1.0
LONG_DELAY_S = 60.0

NOT_SYNCED_BACKOFF = Backoff(first_s=0.01, most_s=2.0)

_IDLE_FLOW_STARTS_MAX = 64

_log = logging.getLogger(__name__)


class DelayTimers:
    """Enqueues keys after a delay, with one event loop timer for all keys that are due in a tick.

    The event loop keeps its timers in a heap. With 10,000 waiting keys, one timer for each key
    costs two to eight times as much.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._due_s: dict[Key, float] = {}
        self._ticks: dict[float, dict[Key, None]] = {}  # keys by the end of their tick
        self._handles: dict[float, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._due_s)

    def set(self, key: Key, delay_s: float) -> None:
        """Enqueue the key after the delay. An earlier timer of the key stays."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + delay_s
        if delay_s >= SHORT_DELAY_S:
            tick_s = TICK_S if delay_s < LONG_DELAY_S else LONG_TICK_S
            at_s = math.ceil(at_s / tick_s) * tick_s
        due_s = self._due_s.get(key)
        if due_s is not None and due_s <= at_s:
            return
        self.cancel(key)
        self._due_s[key] = at_s
        tick = self._ticks.get(at_s)
        if tick is None:
            tick = self._ticks[at_s] = {}
            self._handles[at_s] = loop.call_at(at_s, self._end_tick, at_s)
        tick[key] = None

    def cancel(self, key: Key) -> None:
        at_s = self._due_s.pop(key, None)
        if at_s is not None:
            del self._ticks[at_s][key]

    def cancel_plane(self, plane: PlaneName) -> None:
        for key in [key for key in self._due_s if key.plane == plane]:
            self.cancel(key)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._due_s.clear()
        self._ticks.clear()
        self._handles.clear()

    def _end_tick(self, at_s: float) -> None:
        del self._handles[at_s]
        for key in self._ticks.pop(at_s):
            del self._due_s[key]
            self._enqueue(key)


class _Lane:
    """The ready keys of a lane, in flows that are scheduled by start-time fair queueing.

    Each flow has a virtual start time, which increases by one with each of its turns. The flow with
    the lowest one gets the next turn. ``virtual_time`` is the start time of the last turn. A flow
    that was idle continues at ``virtual_time`` at the earliest, so it gets no credit for its idle
    time.
    """

    __slots__ = (
        *("flow_heap", "flow_starts", "flows", "in_flight", "is_scheduled", "ready", "room"),
        *("sequence", "virtual_time"),
    )

    def __init__(self) -> None:
        self.ready: dict[Key, str] = {}  # key to flow
        # Flow to keys, each with the time at which it became ready.
        self.flows: dict[str, OrderedDict[Key, float]] = {}
        # Heap of flows by the virtual start of their next turn.
        self.flow_heap: list[tuple[int, int, str]] = []
        self.flow_starts: dict[str, int] = {}  # virtual start of the next turn of each recent flow
        self.virtual_time = 0
        self.sequence = count()
        self.in_flight = 0
        self.is_scheduled = False
        self.room: asyncio.Event | None = None

    def add(self, key: Key, flow: str, now_s: float) -> None:
        if key in self.ready:
            return
        self.ready[key] = flow
        keys = self.flows.get(flow)
        if keys is None:
            keys = self.flows[flow] = OrderedDict()
            start = max(self.virtual_time, self.flow_starts.get(flow, 0))
            heappush(self.flow_heap, (start, next(self.sequence), flow))
        keys[key] = now_s

    def pop(self) -> tuple[Key, float]:
        """Remove the next key. Return it with the time at which it became ready."""
        self.virtual_time, _, flow = self.flow_heap[0]
        keys = self.flows[flow]
        key, ready_s = keys.popitem(last=False)
        del self.ready[key]
        start = self.flow_starts[flow] = self.virtual_time + 1
        if keys:
            heapreplace(self.flow_heap, (start, next(self.sequence), flow))
        else:
            heappop(self.flow_heap)
            del self.flows[flow]
        if len(self.flow_starts) > 2 * len(self.flows) + _IDLE_FLOW_STARTS_MAX:
            self.flow_starts = {
                name: start for name, start in self.flow_starts.items() if start > self.virtual_time
            }
        return key, ready_s

    def remove(self, key: Key) -> None:
        flow = self.ready.pop(key)
        keys = self.flows[flow]
        del keys[key]
        if not keys:
            del self.flows[flow]
            self.flow_heap = [item for item in self.flow_heap if item[2] != flow]
            heapify(self.flow_heap)

    def is_full_for(self, flow: str, lane_max: int) -> bool:
        """Return True if the lane is full and the flow already has its share of the keys."""
        if len(self.ready) < lane_max:
            return False
        if len(self.ready) >= 2 * lane_max:
            return True
        own = self.flows.get(flow)
        others = len(self.flows) - (own is not None)
        return not others or (own is not None and len(own) >= lane_max // (others + 1))

    def oldest_ready_s(self) -> float:
        """Return the time at which the oldest key became ready."""
        return min(next(iter(keys.values())) for keys in self.flows.values())

    def notify_room(self) -> None:
        if self.room is not None:
            self.room.set()


def _noop() -> None:
    return


class WorkQueue:
    """Calls ``on_available`` if a key can be popped, and ``on_pop`` with its wait in seconds."""

    def __init__(
        self,
        random: Random,
        backoff: Backoff,
        *,
        lane_concurrency: int = 2,
        lane_of: Callable[[Key], str] = plane_of,
        flow_of: Callable[[Key], str] = namespace_of,
        lane_max: int = LANE_MAX,
    ) -> None:
        self.on_available: Callable[[], None] = _noop
        self.on_pop: Callable[[float], None] | None = None
        self._random = random
        self._backoff = backoff
        self._lane_concurrency = lane_concurrency
        self._lane_of = lane_of
        self._flow_of = flow_of
        self._lane_max = lane_max
        self._lanes: dict[str, _Lane] = {}
        self._lane_by_key: dict[Key, str] = {}  # of keys that are ready or in flight
        self._scheduled_lanes: deque[str] = deque()
        self._in_flight: dict[Key, bool] = {}  # True if the key was added again while in flight
        self._timers = DelayTimers(self.add)
        self._failures: dict[Key, int] = {}
        self._not_synced: dict[Key, int] = {}
        self._debouncer = Debouncer(self._enqueue)
        self._closed = False
        self._lane_error_logged = False

    # --- metrics

    def __len__(self) -> int:
        """Return the number of ready keys."""
        return sum(len(lane.ready) for lane in self._lanes.values())

    @property
    def delayed_count(self) -> int:
        return len(self._timers) + self._debouncer.pending

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def oldest_s(self) -> float:
        """Return for how long the oldest key has been ready."""
        ready_s = [lane.oldest_ready_s() for lane in self._lanes.values() if lane.ready]
        return asyncio.get_running_loop().time() - min(ready_s) if ready_s else 0.0

    # --- adding

    def lane(self, key: Key) -> str:
        """Return the lane that holds the key or would hold it."""
        current = self._lane_by_key.get(key)
        if current is not None:
            return current
        try:
            name = self._lane_of(key)
            hash(name)
        except Exception:
            if not self._lane_error_logged:
                _log.exception("lane function failed for %s; using the lane of its plane", key)
            self._lane_error_logged = True
            return key.plane
        return name

    def add(self, key: Key) -> None:
        assert key.plane, f"key of {key.ref} names no plane"
        self._timers.cancel(key)
        if key in self._in_flight:
            self._in_flight[key] = True
        elif not self._debouncer.absorb(key):
            self._enqueue(key)

    def offer(self, key: Key) -> bool:
        """Add the key unless its lane is full. Return False if the key was rejected."""
        lane = self._lanes.get(self.lane(key))
        if (
            lane is not None
            and len(lane.ready) >= self._lane_max
            and key not in lane.ready
            and key not in self._in_flight
            and lane.is_full_for(self._flow_of(key), self._lane_max)
        ):
            return False
        self.add(key)
        return True

    async def wait_for_room(self, key: Key) -> None:
        """Wait until the lane of the key is at most half full."""
        while (lane := self._lanes.get(self.lane(key))) is not None:
            if len(lane.ready) <= self._lane_max // 2:
                return
            if lane.room is None:
                lane.room = asyncio.Event()
            lane.room.clear()
            await lane.room.wait()

    def add_after(self, key: Key, delay_s: float) -> None:
        """Add the key after the delay. The earliest of several delays applies."""
        self._timers.set(key, delay_s)

    def retry(self, key: Key) -> float:
        """Add the key after an exponential backoff. Return the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(failures, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def retry_not_synced(self, key: Key) -> float:
        """Add the key after a short backoff. Return the delay.

        A cache that is not synced is not a failure, so the delay grows to two seconds only.
        """
        attempts = self._not_synced[key] = self._not_synced.get(key, 0) + 1
        delay_s = NOT_SYNCED_BACKOFF.delay_s(attempts, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def debounce(self, key: Key, debounce: Debounce | None) -> None:
        if debounce is not None:
            self._debouncer.start(key, debounce)

    def forget(self, key: Key) -> None:
        """Reset the backoff of the key after a success."""
        self._failures.pop(key, None)
        self._not_synced.pop(key, None)

    # --- popping

    @property
    def available(self) -> int:
        """Number of keys that can be popped now."""
        return len(self._scheduled_lanes)

    def pop(self) -> Key | None:
        """Return the next key if there is one. It is in flight until ``done`` is called."""
        if not self._scheduled_lanes or self._closed:
            return None
        name = self._scheduled_lanes.popleft()
        lane = self._lanes[name]
        lane.is_scheduled = False
        key, ready_s = lane.pop()
        if self.on_pop is not None:
            self.on_pop(asyncio.get_running_loop().time() - ready_s)
        self._in_flight[key] = False
        lane.in_flight += 1
        if len(lane.ready) <= self._lane_max // 2:
            lane.notify_room()
        self._schedule(name, lane)
        return key

    def done(self, key: Key) -> None:
        """Mark the key as processed. It is queued again if it was added in the meantime."""
        was_added = self._in_flight.pop(key)
        name = self._lane_by_key.pop(key)
        lane = self._lanes[name]
        lane.in_flight -= 1
        if was_added and not self._debouncer.absorb(key):
            self._enqueue(key)
        self._schedule(name, lane)
        if not lane.ready and not lane.in_flight:
            lane.notify_room()
            del self._lanes[name]

    def drop_plane(self, plane: PlaneName) -> None:
        """Remove all keys on a plane."""
        self._timers.cancel_plane(plane)
        self._debouncer.cancel_plane(plane)
        for counts in (self._failures, self._not_synced):
            for key in [key for key in counts if key.plane == plane]:
                del counts[key]
        for key in self._in_flight:
            if key.plane == plane:
                self._in_flight[key] = False
        for lane in self._lanes.values():
            for key in [key for key in lane.ready if key.plane == plane]:
                lane.remove(key)
                del self._lane_by_key[key]
            lane.notify_room()
        self._scheduled_lanes = deque(filter(self._stays_scheduled, self._scheduled_lanes))

    def close(self) -> None:
        """Return no more keys."""
        self._closed = True
        self.on_available = _noop
        self._timers.close()
        self._debouncer.close()

    # --- lanes

    def _enqueue(self, key: Key) -> None:
        name = self._lane_by_key[key] = self.lane(key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        lane.add(key, self._flow_of(key), asyncio.get_running_loop().time())
        self._schedule(name, lane)

    def _schedule(self, name: str, lane: _Lane) -> None:
        if lane.ready and lane.in_flight < self._lane_concurrency and not lane.is_scheduled:
            lane.is_scheduled = True
            self._scheduled_lanes.append(name)
            self.on_available()

    def _stays_scheduled(self, name: str) -> bool:
        lane = self._lanes[name]
        lane.is_scheduled = bool(lane.ready)
        if not lane.ready and not lane.in_flight:
            del self._lanes[name]
        return lane.is_scheduled
