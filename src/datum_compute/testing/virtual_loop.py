"""An event loop in virtual time whose interleavings come from a seed.

- Time stands still while anything can run, then jumps to the next timer.
- Of the callbacks that are ready a seeded choice picks the next, so each seed is a schedule. It can
  be confined to a part of the time; outside of that the first that is ready comes first.
- Tasks hash by the order of their creation: sets of tasks iterate alike in every process.
- Nothing ready and no timer is a deadlock and reported as such.
- A callback that belongs to a dead host never runs again: that is what a crash is. One of a host
  that stands still waits until the host goes on.

There are no threads, sockets or signals here; what needs them fails at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

R = TypeVar("R")

_TIDY_ROUNDS = 5
_TASKS_FEW = 1000

HOST: contextvars.ContextVar[str] = contextvars.ContextVar("HOST", default="")


# From when until when ready callbacks are picked at random.
Span = tuple[float, float]
ALWAYS: Span = (0.0, math.inf)
NEVER: Span = (0.0, 0.0)


class Deadlock(Exception):
    """Everybody waits and no timer will wake anybody."""


class Step:
    """One callback to run, perhaps at a given time; what asyncio calls a handle."""

    __slots__ = ("_when", "args", "callback", "context", "host", "is_cancelled")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        when_s: float,
    ) -> None:
        if context is None:
            context = contextvars.copy_context()
        self.context = context
        self.host = context.get(HOST, "")
        self.callback = callback
        self.args = args
        self._when = when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


class SequencedTask(asyncio.Task[R]):
    """A task whose hash does not depend on where it lies in memory."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], number: int, **options: Any) -> None:
        self._number = number
        self.host = (options.get("context") or contextvars.copy_context()).get(HOST, "")
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
        self._ready: list[Step] = []
        # By time, then by the order in which they were set: tuples compare quickest.
        self._timers: list[tuple[float, int, Step]] = []
        self._timers_set = 0
        self._dead_hosts: set[str] = set()
        self._standing_still: dict[str, list[Step]] = {}
        self._passed_over: list[Step] = []  # of dead hosts; they end their tasks when all is over
        self._tasks: list[SequencedTask[Any]] = []
        self._tasks_made = 0
        self._tasks_tidy = _TASKS_FEW
        self._failure: BaseException | None = None

    def kill(self, host: str) -> None:
        """Nothing that belongs to the host runs again; nothing of it is tidied up either."""
        self._dead_hosts.add(host)
        self._standing_still.pop(host, None)

    def pause(self, host: str) -> None:
        """Nothing of the host runs until it is resumed; what comes due meanwhile is then late."""
        self._standing_still.setdefault(host, [])

    def resume(self, host: str) -> None:
        self._ready += self._standing_still.pop(host, [])

    def tasks_alive(self, host: str) -> int:
        """How many tasks of the host have not ended."""
        return sum(1 for task in self._tasks if task.host == host and not task.done())

    def run_until_complete(self, future: Any) -> Any:
        asyncio.events._set_running_loop(self)
        try:
            main = self.create_task(future)
            while not main.done() and self._failure is None:
                self._run_once()
            failure = self._failure
        finally:
            self._tidy_up()
            asyncio.events._set_running_loop(None)
        if failure is not None:
            raise failure
        return main.result()

    def _tidy_up(self) -> None:
        """The story is over: let every task, also of dead hosts, end in an orderly way."""
        self._dead_hosts.clear()
        self._timers.clear()
        self._ready += self._passed_over
        for host in list(self._standing_still):
            self.resume(host)
        for _ in range(_TIDY_ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            while self._ready:
                self._run_once()
        _look_at_errors(self._tasks)
        # Whatever still leads here must not keep a whole world alive.
        self._tasks.clear()
        self._timers.clear()

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        step = Step(callback, args, context, self._now_s)
        self._ready.append(step)
        return step

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        step = Step(callback, args, context, when)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, step))
        return step

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, R], **options: Any
    ) -> SequencedTask[R]:
        self._tasks_made += 1
        task = SequencedTask(coro, self._tasks_made, loop=self, **options)
        # Kept, so that collecting a dead host's tasks cannot run its cleanup code.
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_tidy:
            self._forget_ended_tasks()
        return task

    def _forget_ended_tasks(self) -> None:
        _look_at_errors(self._tasks)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks_tidy = max(_TASKS_FEW, 2 * len(self._tasks))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio would only log is a bug in the product or in the test."""
        error = context.get("exception")
        self._failure = self._failure or error or RuntimeError(context["message"])

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _run_once(self) -> None:
        """One step, or a jump in time. Everything a world does passes here."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        if not ready:
            self._jump_to_next_timer()
            return
        step = self._pick()
        if step.is_cancelled:
            return
        if step.host in self._dead_hosts:
            self._passed_over.append(step)
        elif step.host in self._standing_still:
            self._standing_still[step.host].append(step)
        else:
            step.context.run(step.callback, *step.args)

    def _pick(self) -> Step:
        """Any of those that are ready; the last takes the place of the one that goes."""
        ready = self._ready
        if not self._shuffled_from_s <= self._now_s < self._shuffled_until_s:
            return ready.pop(0)
        last = ready.pop()
        if not ready:
            return last
        index = int(self._random.random() * (len(ready) + 1))
        if index == len(ready):
            return last
        ready[index], last = last, ready[index]
        return last

    def _jump_to_next_timer(self) -> None:
        timers, dead = self._timers, self._dead_hosts
        while timers and (timers[0][2].is_cancelled or timers[0][2].host in dead):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"everybody waits at {self._now_s:.3f} s and no timer is set")
        self._now_s = max(self._now_s, timers[0][0])

    def _timer_handle_cancelled(self, handle: object) -> None:
        """A cancelled timer is skipped when its time comes."""


def _look_at_errors(tasks: list[SequencedTask[Any]]) -> None:
    """Whoever waited for a task has been told; asyncio shall not complain about the others."""
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
