"""Waits for the plane to come to a state: look, and if it is not there yet, watch for a change.

A watch only says when to look again, so a lost event costs at most ``reread_s``. A server that
does not answer is asked again for a while, said once, then the error is let out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datum_compute.api.errors import (
    Expired,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from datum_compute.api.meta import ApiObject, KindInfo
from datum_compute.cli.session import Session

T = TypeVar("T")

_PASSING = (Unreachable, ServiceUnavailable, Timeout, TooManyRequests)


@dataclass(frozen=True, slots=True)
class Patience:
    """settle_s gathers events that come together; retry_s lies between failed looks."""

    reread_s: int = 2
    settle_s: float = 0.05
    retry_s: float = 1.0
    failures_max: int = 30


@dataclass(frozen=True, slots=True)
class Arrived(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class WatchFor:
    """Not there yet; look again when an object of this kind changes."""

    kind: KindInfo[Any]
    since: str
    concerns: Callable[[ApiObject], bool]


async def wait_until(
    session: Session,
    look: Callable[[], Awaitable[Arrived[T] | WatchFor]],
    *,
    timeout_s: float,
    patience: Patience,
) -> T:
    """What ``look`` arrives at; TimeoutError when it does not in time. It looks at least once."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    failures = 0
    async with asyncio.timeout(None) as limit:
        while True:
            try:
                seen = await look()
                failures = 0
                if isinstance(seen, Arrived):
                    return seen.value
                limit.reschedule(deadline)
                await _change(session, seen, patience)
            except _PASSING as error:
                limit.reschedule(deadline)
                failures += 1
                if failures > patience.failures_max:
                    raise
                if failures == 1:
                    session.output.note(f"No answer, trying again: {error}")
                await asyncio.sleep(patience.retry_s)


async def _change(session: Session, watched: WatchFor, patience: Patience) -> None:
    """Return at a change of what is watched, or after ``reread_s``."""
    events = session.client.watch(
        watched.kind, watched.since, namespace=session.namespace, timeout_s=patience.reread_s
    )
    try:
        async with asyncio.timeout(patience.reread_s):
            async with aclosing(events) as opened:
                async for event in opened:
                    if event.object is not None and watched.concerns(event.object):
                        break
    except TimeoutError:
        return
    except Expired:
        await asyncio.sleep(patience.retry_s)
    await asyncio.sleep(patience.settle_s)
