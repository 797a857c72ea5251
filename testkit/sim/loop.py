"""An event loop in virtual time whose schedule depends on a seed.

- Time stands still while a callback is ready, then jumps to the next timer.
- A seeded choice picks among the ready callbacks, so each seed is a schedule. The choice can be
  limited to a span of time; outside of it callbacks run in order.
- Tasks hash by the order of their creation, so that sets of tasks iterate alike in every process.
- No ready callback and no timer is a deadlock, and is reported as such.
- A callback of a crashed host never runs. A callback of a paused host waits until the host resumes.

Threads, sockets and signals are not supported and fail immediately.

``stream`` returns the random stream of a purpose. One more draw for the network does not shift the
schedule. A fault that draws has a stream of its own, named by its salt, so that leaving out one
fault shifts no other.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Literal, TypeVar

import msgspec

R = TypeVar("R")

_CANCEL_ROUNDS = 5
_TASKS_FEW = 1000

HOST: contextvars.ContextVar[str] = contextvars.ContextVar("HOST", default="")


# The span in which ready callbacks are picked at random.
Span = tuple[float, float]
ALWAYS: Span = (0.0, math.inf)
NEVER: Span = (0.0, 0.0)


class Deadlock(Exception):
    """No callback is ready and no timer is set."""


class ScheduledCall(msgspec.Struct):
    """A callback, with a time if it is scheduled. Replaces asyncio's handle: a world creates tens
    of thousands, and a struct is the fastest class to create."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context
    when_s: float
    is_cancelled: bool = False

    @property
    def host(self) -> str:
        return self.context.get(HOST, "")

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class SequencedTask(asyncio.Task[R]):
    """A task whose hash does not depend on its memory address."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], number: int, **options: Any) -> None:
        self._number = number
        context = options.get("context")
        self.host = HOST.get() if context is None else context.get(HOST, "")
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(self, random: Random, shuffled_s: Span = ALWAYS) -> None:
        self._random = random
        self._shuffled_from_s, self._shuffled_until_s = shuffled_s
        self._now_s = 0.0
        self._ready: list[ScheduledCall] = []
        # Ordered by time, then by creation. Tuples compare fastest.
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._timers_set = 0
        self._dead_hosts: set[str] = set()
        self._standing_still: dict[str, list[ScheduledCall]] = {}
        self._passed_over: list[
            ScheduledCall
        ] = []  # tasks of crashed hosts; cancelled when the run ends
        self._tasks: list[SequencedTask[Any]] = []
        self._tasks_made = 0
        self._tasks_tidy = _TASKS_FEW
        self._failure: BaseException | None = None

    def kill(self, host: str) -> None:
        """Stop the host: none of its callbacks runs again, and nothing is cleaned up."""
        self._dead_hosts.add(host)
        self._passed_over += self._standing_still.pop(host, [])

    def pause(self, host: str) -> None:
        """Pause the host: its callbacks run late, after it is resumed."""
        self._standing_still.setdefault(host, [])

    def resume(self, host: str) -> None:
        self._ready += self._standing_still.pop(host, [])

    def tasks_alive(self, host: str) -> int:
        """Count the tasks of the host that have not ended."""
        return sum(1 for task in self._tasks if task.host == host and not task.done())

    def run_until_complete(self, future: Any) -> Any:
        asyncio.events._set_running_loop(self)
        with _tasks_untracked():
            try:
                main = self.create_task(future)
                self._run_until(main.done)
                failure = self._failure
            finally:
                self._cancel_all_tasks()
                asyncio.events._set_running_loop(None)
        if failure is not None:
            raise failure
        return main.result()

    def _cancel_all_tasks(self) -> None:
        """Cancel all tasks at the end of a run, also those of crashed hosts."""
        self._dead_hosts.clear()
        self._timers.clear()
        self._ready += self._passed_over
        for host in list(self._standing_still):
            self.resume(host)
        for _ in range(_CANCEL_ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            while self._ready:
                self._failure = None  # errors no longer matter
                self._run_until(lambda: not self._ready)
        _retrieve_errors(self._tasks)
        # References from here must not keep a whole world alive.
        self._tasks.clear()
        self._timers.clear()

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        if context is None:
            context = contextvars.copy_context()
        call = ScheduledCall(callback, args, context, self._now_s)
        self._ready.append(call)
        return call

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        if context is None:
            context = contextvars.copy_context()
        call = ScheduledCall(callback, args, context, when)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, call))
        return call

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> ScheduledCall:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, R], **options: Any
    ) -> SequencedTask[R]:
        self._tasks_made += 1
        task = SequencedTask(coro, self._tasks_made, loop=self, **options)
        # Keep the result: otherwise collecting the tasks of a crashed host runs their cleanup code.
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_tidy:
            self._drop_ended_tasks()
        return task

    def _drop_ended_tasks(self) -> None:
        _retrieve_errors(self._tasks)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks_tidy = max(_TASKS_FEW, 2 * len(self._tasks))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run: an error that asyncio would only log is a bug in the product or in the
        test."""
        error = context.get("exception")
        self._failure = self._failure or error or RuntimeError(context["message"])

    # Called for every future and task. ``bool()`` is the fastest callable that returns False.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        """Run callbacks and jump in time. All work of a world passes through here, so it avoids
        calls."""
        timers, ready, pick = self._timers, self._ready, self._pick
        while not is_over() and self._failure is None:
            while timers and timers[0][0] <= self._now_s:
                ready.append(heapq.heappop(timers)[2])
            if not ready:
                self._jump_to_next_timer()
                continue
            call = pick() if len(ready) > 1 else ready.pop()
            if call.is_cancelled:
                continue
            if (self._dead_hosts or self._standing_still) and self._is_held(call):
                continue
            call.context.run(call.callback, *call.args)

    def _is_held(self, call: ScheduledCall) -> bool:
        """Return True if the callback's host has crashed or is paused."""
        host = call.host
        if host in self._dead_hosts:
            self._passed_over.append(call)
        elif host in self._standing_still:
            self._standing_still[host].append(call)
        else:
            return False
        return True

    def _pick(self) -> ScheduledCall:
        """Remove and return a random ready callback. The last callback takes its place."""
        ready = self._ready
        if not self._shuffled_from_s <= self._now_s < self._shuffled_until_s:
            return ready.pop(0)
        index = int(self._random.random() * len(ready))
        last = ready.pop()
        if index == len(ready):
            return last
        ready[index], last = last, ready[index]
        return last

    def _jump_to_next_timer(self) -> None:
        timers, dead = self._timers, self._dead_hosts
        while timers and (timers[0][2].is_cancelled or (dead and timers[0][2].host in dead)):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"all tasks wait at {self._now_s:.3f} s and no timer is set")
        self._now_s = max(self._now_s, timers[0][0])

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Do nothing: a canceled timer is skipped when it is due."""


@contextmanager
def _tasks_untracked() -> Iterator[None]:
    """Keep tasks out of asyncio's weak set. Only ``all_tasks()`` uses it, which no world calls, and
    it costs three Python callbacks per task. This loop has a list of its own."""
    known: Any = asyncio.tasks
    tasks = known._scheduled_tasks if sys.version_info >= (3, 12) else known._all_tasks
    tasks.add = _ignore_task
    try:
        yield
    finally:
        del tasks.add


def _ignore_task(_task: object) -> None:
    """Do nothing; replaces ``add`` of that set."""


def _retrieve_errors(tasks: list[SequencedTask[Any]]) -> None:
    """Mark exceptions as retrieved, so that asyncio does not log those of canceled tasks."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()


def run_virtual(
    random: Random,
    main: Callable[[VirtualLoop], Coroutine[Any, Any, R]],
    shuffled_s: Span = ALWAYS,
) -> R:
    """Run ``main`` to its end in a new virtual loop."""
    loop = VirtualLoop(random, shuffled_s)  # type: ignore[abstract]  # the rest is not to be had here
    result: R = loop.run_until_complete(main(loop))
    return result


Purpose = Literal["schedule", "network", "disk", "faults", "workload", "ids", "layout", "adoption"]


def stream(seed: int, purpose: Purpose, part: str = "") -> Random:
    return Random(f"{seed}/{purpose}/{part}")  # noqa: S311 - reproducible on purpose


def salted_random(salt: int) -> Random:
    """Return the random stream of one fault."""
    return Random(f"salt/{salt}")  # noqa: S311 - reproducible on purpose
