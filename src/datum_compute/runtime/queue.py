"""A queue of keys: each waits at most once, is never in flight twice, and may wait for later.

A key added while it is being worked on waits until that work is done, then comes up again.

Keys stand in lanes, by default one for each plane. Lanes take turns, and of each lane only
``share`` keys are worked on at once: neither a flood nor a plane that never answers costs another
lane more than its turn. A key stays in the lane that it was put into until it is done, whatever is
said of it meanwhile; where nobody can say, it stands in that of its plane.

Inside a lane keys are grouped into flows, by default by namespace, and the flows take turns: on the
hub and on cells a namespace belongs to one project, so a project with 10,000 keys delays a key of
another project by one key, not by 10,000.

After a pass that asked for a pause (``pauses.py``) wake-ups of its key are gathered for a while
before it comes up again.

A lane holds at most ``lane_max`` keys from ``offer``, which refuses what does not fit; the caller
must come back with it when there is ``room``. A flow that holds less than its part of a full lane
is refused only when the lane holds twice as many. Deletions, retries and delays are never refused:
nobody could repeat them.

Wakes keys after a while: thousands of them with few timers.

A loop keeps its timers in order, and every one that is set and cancelled costs it something. Keys
that wait for a second or more are grouped: all that are due within the same tick come up together,
at its end; ticks are longer for those that wait for minutes. Who waits for less than a second comes
up in time.
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

from datum_compute.api.plane import PlaneName
from datum_compute.client.backoff import Backoff
from datum_compute.runtime.controller import LANE_MAX, Debounce, Key, namespace_of, plane_of
from datum_compute.runtime.debounce import Bustle, Debouncer

TICK_S = 0.1
SHORT_S = 1.0
LONG_TICK_S = 1.0
LONG_S = 60.0


class DelayTimers:
    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._due: dict[Key, float] = {}
        self._ticks: dict[float, dict[Key, None]] = {}  # by when they end
        self._handles: dict[float, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, seconds: float) -> None:
        """The earliest of several wishes wins."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + seconds
        if seconds >= SHORT_S:
            tick_s = TICK_S if seconds < LONG_S else LONG_TICK_S
            at_s = math.ceil(at_s / tick_s) * tick_s
        known_s = self._due.get(key)
        if known_s is not None and known_s <= at_s:
            return
        self.cancel(key)
        self._due[key] = at_s
        tick = self._ticks.get(at_s)
        if tick is None:
            tick = self._ticks[at_s] = {}
            self._handles[at_s] = loop.call_at(at_s, self._over, at_s)
        tick[key] = None

    def cancel(self, key: Key) -> None:
        """A tick that nobody waits for any more passes unnoticed."""
        at_s = self._due.pop(key, None)
        if at_s is not None:
            del self._ticks[at_s][key]

    def drop(self, plane: PlaneName) -> None:
        for key in [key for key in self._due if key.plane == plane]:
            self.cancel(key)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._due.clear()
        self._ticks.clear()
        self._handles.clear()

    def _over(self, at_s: float) -> None:
        del self._handles[at_s]
        for key in self._ticks.pop(at_s):
            del self._due[key]
            self._wake(key)


_IDLE_STARTS_MAX = 64  # start times kept for flows without keys
NOT_YET = Backoff(first_s=0.01, most_s=2.0)

_log = logging.getLogger(__name__)


