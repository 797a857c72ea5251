"""Fair sharing of the event loop between requests, and limits on the requests that wait for it.

One event loop serves all users, so fairness is the order in which runnable requests get the loop.
``FlowControl`` measures how long each request occupies the loop and admits work in turns. A turn is
one pass of the loop:

- While nothing waits and the turn has used less than ``TURN_S``, a request runs at once. This is
  the normal case and costs about a microsecond.
- A flow that has used less than its share runs at once as well, until the turn has used
  ``BYPASS_S``: among the planes of its level it would be served next.
- All other work waits. Each turn admits waiting work for about ``TURN_S``, in fair order. Between
  two turns the loop reads sockets, so that new requests take part in the next turn.

A request that has begun and waits for something else, such as a commit, continues at once when that
has happened, until the turn has used ``RESUME_S``: one commit wakes hundreds of requests.

A request that works on many objects calls ``LoopWork.has_used_slice`` between two objects. After
``SLICE_S`` it lets other requests run with ``LoopWork.yield_loop``.

Work is never interrupted. The time in which a request waits is not charged. A watch or another
long-running request is charged for the events that it encodes; while it waits for events, it does
not count as a waiting request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from types import coroutine as generator_coroutine
from typing import Any, TypeVar

import msgspec

from datum_compute.api.errors import TooManyRequests
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol.fair_queue import (
    LEVELS,
    FairQueue,
    Flow,
    PriorityLevel,
    level_of,
)

TURN_S = 0.0006
# A request waits for the slice in progress and for one more turn, so a slice is as short as a turn.
SLICE_S = 0.0005
RESUME_S = 0.001
BYPASS_S = 0.010
# Cost of a piece of work outside its handler: reading, parsing, switching tasks, encrypting.
OVERHEAD_S = 0.00002

R = TypeVar("R")
T = TypeVar("T")

_ANONYMOUS_USER = "system:anonymous"


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits on waiting requests. A request that exceeds one is rejected with 429."""

    flow_requests_max: int = 256  # of one user on one plane
    flow_bytes_max: int = 32 * 1024 * 1024  # bodies of the requests of one user on one plane
    level_requests_max: int = 5000  # of all users of a priority level
    wait_max_s: float = 15.0
    retry_after_s: int = 1
    # The response to a rejected request is delayed by this, so that a client that ignores
    # Retry-After does not keep the server busy with rejections.
    rejection_delay_s: float = 0.5


@dataclass(slots=True)
class LevelCounts:
    """Counters of one priority level since the server started."""

    work_s: float = 0.0
    waited: int = 0
    waited_s: float = 0.0
    rejected: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("queue-full", "bytes-full", "level-full", "time-out"), 0
        )
    )


class _Waiting:
    __slots__ = ("future", "has_begun", "since_s", "size_bytes")

    def __init__(self, future: asyncio.Future[float], size_bytes: int, has_begun: bool) -> None:
        self.future = future  # the result is the estimated cost that was charged
        self.size_bytes = size_bytes
        self.has_begun = has_begun
        self.since_s = future.get_loop().time()


class LoopWork(msgspec.Struct):
    """The work of one request or watch on the event loop. Without a flow it never waits."""

    control: FlowControl
    flow: Flow[_Waiting] | None = None
    started_s: float = 0.0  # start of the current piece of work
    charged_s: float = 0.0  # estimate charged for the current piece before it started

    # --- around each piece of work

    def start(self) -> None:
        self.started_s = self.control.clock()

    def stop(self) -> None:
        control = self.control
        cost_s = control.clock() - self.started_s
        if cost_s > 0.0:
            control.record_use(self.flow, self.charged_s, cost_s)
            self.charged_s = 0.0

    # --- between two pieces of work

    def has_used_slice(self) -> bool:
        """Return True if the current piece of work has used ``SLICE_S``: call ``yield_loop``."""
        return self.control.clock() - self.started_s >= SLICE_S

    def yield_loop(self) -> Coroutine[Any, Any, None]:
        """Let other requests run, then continue in fair order, before other work of the flow."""
        return self.control.resume_in_turn(self, first=True)

    def wait_to_stream(self) -> Coroutine[Any, Any, None]:
        """Wait until a watch can encode events, in fair order, after other work of the flow."""
        return self.control.resume_in_turn(self, first=False)

    def can_stream(self) -> bool:
        """Return True if a watch can encode events now; otherwise call ``wait_to_stream``."""
        return self.flow is None or self.flow.level.system or self.control.can_run(self.flow)

    async def run_part(self, part: Coroutine[Any, Any, R]) -> R:
        """Run a part of the request as a separate piece of work, in fair order."""
        work = LoopWork(self.control, self.flow)
        if self.flow is not None and not self.control.can_run(self.flow):
            await self.control.resume_in_turn(work, first=False)
        return await run_measured(work, part)


