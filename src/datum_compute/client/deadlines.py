"""A time limit for many waits in a row, with one timer for them all.

``asyncio.timeout`` sets up and takes down a timer for every wait; where waits are short and many,
that costs more than what is waited for. Here a task says when a wait begins and when it ends, and
whoever is still in one after the limit is cancelled:

    task = deadlines.begin()
    try:
        await work()
    except asyncio.CancelledError:
        if not deadlines.passed(task):
            raise
        ...  # it took too long
    finally:
        deadlines.end(task)
"""

from __future__ import annotations

import asyncio
from typing import Any


class Deadlines:
    """One limit, any number of tasks; each has at most one wait at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[asyncio.Task[Any], float] = {}  # whoever began first stands first
        self._passed: dict[asyncio.Task[Any], int] = {}  # and how often it was cancelled before
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[Any]:
        """The running task, which is asked for by it from then on."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "a deadline is for what runs in a task"
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)
        return task

    def passed(self, task: asyncio.Task[Any]) -> bool:
        """Whether the cancellation of the task is ours alone; then it is taken back."""
        before = self._passed.pop(task, None)
        return before is not None and task.uncancel() <= before

    def end(self, task: asyncio.Task[Any]) -> None:
        self._since.pop(task, None)
        if self._passed and self._passed.pop(task, None) is not None:
            task.uncancel()  # it ended by itself in the same moment

    def lasts_s(self) -> float:
        """How long the oldest wait lasts; 0 without any."""
        now_s = asyncio.get_running_loop().time()
        return next((now_s - since_s for since_s in self._since.values()), 0.0)

    def expire(self) -> None:
        """End all waits now, as if the limit had passed."""
        for task in list(self._since):
            self._expire(task)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, since_s in list(self._since.items()):
            left_s = since_s + self._seconds - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._look)
                return
            self._expire(task)

    def _expire(self, task: asyncio.Task[Any]) -> None:
        del self._since[task]
        self._passed[task] = task.cancelling()
        task.cancel()
