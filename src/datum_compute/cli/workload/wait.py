"""Waits for the plane to come to a state: look, and if it is not there yet, watch for a change.

A watch only says when to look again, so a lost event costs at most ``reread_s``. A server that
does not answer is asked again for a while, said once, then the error is let out; also when the time
is over: that it is silent is known, and nothing of what was waited for.
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
from datum_compute.api.meta.objects import ApiObject, KindInfo
from datum_compute.cli.connect.session import Session
from datum_compute.cli.environment import CliTimeouts

T = TypeVar("T")

_PASSING = (Unreachable, ServiceUnavailable, Timeout, TooManyRequests)


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
) -> T:
    """What ``look`` arrives at; TimeoutError when it does not in time. It looks at least once."""
    timeouts = session.environment.timeouts
    deadline = asyncio.get_running_loop().time() + timeout_s
    hearing = _Hearing(session)
    try:
        async with asyncio.timeout(None) as limit:
            while True:
                try:
                    seen = await look()
                    hearing.heard()
                    if isinstance(seen, Arrived):
                        return seen.value
                    limit.reschedule(deadline)
                    await _change(session, seen, timeouts)
                except _PASSING as error:
                    limit.reschedule(deadline)
                    hearing.missed(error)
                    await asyncio.sleep(timeouts.retry_s)
    except TimeoutError:
        if hearing.silence is not None:
            raise hearing.silence from None
        raise


@dataclass(slots=True)
class _Hearing:
    """Whether the server answers at the moment; ``silence`` is why it does not."""

    session: Session
    failures: int = 0
    silence: Exception | None = None

    def heard(self) -> None:
        if self.failures:
            self.session.emit_event("answering", "It answers again.")
        self.failures, self.silence = 0, None

    def missed(self, error: Exception) -> None:
        """Say it once; raise when it has been often enough."""
        self.failures, self.silence = self.failures + 1, error
        if self.failures > self.session.environment.timeouts.failures_max:
            raise error
        if self.failures == 1:
            self.session.emit_event(
                "silent", f"No answer, trying again: {error}", message=str(error)
            )


async def _change(session: Session, watched: WatchFor, timeouts: CliTimeouts) -> None:
    """Return at a change of what is watched, or after ``reread_s``."""
    events = session.client.watch(
        watched.kind, watched.since, namespace=session.namespace, timeout_s=timeouts.reread_s
    )
    try:
        async with asyncio.timeout(timeouts.reread_s):
            async with aclosing(events) as opened:
                async for event in opened:
                    if event.object is not None and watched.concerns(event.object):
                        break
    except TimeoutError:
        return
    except Expired:
        await asyncio.sleep(timeouts.retry_s)
    await asyncio.sleep(timeouts.settle_s)
