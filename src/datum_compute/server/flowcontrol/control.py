"""Fair sharing of the event loop between requests, and the limits of what may wait for it.

One loop serves everybody, so fairness is the order in which requests that could run get the loop.
``FlowControl`` measures how long each request occupies the loop and admits work in turns. A turn is
one pass of the loop:

- While nothing waits and the turn has used less than ``TURN_S``, a request runs at once. This is
  the normal case and costs about a microsecond.
- A flow that has used less than its share runs at once as well, until the turn has used
  ``BYPASS_S``: the fair order would serve it next anyway.
- Everything else waits. Each turn admits waiting work for about ``TURN_S``, in fair order; between
  two turns the loop reads sockets, so that new requests take part.

A request that works on many objects calls ``Work.is_due`` between them and gives up the loop with
``Work.take_turn`` after ``SLICE_S``.

Work is never interrupted, and time in which a request waits for something else, such as a commit,
is not charged. A watch or another long-running request is charged for what it encodes; it occupies
no place here while it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from types import coroutine as generator_coroutine
from typing import Any, TypeVar

import msgspec

from datum_compute.api.errors import TooManyRequests
from datum_compute.api.plane import PlaneName
from datum_compute.server.authentication import User
from datum_compute.server.flowcontrol.fair_queue import FairQueue, Flow
from datum_compute.server.flowcontrol.levels import LEVELS, PriorityLevel, level_of

TURN_S = 0.0015
SLICE_S = 0.002
BYPASS_S = 0.010
# What a piece of work costs the loop beside the work itself: reading, parsing, encrypting.
OVERHEAD_S = 0.00003

R = TypeVar("R")
T = TypeVar("T")

_ANONYMOUS_USER = "system:anonymous"
_LOOKUPS_MAX = 4096
_ITEMS_AT_ONCE = 8  # between two looks at the clock


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """What may wait before requests are rejected with 429."""

    flow_requests_max: int = 256  # of one user on one plane
    flow_bytes_max: int = 32 * 1024 * 1024  # their bodies
    level_requests_max: int = 5000  # of all users of a priority level
    wait_max_s: float = 15.0
    retry_after_s: int = 1
    # A rejection is held back that long, so that a client that ignores Retry-After does not spend
    # the server's time on rejections.
    rejection_delay_s: float = 0.5


@dataclass(slots=True)
class LevelCounts:
    """What happened at one priority level since the start."""

    work_s: float = 0.0
    waited: int = 0
    waited_s: float = 0.0
    rejected: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("queue-full", "bytes-full", "level-full", "time-out"), 0
        )
    )


class _Waiting:
    __slots__ = ("future", "is_rest", "since_s", "size_bytes")

    def __init__(self, future: asyncio.Future[float], size_bytes: int, is_rest: bool) -> None:
        self.future = future  # its result is the estimate that was charged
        self.size_bytes = size_bytes
        self.is_rest = is_rest
        self.since_s = future.get_loop().time()


class Work(msgspec.Struct):
    """What one request, or one watch, does on the loop. Without a flow it is not limited."""

    control: FlowControl
    flow: Flow[_Waiting] | None = None
    started_s: float = 0.0  # the current piece of work
    charged_s: float = 0.0  # for it, before it began

    # --- around each piece of work

    def start(self) -> None:
        self.started_s = self.control.clock()

    def stop(self) -> None:
        control = self.control
        cost_s = control.clock() - self.started_s
        if cost_s > 0.0:
            control.note_used(self.flow, self.charged_s, cost_s)
            self.charged_s = 0.0

    # --- between two pieces of work

    def is_due(self) -> bool:
        """Whether the current piece has taken so long that others must get a turn."""
        return self.control.clock() - self.started_s >= SLICE_S

    def take_turn(self) -> Coroutine[Any, Any, None]:
        """Give up the loop, and go on in the fair order, before other work of the flow."""
        return self.control.wait_for_rest(self, first=True)

    def take_turn_to_stream(self) -> Coroutine[Any, Any, None]:
        """Wait until a watch may encode events, after other work of the flow."""
        return self.control.wait_for_rest(self, first=False)

    def may_stream(self) -> bool:
        """Whether a watch may encode events now; otherwise call ``take_turn_to_stream``."""
        return self.flow is None or self.flow.level.system or self.control.may_run(self.flow)

    async def run_part(self, part: Coroutine[Any, Any, R]) -> R:
        """Run a part of the request that has its own task, in its own turn."""
        work = Work(self.control, self.flow)
        if self.flow is not None and not self.control.may_run(self.flow):
            await self.control.wait_for_rest(work, first=False)
        return await run_measured(work, part)


class FlowControl:
    """``clock`` measures work in seconds. A clock that stands still turns all waiting off, which is
    how a simulation stays deterministic."""

    def __init__(self, clock: Callable[[], float], limits: FlowLimits | None = None) -> None:
        self.clock = clock
        self.limits = limits or FlowLimits()
        self.counts = {level: LevelCounts() for level in LEVELS}
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._everything = self._queue.root  # read for every request
        self._lookups: dict[tuple[str, tuple[str, ...], PlaneName, bool], Flow[_Waiting] | None]
        self._lookups = {}
        self._requests = dict.fromkeys(LEVELS, 0)  # that wait and have not begun
        self._used_s = 0.0  # of the current turn
        self._turn_is_open = False

    def __len__(self) -> int:
        """How much work waits: requests, and the rest of what has begun."""
        return len(self._queue)

    def waiting(self, level: PriorityLevel) -> int:
        """How many requests of a level wait and have not begun."""
        return self._requests[level]

    # --- who is charged

    def flow_of(
        self, user: User | None, plane: PlaneName, resource: str = ""
    ) -> Flow[_Waiting] | None:
        """The flow that a request belongs to; None if its level is exempt."""
        if user is None:
            return self._queue.flow(level_of(None), plane, _ANONYMOUS_USER)
        key = (user.name, user.groups, plane, resource == "leases")
        try:
            return self._lookups[key]
        except KeyError:
            pass
        if len(self._lookups) >= _LOOKUPS_MAX:
            self._lookups.clear()
        level = level_of(user, resource)
        flow = None if level.exempt else self._queue.flow(level, plane, user.name)
        self._lookups[key] = flow
        return flow

    # --- running

    def note_used(self, flow: Flow[_Waiting] | None, charged_s: float, cost_s: float) -> None:
        """A piece of work has ended.

        While nothing waits it is not charged: there is nobody to be fair to, and a flow gets no
        credit for idle time either.
        """
        used_s = self._used_s = self._used_s + cost_s + OVERHEAD_S
        if not self._turn_is_open:
            self._open_turn()
        if flow is None:
            return
        self.counts[flow.level].work_s += cost_s
        if used_s >= TURN_S or self._everything.waiting:
            self._queue.settle(flow, charged_s, cost_s)
        elif cost_s > flow.estimate_s:
            flow.estimate_s = cost_s

    def may_run(self, flow: Flow[_Waiting]) -> bool:
        """Whether new work of the flow may begin now."""
        if self._used_s < TURN_S and not self._everything.waiting:
            return True
        return self._used_s < BYPASS_S and not self._queue.owes(flow)

    # --- waiting

    async def admit(self, work: Work, size_bytes: int = 0) -> None:
        """Wait until the request may begin; raises TooManyRequests if too many wait already."""
        flow = work.flow
        if flow is None or self.may_run(flow):
            return
        limits = self.limits
        if not flow.level.system:
            if flow.requests >= limits.flow_requests_max:
                await self._reject(flow, "queue-full")
            if flow.size_bytes + size_bytes > limits.flow_bytes_max:
                await self._reject(flow, "bytes-full")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), size_bytes, False)
        flow.requests += 1
        flow.size_bytes += size_bytes
        self._requests[flow.level] += 1
        self._queue.push(flow, waiting)
        if self._requests[flow.level] > limits.level_requests_max:
            self._reject_newest(flow.level)
        self._open_turn()
        try:
            work.charged_s = await waiting.future
        except TooManyRequests:
            await asyncio.sleep(limits.rejection_delay_s)
            raise
        waited_s = asyncio.get_running_loop().time() - waiting.since_s
        counts = self.counts[flow.level]
        counts.waited += 1
        counts.waited_s += waited_s

    async def wait_for_rest(self, work: Work, *, first: bool) -> None:
        """Let others run, then go on with work that has begun: never rejected."""
        if work.flow is None:
            await asyncio.sleep(0)
            return
        waiting = _Waiting(asyncio.get_running_loop().create_future(), 0, True)
        self._queue.push(work.flow, waiting, first=first)
        self._open_turn()
        work.charged_s = await waiting.future

    async def _reject(self, flow: Flow[_Waiting], reason: str) -> None:
        self.counts[flow.level].rejected[reason] += 1
        await asyncio.sleep(self.limits.rejection_delay_s)
        raise self._rejection(flow, reason)

    def _rejection(self, flow: Flow[_Waiting], reason: str) -> TooManyRequests:
        limits = self.limits
        why = {
            "queue-full": f'user "{flow.user}" already has {limits.flow_requests_max} requests '
            f'waiting on plane "{flow.plane}"',
            "bytes-full": f'the requests of user "{flow.user}" that wait on plane "{flow.plane}" '
            f"have bodies of {limits.flow_bytes_max // 1024} KiB",
            "level-full": f"{limits.level_requests_max} requests are waiting",
            "time-out": f"the request waited for more than {limits.wait_max_s:.0f} s",
        }[reason]
        return TooManyRequests(
            f"the server is busy, and {why}; send fewer requests at once and try again",
            retry_after_s=limits.retry_after_s,
        )

    def _reject_newest(self, level: PriorityLevel) -> None:
        found = self._queue.pop_newest(level)
        if found is None:
            return
        flow, waiting = found
        self._note_left(flow, waiting)
        if waiting.future.done():
            return
        if waiting.is_rest:
            waiting.future.set_result(0.0)
        else:
            self.counts[level].rejected["level-full"] += 1
            waiting.future.set_exception(self._rejection(flow, "level-full"))

    def _note_left(self, flow: Flow[_Waiting], waiting: _Waiting) -> None:
        """The work does not wait any more."""
        if not waiting.is_rest:
            flow.requests -= 1
            flow.size_bytes -= waiting.size_bytes
            self._requests[flow.level] -= 1

    def _is_late(self, flow: Flow[_Waiting], waiting: _Waiting, now_s: float) -> bool:
        if waiting.is_rest or flow.level.system:
            return False
        return now_s - waiting.since_s > self.limits.wait_max_s

    # --- turns

    def _open_turn(self) -> None:
        if not self._turn_is_open:
            self._turn_is_open = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Begin a turn: what is admitted now runs before the next one begins."""
        self._used_s = 0.0
        self._turn_is_open = False
        if not self._queue:
            return
        now_s = asyncio.get_running_loop().time()
        admitted_s = 0.0
        while admitted_s < TURN_S and (found := self._queue.pop()) is not None:
            flow, waiting = found
            estimate_s = flow.estimate_s
            self._note_left(flow, waiting)
            if waiting.future.done():  # the request was cancelled
                self._queue.charge(flow, -estimate_s)
            elif self._is_late(flow, waiting, now_s):
                self._queue.charge(flow, -estimate_s)
                self.counts[flow.level].rejected["time-out"] += 1
                waiting.future.set_exception(self._rejection(flow, "time-out"))
            else:
                admitted_s += estimate_s + OVERHEAD_S
                waiting.future.set_result(estimate_s)
        self._open_turn()


def standing_clock() -> float:
    """Measures nothing, so that nothing waits."""
    return 0.0


async def filter_in_turns(
    work: Work, matches: Callable[[T], object], items: Iterable[T]
) -> list[T]:
    """``filter``, with turns for others."""
    found: list[T] = []
    for number, item in enumerate(items):
        if matches(item):
            found.append(item)
        if not number % _ITEMS_AT_ONCE and work.is_due():
            await work.take_turn()
    return found


async def map_in_turns(work: Work, convert: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``map``, with turns for others."""
    made: list[R] = []
    for number, item in enumerate(items):
        made.append(convert(item))
        if not number % _ITEMS_AT_ONCE and work.is_due():
            await work.take_turn()
    return made


@generator_coroutine
def run_measured(work: Work, request: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Run a request and charge the time between its waits, piece by piece, to its flow."""
    value: Any = None
    error: BaseException | None = None
    clock = work.control.clock
    while True:
        work.started_s = clock()
        try:
            waits_for = request.send(value) if error is None else request.throw(error)
        except StopIteration as ended:
            result: R = ended.value
            return result
        finally:
            work.stop()
        value = error = None
        try:
            value = yield waits_for
        except GeneratorExit:
            request.close()
            raise
        except BaseException as raised:
            error = raised
