"""A coroutine that is run at once, as far as it goes without waiting.

Most requests never wait: a read is answered from memory. For those a task, its turn in the loop and
the switch to it are all for nothing. Only a coroutine that waits becomes a task, which goes on
where it stopped, in the context it began in.

Before its first wait such a coroutine has no current task; ``asyncio.timeout`` does not work there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

R = TypeVar("R")

_NOTHING = object()


def begun(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]
) -> R | asyncio.Task[R]:
    """What the coroutine returned, or the task that goes on with it."""
    context = copy_context()
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration as ended:
        result: R = ended.value
        return result
    return loop.create_task(_Rest(coroutine, waits_for), context=context)


class _Rest(Coroutine[Any, Any, R]):
    """A coroutine that has been run up to its first wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def send(self, value: Any) -> Any:
        if self._waits_for is _NOTHING:
            return self._coroutine.send(value)
        waits_for, self._waits_for = self._waits_for, _NOTHING
        return waits_for

    def throw(self, *error: Any) -> Any:
        self._waits_for = _NOTHING
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        raise NotImplementedError("only a task runs this")