class FlowControl:
    """Admits requests in fair order and rejects requests above the limits.

    ``clock`` measures work in seconds. With a stopped clock no request waits, which keeps
    simulations deterministic.
    """

    def __init__(self, clock: Callable[[], float], limits: FlowLimits | None = None) -> None:
        self.clock = clock
        self.limits = limits or FlowLimits()
        self.counts = {level: LevelCounts() for level in LEVELS}
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._root = self._queue.root  # read for every request
        self._waiting_requests = dict.fromkeys(LEVELS, 0)  # without work that has begun
        self._used_s = 0.0  # time used in the current turn
        self._is_turn_scheduled = False

    def __len__(self) -> int:
        """Return how many requests wait, including those that have begun and yielded the loop."""
        return len(self._queue)

    def waiting(self, level: PriorityLevel) -> int:
        """Return how many requests of a level wait and have not begun."""
        return self._waiting_requests[level]

    # --- flows

    def flow_of(
        self, user: User | None, plane: PlaneName, resource: str = ""
    ) -> Flow[_Waiting] | None:
        """Return the flow of a request; None if its level is exempt."""
        if user is None:
            return self._queue.flow(level_of(None), plane, _ANONYMOUS_USER)
        level = level_of(user, resource)
        return None if level.exempt else self._queue.flow(level, plane, user.name)

    # --- running

    def record_use(self, flow: Flow[_Waiting] | None, charged_s: float, cost_s: float) -> None:
        """Record the cost of a piece of work that has ended.

        While no request waits, the flow is not charged: no other flow is delayed. An estimate that
        was charged is always replaced with the cost.
        """
        used_s = self._used_s = self._used_s + cost_s + OVERHEAD_S
        if not self._is_turn_scheduled:
            self._schedule_turn()
        if flow is None:
            return
        self.counts[flow.level].work_s += cost_s
        if charged_s or used_s >= TURN_S or self._root.waiting:
            self._queue.settle(flow, charged_s, cost_s)
        elif cost_s > flow.estimate_s:
            flow.estimate_s = cost_s

    def can_run(self, flow: Flow[_Waiting]) -> bool:
        """Return True if new work of the flow can begin now."""
        if self._used_s < TURN_S and not self._root.waiting:
            return True
        return self._used_s < BYPASS_S and not self._queue.is_over_share(flow)

    def must_wait_to_resume(self, flow: Flow[_Waiting] | None) -> bool:
        """Return True if work that has begun must wait for a turn before it continues."""
        return self._used_s >= RESUME_S and flow is not None and not flow.level.system

    # --- waiting

    async def admit(self, work: LoopWork, size_bytes: int = 0) -> None:
        """Wait until the request can begin. Raises TooManyRequests at a limit."""
        flow = work.flow
        if flow is None or self.can_run(flow):
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
        self._waiting_requests[flow.level] += 1
        self._queue.push(flow, waiting)
        if self._waiting_requests[flow.level] > limits.level_requests_max:
            self._reject_newest(flow.level)
        self._schedule_turn()
        try:
            charged_s = await waiting.future
        except TooManyRequests:
            await asyncio.sleep(limits.rejection_delay_s)
            raise
        work.charged_s += charged_s  # it may have waited for two turns
        waited_s = asyncio.get_running_loop().time() - waiting.since_s
        counts = self.counts[flow.level]
        counts.waited += 1
        counts.waited_s += waited_s

    async def resume_in_turn(self, work: LoopWork, *, first: bool) -> None:
        """Let other requests run, then continue work that has begun. It is never rejected."""
        if work.flow is None:
            await asyncio.sleep(0)
            return
        waiting = _Waiting(asyncio.get_running_loop().create_future(), 0, True)
        self._queue.push(work.flow, waiting, first=first)
        self._schedule_turn()
        charged_s = await waiting.future
        work.charged_s += charged_s

    async def _reject(self, flow: Flow[_Waiting], reason: str) -> None:
        self.counts[flow.level].rejected[reason] += 1
        await asyncio.sleep(self.limits.rejection_delay_s)
        raise self._build_rejection(flow, reason)

    def _build_rejection(self, flow: Flow[_Waiting], reason: str) -> TooManyRequests:
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
        found = self._queue.pop_newest(level, lambda waiting: not waiting.has_begun)
        if found is None:
            return
        flow, waiting = found
        self._count_departure(flow, waiting)
        if not waiting.future.done():
            self.counts[level].rejected["level-full"] += 1
            waiting.future.set_exception(self._build_rejection(flow, "level-full"))

    def _count_departure(self, flow: Flow[_Waiting], waiting: _Waiting) -> None:
        """Update the counters for work that has left the queue."""
        if not waiting.has_begun:
            flow.requests -= 1
            flow.size_bytes -= waiting.size_bytes
            self._waiting_requests[flow.level] -= 1

    def _has_timed_out(self, flow: Flow[_Waiting], waiting: _Waiting, now_s: float) -> bool:
        if waiting.has_begun or flow.level.system:
            return False
        return now_s - waiting.since_s > self.limits.wait_max_s

    # --- turns

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        """Start a turn: the work that it admits runs before the next turn starts."""
        self._used_s = 0.0
        self._is_turn_scheduled = False
        if not self._root.waiting:
            self._queue.start_busy_period()
            return
        now_s = asyncio.get_running_loop().time()
        admitted_s = 0.0
        next_s = 0.0  # the next work probably costs as much as the last one
        while admitted_s + next_s < TURN_S and (found := self._queue.pop()) is not None:
            flow, waiting = found
            estimate_s = flow.estimate_s
            self._count_departure(flow, waiting)
            if waiting.future.done():  # the request was cancelled
                self._queue.charge(flow, -estimate_s)
            elif self._has_timed_out(flow, waiting, now_s):
                self._queue.charge(flow, -estimate_s)
                self.counts[flow.level].rejected["time-out"] += 1
                waiting.future.set_exception(self._build_rejection(flow, "time-out"))
            else:
                next_s = estimate_s + OVERHEAD_S
                admitted_s += next_s
                waiting.future.set_result(estimate_s)
        self._schedule_turn()


