"""Run a coroutine up to its first wait, and create a task only if it has to wait.

Most reads are answered from memory and never wait. On one connection they cost 4 to 11 % less CPU
time than with a task for each request (figures: docs/internals/performance.md). Python 3.12 has
``Task(eager_start=True)``, which replaces this module when 3.11 is dropped.

Before its first wait the coroutine has no current task, so ``asyncio.timeout`` raises there. Code
that runs in a request uses ``asyncio.wait_for`` or waits first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

R = TypeVar("R")

_TASK_WAITS = object()  # the task has received ``awaited`` and waits for it


def run_eagerly(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]
) -> R | asyncio.Task[R]:
    """Return the result of the coroutine, or a task that continues it after its first wait."""
    context = copy_context()
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration as stop:
        result: R = stop.value
        return result
    return loop.create_task(_StartedCoroutine(coroutine, awaited), context=context)


class _StartedCoroutine(Coroutine[Any, Any, R]):
    """A coroutine that has run up to its first wait, which is for ``awaited``."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def send(self, value: Any) -> Any:
        if self._awaited is _TASK_WAITS:
            return self._coroutine.send(value)
        awaited, self._awaited = self._awaited, _TASK_WAITS
        return awaited

    def throw(self, *error: Any) -> Any:
        self._awaited = _TASK_WAITS
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        raise NotImplementedError("only a task may run this coroutine")
