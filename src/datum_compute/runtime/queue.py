"""A queue of keys: each waits at most once, is never in flight twice, and may wait for later.

A key added while it is being worked on waits until that work is done, then comes up again.

Keys stand in lanes, by default one for each plane. Lanes take turns, and of each lane only
``share`` keys are worked on at once: neither a flood nor a plane that never answers costs another
lane more than its turn. A key stays in the lane that it was put into until it is done, whatever is
said of it meanwhile; where nobody can say, it stands in that of its plane.

After a pass that asked for a pause (``pauses.py``) wake-ups of its key are gathered for a while
before it comes up again.

A lane holds at most ``lane_max`` keys from ``offer``, which refuses what does not fit; the caller
must come back with it when there is ``room``. Deletions, retries and delays are never refused:
nobody could repeat them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from random import Random

from datum_compute.api.plane import PlaneName
from datum_compute.client.backoff import Backoff
from datum_compute.runtime.bustle import Bustle
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Pause
from datum_compute.runtime.pauses import Pauses
from datum_compute.runtime.timers import Timers

LANE_MAX = 50_000
NOT_YET = Backoff(first_s=0.01, most_s=2.0)

_log = logging.getLogger(__name__)


class _Lane:
    __slots__ = ("busy", "has_turn", "ready", "room")

    def __init__(self) -> None:
        self.ready: OrderedDict[Key, float] = OrderedDict()  # and since when each waits
        self.busy = 0
        self.has_turn = False
        self.room: asyncio.Event | None = None  # once somebody waits for it

    def make_room(self) -> None:
        if self.room is not None:
            self.room.set()


def plane_of(key: Key) -> str:
    return key.plane


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
        lane_max: int = LANE_MAX,
        bustle: Bustle | None = None,
    ) -> None:
        self._random = random
        self._backoff = backoff
        self._share = share
        self._lane_of = lane_of
        self._lane_max = lane_max
        self._lanes: dict[str, _Lane] = {}
        self._places: dict[Key, str] = {}  # lanes of the keys that wait or are in flight
        self._turns: deque[str] = deque()
        self._in_flight: dict[Key, bool] = {}  # and whether it is wanted again
        self._timers = Timers(self.add)
        self._failures: dict[Key, int] = {}
        self._not_yet: dict[Key, int] = {}
        self._bustle = Bustle() if bustle is None else bustle
        self._pauses = Pauses(self._make_ready, self._bustle)
        self._closed = False
        self._is_odd = False
        self.on_turn: Callable[[], None] = _nobody  # told of each turn that somebody may take
        self.on_take: Callable[[float], None] | None = None  # told how long each key waited

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
        firsts = [next(iter(lane.ready.values())) for lane in self._lanes.values() if lane.ready]
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
        full = lane.ready if lane is not None and len(lane.ready) >= self._lane_max else None
        if full is not None and key not in full and key not in self._in_flight:
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

    def pause(self, key: Key, pause: Pause | None) -> None:
        """The key was worked on; for a while its wake-ups are gathered."""
        if pause is not None:
            self._pauses.begin(key, pause)

    def forget(self, key: Key) -> None:
        """The key succeeded: its failures no longer count."""
        self._failures.pop(key, None)
        self._not_yet.pop(key, None)

    # --- taking

    @property
    def turns(self) -> int:
        """How many keys can be taken at once."""
        return len(self._turns)

    def take_now(self) -> Key | None:
        """The next key, if there is one that may be worked on; it stays in flight until done() is
        called."""
        if not self._turns or self._closed:
            return None
        name = self._turns.popleft()
        lane = self._lanes[name]
        lane.has_turn = False
        key, since_s = lane.ready.popitem(last=False)
        if self.on_take is not None:
            self.on_take(asyncio.get_running_loop().time() - since_s)
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
                del lane.ready[key], self._places[key]
            lane.make_room()
        self._turns = deque(name for name in self._turns if self._keeps_turn(name))

    def close(self) -> None:
        """Nothing is handed out any more."""
        self._closed = True
        self.on_turn = _nobody
        self._timers.close()
        self._pauses.close()

    # --- lanes

    def _make_ready(self, key: Key) -> None:
        name = self._places[key] = self.lane(key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
            self._bustle.begin(name)
        lane.ready.setdefault(key, asyncio.get_running_loop().time())
        self._take_turns(name, lane)

    def _take_turns(self, name: str, lane: _Lane) -> None:
        if lane.ready and lane.busy < self._share and not lane.has_turn:
            lane.has_turn = True
            self._turns.append(name)
            self.on_turn()

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
