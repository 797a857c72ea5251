"""The machines that may sleep: puts to sleep who has had no connection for a while, and wakes whom
a connection needs.

Rules it keeps:
- a machine with a connection, open or only waiting for it, is never put to sleep;
- a machine is put to sleep or woken, never both, and any number of connections wake it once;
- a connection that comes while its machine falls asleep waits for that, and then wakes it;
- who is not known to be awake is woken: for one that is, that costs nothing.

It knows no sockets: ``balance.py`` tells it who is connected, and the simulator runs it as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from datum_compute.api.planes import PlaneName
from datum_compute.drivers.driver import Driver, DriverError, MachineState, NotObserved
from datum_compute.drivers.traffic import Backend, SleepPolicy
from datum_compute.ingress.activations import WakeBook, WakeTimes

# A look at whether it is ready by now: soon at first, then less often.
LOOK_S, LOOK_MAX_S = 0.002, 0.1
# What an engine may take for anything.
ENGINE_S = 30.0
# What others say of a machine is older than what we did to it ourselves within this time.
OWN_WORD_S = 10.0

_log = logging.getLogger(__name__)


class Rank(IntEnum):
    """Who is asked first to take a connection."""

    AWAKE = 0
    WAKING = 1
    ASLEEP = 2


class NotWoken(Exception):
    """It does not serve in time; the message says why."""


@dataclass(slots=True)
class _Sleeper:
    machine_id: str
    cell: PlaneName
    policy: SleepPolicy
    seems_asleep: bool
    changed_s: float
    is_awake: bool = False  # for sure
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waking: asyncio.Task[WakeTimes] | None = None
    idle: asyncio.TimerHandle | None = None


class IdleScaler:
    def __init__(
        self, drivers: Mapping[PlaneName, Driver], elapsed_s: Callable[[], float], book: WakeBook
    ) -> None:
        self._drivers = drivers
        self._elapsed_s = elapsed_s
        self._book = book
        self._known: dict[str, _Sleeper] = {}
        self._connections: dict[str, int] = {}  # of all machines that have any
        self._tasks: set[asyncio.Task[None]] = set()

    # --- who there is

    def take_over(self, backends: Iterable[Backend]) -> None:
        """Of a new one the clock begins now, whatever it did before we were there."""
        for backend in backends:
            known = self._known.get(backend.machine_id)
            if backend.sleep is None:
                continue
            if known is None:
                known = self._known[backend.machine_id] = _Sleeper(
                    backend.machine_id,
                    backend.cell,
                    backend.sleep,
                    backend.asleep,
                    self._elapsed_s() - OWN_WORD_S,
                )
                self._begin_idling(known)
            known.policy = backend.sleep
            if self._elapsed_s() - known.changed_s >= OWN_WORD_S:
                known.seems_asleep = backend.asleep
                known.is_awake = known.is_awake and not backend.asleep
        self._book.count(sum(s.seems_asleep for s in self._known.values()), len(self._known))

    def keep_only(self, machine_ids: Iterable[str]) -> None:
        """Those that are just being woken or put to sleep are forgotten later: if they come back
        meanwhile, nobody must begin anew with them."""
        kept = frozenset(machine_ids)
        busy = {m for m, s in self._known.items() if s.waking is not None or s.turn.locked()}
        for machine_id in [m for m in self._known if m not in kept and m not in busy]:
            self._stop_idling(self._known.pop(machine_id))

    async def close(self) -> None:
        ending = [*self._tasks, *(s.waking for s in self._known.values() if s.waking is not None)]
        for sleeper in self._known.values():
            self._stop_idling(sleeper)
        self._known.clear()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    # --- what connections do

    def rank(self, machine_id: str) -> Rank:
        sleeper = self._known.get(machine_id)
        if sleeper is None or sleeper.is_awake:
            return Rank.AWAKE
        if sleeper.waking is not None:
            return Rank.WAKING
        return Rank.ASLEEP if sleeper.seems_asleep else Rank.AWAKE

    def is_awake(self, machine_id: str) -> bool:
        """For sure."""
        sleeper = self._known.get(machine_id)
        return sleeper is None or sleeper.is_awake

    def hold_s(self, machine_ids: Iterable[str]) -> float:
        """The longest that a connection may have to wait for one of them."""
        known = (self._known.get(machine_id) for machine_id in machine_ids)
        return max((s.policy.hold_s for s in known if s is not None), default=0.0)

    def connections(self, machine_id: str) -> int:
        """Also of machines that never sleep."""
        return self._connections.get(machine_id, 0)

    def enter(self, machine_id: str) -> None:
        self._connections[machine_id] = self.connections(machine_id) + 1
        if (sleeper := self._known.get(machine_id)) is not None:
            self._stop_idling(sleeper)

    def leave(self, machine_id: str) -> None:
        left = self._connections.pop(machine_id) - 1
        if left:
            self._connections[machine_id] = left
        elif (sleeper := self._known.get(machine_id)) is not None:
            self._begin_idling(sleeper)

    async def awake(self, machine_id: str, arrived_s: float) -> WakeTimes | None:
        """When this returns the machine serves, to the best of our knowledge. Only for who has
        entered. The times are for the one who had it woken."""
        sleeper = self._known.get(machine_id)
        if sleeper is None or sleeper.is_awake:
            return None
        if sleeper.waking is None:
            sleeper.waking = asyncio.create_task(self._wake(sleeper, arrived_s))
            sleeper.waking.add_done_callback(_heard)
            return await asyncio.shield(sleeper.waking)
        await asyncio.shield(sleeper.waking)
        return None

    def wake_in_background(self, machine_id: str) -> None:
        """Wake it for whoever comes next; nobody waits."""
        sleeper = self._known.get(machine_id)
        if sleeper is not None and not sleeper.is_awake and sleeper.waking is None:
            task = asyncio.create_task(self._rouse(machine_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def note_refusal(self, machine_id: str) -> None:
        """It did not accept: what we know of it may be wrong."""
        sleeper = self._known.get(machine_id)
        if sleeper is not None:
            sleeper.is_awake = False

    # --- waking

    async def _rouse(self, machine_id: str) -> None:
        self.enter(machine_id)
        try:
            times = await self.awake(machine_id, self._elapsed_s())
            if times is not None:
                self._book.close(times)
        except NotWoken as error:
            _log.info("%s: %s", machine_id, error)
        finally:
            self.leave(machine_id)

    async def _wake(self, sleeper: _Sleeper, arrived_s: float) -> WakeTimes:
        """In a task of its own: it goes on when the connection that began it is given up."""
        times = WakeTimes(sleeper.cell, sleeper.machine_id, sleeper.policy.mode, arrived_s)
        try:
            async with asyncio.timeout(sleeper.policy.hold_s), sleeper.turn:
                driver = self._drivers[sleeper.cell]
                times.engine_s = await driver.wake(sleeper.machine_id)
                times.executes_s = self._elapsed_s()
                await self._ready(sleeper)
        except (TimeoutError, DriverError, NotWoken) as error:
            why = str(error) or f"it was not ready within {sleeper.policy.hold_s:g} s"
            if sleeper.seems_asleep or times.engine_s:
                self._book.failed(times, why)
            # One that executes and does not serve is no sleeper any more.
            sleeper.seems_asleep = sleeper.seems_asleep and not times.executes_s
            raise NotWoken(why) from None
        else:
            times.counts = bool(times.engine_s) or sleeper.seems_asleep
            self._changed(sleeper, is_awake=True)
            return times
        finally:
            sleeper.waking = None

    async def check(self, cell: PlaneName, machine_id: str) -> bool:
        """Whether one that was woken is ready; raises NotWoken if it will not be. Also of one that
        has failed meanwhile, and is nobody's backend for that."""
        try:
            state = await self._drivers[cell].observe(machine_id)
        except DriverError as error:
            raise NotWoken(str(error)) from error
        if state is None:
            raise NotWoken("its machine is gone")
        if isinstance(state, NotObserved):
            return True  # an adopted machine may serve already; the attempt to connect decides
        if state.phase in ("Failed", "Stopped"):
            raise NotWoken(state.message or state.reason or state.phase)
        return state.phase == "Running" and not state.reason

    async def _ready(self, sleeper: _Sleeper) -> None:
        look_s = LOOK_S
        while not await self.check(sleeper.cell, sleeper.machine_id):
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, LOOK_MAX_S)

    # --- falling asleep

    def _begin_idling(self, sleeper: _Sleeper) -> None:
        self._stop_idling(sleeper)
        if self.connections(sleeper.machine_id):
            return
        loop = asyncio.get_running_loop()
        sleeper.idle = loop.call_later(sleeper.policy.idle_after_s, self._is_idle, sleeper)

    def _stop_idling(self, sleeper: _Sleeper) -> None:
        if sleeper.idle is not None:
            sleeper.idle.cancel()
            sleeper.idle = None

    def _is_idle(self, sleeper: _Sleeper) -> None:
        sleeper.idle = None
        task = asyncio.create_task(self._put_to_sleep(sleeper))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _put_to_sleep(self, sleeper: _Sleeper) -> None:
        async with sleeper.turn:
            # From here to the driver nothing else runs: nobody can come in between.
            if self._is_needed(sleeper):
                return
            was_awake = not sleeper.seems_asleep
            self._changed(sleeper, is_awake=False)
            asleep = await self._slept(sleeper)
            if was_awake:
                self._book.slept(sleeper.policy.mode, asleep=asleep)
            if not asleep:  # not now, or never any more; it is asked again after the same time
                sleeper.seems_asleep = False
                self._begin_idling(sleeper)

    async def _slept(self, sleeper: _Sleeper) -> bool:
        driver, policy = self._drivers[sleeper.cell], sleeper.policy
        try:
            async with asyncio.timeout(policy.hold_s + ENGINE_S):
                await driver.sleep(sleeper.machine_id, policy.mode)
                state = await driver.observe(sleeper.machine_id)
        except (DriverError, TimeoutError) as error:
            _log.info("%s cannot be put to sleep: %s", sleeper.machine_id, error)
            return False
        return isinstance(state, MachineState) and state.phase == "Sleeping"

    def _is_needed(self, sleeper: _Sleeper) -> bool:
        gone = self._known.get(sleeper.machine_id) is not sleeper
        return gone or self.connections(sleeper.machine_id) > 0

    def _changed(self, sleeper: _Sleeper, *, is_awake: bool) -> None:
        sleeper.is_awake = is_awake
        sleeper.seems_asleep = not is_awake
        sleeper.changed_s = self._elapsed_s()
        self._book.count(sum(s.seems_asleep for s in self._known.values()), len(self._known))


def _heard(task: asyncio.Task[WakeTimes]) -> None:
    """Whoever waited for it may be gone: its failure is in the book, and no news to the loop."""
    if not task.cancelled():
        task.exception()
