"""Several calls at once, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

AT_ONCE = 64


async def together(calls: Sequence[Callable[[], Awaitable[None]]], at_once: int = AT_ONCE) -> None:
    """Those that have begun are always awaited; then the first error of them is raised and no
    more are begun."""
    if len(calls) == 1:
        await calls[0]()
        return
    for start in range(0, len(calls), at_once):
        begun = (call() for call in calls[start : start + at_once])
        for result in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