class _Lane:
    """The ready keys of a lane. The flow with the fewest turns gets the next turn.

    Virtual time counts the turns of a flow; ``now`` is the virtual time of the last turn. A flow
    without keys starts at ``now``: it comes next, but gets no credit for its idle time.
    """

    __slots__ = (
        *("busy", "flows", "has_turn", "now", "numbers", "ready", "room", "starts", "turns"),
    )

    def __init__(self) -> None:
        self.ready: dict[Key, str] = {}  # key to flow
        self.flows: dict[
            str, OrderedDict[Key, float]
        ] = {}  # flow to keys, each with the time since when it waits
        self.turns: list[
            tuple[int, int, str]
        ] = []  # heap of flows by the virtual start of their next turn
        self.starts: dict[str, int] = {}  # virtual start of the next turn of each recent flow
        self.now = 0
        self.numbers = count()
        self.busy = 0
        self.has_turn = False
        self.room: asyncio.Event | None = None  # once somebody waits for it

    def add(self, key: Key, flow: str, now_s: float) -> None:
        if key in self.ready:
            return
        self.ready[key] = flow
        keys = self.flows.get(flow)
        if keys is None:
            keys = self.flows[flow] = OrderedDict()
            start = max(self.now, self.starts.get(flow, 0))
            heappush(self.turns, (start, next(self.numbers), flow))
        keys[key] = now_s

    def take(self) -> tuple[Key, float]:
        """Remove and return the next key, and since when it waits."""
        self.now, _, flow = self.turns[0]
        keys = self.flows[flow]
        key, since_s = keys.popitem(last=False)
        del self.ready[key]
        start = self.starts[flow] = self.now + 1
        if keys:
            heapreplace(self.turns, (start, next(self.numbers), flow))
        else:
            heappop(self.turns)
            del self.flows[flow]
        if len(self.starts) > 2 * len(self.flows) + _IDLE_STARTS_MAX:
            self.starts = {name: start for name, start in self.starts.items() if start > self.now}
        return key, since_s

    def remove(self, key: Key) -> None:
        flow = self.ready.pop(key)
        keys = self.flows[flow]
        del keys[key]
        if not keys:
            del self.flows[flow]
            self.turns = [turn for turn in self.turns if turn[2] != flow]
            heapify(self.turns)

    def is_full_for(self, flow: str, lane_max: int) -> bool:
        """Return True if the lane is full and the flow already has its share of the keys."""
        if len(self.ready) < lane_max:
            return False
        if len(self.ready) >= 2 * lane_max:
            return True
        own = self.flows.get(flow)
        others = len(self.flows) - (own is not None)
        return not others or (own is not None and len(own) >= lane_max // (others + 1))

    def oldest_s(self) -> float:
        """Return since when the oldest key has been ready."""
        return min(next(iter(keys.values())) for keys in self.flows.values())

    def make_room(self) -> None:
        if self.room is not None:
            self.room.set()


def _nobody() -> None:
    """Nobody works here yet, or any more."""


class WorkQueue:
    def __init__(
        self,
        random: Random,
        backoff: Backoff,
        *,
        share: int = 2,
        lane_of: Callable[[Key], str] = plane_of,
        flow_of: Callable[[Key], str] = namespace_of,
        lane_max: int = LANE_MAX,
        bustle: Bustle | None = None,
    ) -> None:
        self._random = random
        self._backoff = backoff
        self._share = share
        self._lane_of = lane_of
        self._flow_of = flow_of
        self._lane_max = lane_max
        self._lanes: dict[str, _Lane] = {}
        self._places: dict[Key, str] = {}  # lanes of the keys that wait or are in flight
        self._turns: deque[str] = deque()
        self._in_flight: dict[Key, bool] = {}  # and whether it is wanted again
        self._timers = DelayTimers(self.add)
        self._failures: dict[Key, int] = {}
        self._not_yet: dict[Key, int] = {}
        self._bustle = Bustle() if bustle is None else bustle
        self._pauses = Debouncer(self._make_ready, self._bustle)
        self._closed = False
        self._is_odd = False
        self.on_available: Callable[[], None] = _nobody  # told of each turn that somebody may take
        self.on_pop: Callable[[float], None] | None = None  # told how long each key waited

    # --- what an operator wants to know

    def __len__(self) -> int:
        """How many keys are ready to be worked on."""
        return sum(len(lane.ready) for lane in self._lanes.values())

    @property
    def delayed(self) -> int:
        return len(self._timers) + self._pauses.waiting

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def lane(self, key: Key) -> str:
        """Where the key stands, or would stand."""
        place = self._places.get(key)
        if place is not None:
            return place
        try:
            name = self._lane_of(key)
            hash(name)
        except Exception:
            if not self._is_odd:
                _log.exception("no lane can be told for %s: it stands in that of its plane", key)
            self._is_odd = True
            return key.plane
        return name

    def oldest_s(self) -> float:
        """For how long the key that waits longest has been ready."""
        firsts = [lane.oldest_s() for lane in self._lanes.values() if lane.ready]
        return asyncio.get_running_loop().time() - min(firsts) if firsts else 0.0

    # --- adding

    def add(self, key: Key) -> None:
        assert key.plane, f"work on {key.ref} names no plane"
        self._timers.cancel(key)
        if key in self._in_flight:
            self._in_flight[key] = True
        elif not self._pauses.gathers(key):
            self._make_ready(key)

    def offer(self, key: Key) -> bool:
        """Add unless its lane is full; False if it was refused."""
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

    async def room(self, key: Key) -> None:
        """Wait until the lane of the key is at most half full."""
        while (lane := self._lanes.get(self.lane(key))) is not None:
            if len(lane.ready) <= self._lane_max // 2:
                return
            if lane.room is None:
                lane.room = asyncio.Event()
            lane.room.clear()
            await lane.room.wait()

    def add_after(self, key: Key, seconds: float) -> None:
        """Add later; the earliest of several wishes wins."""
        self._timers.set(key, seconds)

    def retry(self, key: Key) -> float:
        """Add later, ever later while it keeps failing; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(failures, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def retry_soon(self, key: Key) -> float:
        """As retry, for what is not ready yet and no failure: sooner, and never much later."""
        times = self._not_yet[key] = self._not_yet.get(key, 0) + 1
        delay_s = NOT_YET.delay_s(times, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def debounce(self, key: Key, pause: Debounce | None) -> None:
        """The key was worked on; for a while its wake-ups are gathered."""
        if pause is not None:
            self._pauses.begin(key, pause)

    def forget(self, key: Key) -> None:
        """The key succeeded: its failures no longer count."""
        self._failures.pop(key, None)
        self._not_yet.pop(key, None)

    # --- taking

    @property
    def available(self) -> int:
        """How many keys can be taken at once."""
        return len(self._turns)

    def pop(self) -> Key | None:
        """The next key, if there is one that may be worked on; it stays in flight until done() is
        called."""
        if not self._turns or self._closed:
            return None
        name = self._turns.popleft()
        lane = self._lanes[name]
        lane.has_turn = False
        key, since_s = lane.take()
        if self.on_pop is not None:
            self.on_pop(asyncio.get_running_loop().time() - since_s)
        self._in_flight[key] = False
        lane.busy += 1
        if len(lane.ready) <= self._lane_max // 2:
            lane.make_room()
        self._take_turns(name, lane)
        return key

    def done(self, key: Key) -> None:
        wanted = self._in_flight.pop(key)
        name = self._places.pop(key)
        lane = self._lanes[name]
        lane.busy -= 1
        if wanted and not self._pauses.gathers(key):
            self._make_ready(key)
        self._take_turns(name, lane)
        if not lane.ready and not lane.busy:
            lane.make_room()
            self._leave(name)

    def drop(self, plane: PlaneName) -> None:
        """Forget all work on a plane that is not engaged any more."""
        self._timers.drop(plane)
        self._pauses.drop(plane)
        for counts in (self._failures, self._not_yet):
            for key in [key for key in counts if key.plane == plane]:
                del counts[key]
        for key in self._in_flight:
            if key.plane == plane:
                self._in_flight[key] = False
        for lane in self._lanes.values():
            for key in [key for key in lane.ready if key.plane == plane]:
                lane.remove(key)
                del self._places[key]
            lane.make_room()
        self._turns = deque(name for name in self._turns if self._keeps_turn(name))

    def close(self) -> None:
        """Nothing is handed out any more."""
        self._closed = True
        self.on_available = _nobody
        self._timers.close()
        self._pauses.close()

    # --- lanes

    def _make_ready(self, key: Key) -> None:
        name = self._places[key] = self.lane(key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            self._bustle.begin(name)
        lane.add(key, self._flow_of(key), asyncio.get_running_loop().time())
        self._take_turns(name, lane)

    def _take_turns(self, name: str, lane: _Lane) -> None:
        if lane.ready and lane.busy < self._share and not lane.has_turn:
            lane.has_turn = True
            self._turns.append(name)
            self.on_available()

    def _keeps_turn(self, name: str) -> bool:
        lane = self._lanes[name]
        lane.has_turn = bool(lane.ready)
        if not lane.ready and not lane.busy:
            self._leave(name)
        return lane.has_turn

    def _leave(self, name: str) -> None:
        """The lane is empty, and nobody works on it."""
        del self._lanes[name]
        self._bustle.end(name)