def stopped_clock() -> float:
    """A clock that always returns 0, so that no request waits."""
    return 0.0


async def filter_in_turns(
    work: LoopWork, matches: Callable[[T], object], items: Iterable[T]
) -> list[T]:
    """``filter`` that lets other requests run after each slice."""
    found: list[T] = []
    for item in items:
        if matches(item):
            found.append(item)
        if work.has_used_slice():  # for each item: one may need milliseconds
            await work.yield_loop()
    return found


async def map_in_turns(work: LoopWork, convert: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``map`` that lets other requests run after each slice."""
    converted: list[R] = []
    for item in items:
        converted.append(convert(item))
        if work.has_used_slice():
            await work.yield_loop()
    return converted


@generator_coroutine
def run_measured(work: LoopWork, request: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Run a request and charge the time between its awaits to its flow."""
    value: Any = None
    error: BaseException | None = None
    control = work.control
    clock = control.clock
    while True:
        work.started_s = clock()
        try:
            awaited = request.send(value) if error is None else request.throw(error)
        except StopIteration as ended:
            result: R = ended.value
            return result
        finally:
            work.stop()
        value = error = None
        try:
            value = yield awaited
            if control.must_wait_to_resume(work.flow):
                yield from control.resume_in_turn(work, first=True).__await__()
        except GeneratorExit:
            request.close()
            raise
        except BaseException as raised:
            error = raised
