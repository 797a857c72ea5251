"""Waits for a state of a plane: poll, and watch for a change before the next poll.

A watch only triggers the next poll, so a lost event delays it by at most ``reread_s``. If the
server does not respond, the poll is retried, and that is reported once. After ``failures_max``
failures in a row, and when the timeout expires during a failure, the error is raised.
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
from datum_compute.cli.render.events import AnsweringEvent, SilentEvent

T = TypeVar("T")

_TRANSIENT = (Unreachable, ServiceUnavailable, Timeout, TooManyRequests)


@dataclass(frozen=True, slots=True)
class StateReached(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class WatchNext:
    """Not reached yet; poll again when a matching object of this kind changes."""

    kind: KindInfo[Any]
    since: str
    matches: Callable[[ApiObject], bool]


async def wait_until(
    session: Session,
    poll: Callable[[], Awaitable[StateReached[T] | WatchNext]],
    *,
    timeout_s: float,
) -> T:
    """Poll until the state is reached, at least once. Raise TimeoutError after ``timeout_s``."""
    timeouts = session.environment.timeouts
    deadline = asyncio.get_running_loop().time() + timeout_s
    connection = _ConnectionMonitor(session)
    try:
        async with asyncio.timeout(None) as limit:
            while True:
                try:
                    result = await poll()
                    connection.record_response()
                    if isinstance(result, StateReached):
                        return result.value
                    limit.reschedule(deadline)
                    await _wait_for_change(session, result, timeouts)
                except _TRANSIENT as error:
                    limit.reschedule(deadline)
                    connection.record_failure(error)
                    await asyncio.sleep(timeouts.retry_s)
    except TimeoutError:
        if connection.last_error is not None:
            raise connection.last_error from None
        raise


@dataclass(slots=True)
class _ConnectionMonitor:
    """Counts failures in a row; ``last_error`` is None while the server responds."""

    session: Session
    failures: int = 0
    last_error: Exception | None = None

    def record_response(self) -> None:
        if self.failures:
            self.session.emit_event(AnsweringEvent(), "The server responds again.")
        self.failures, self.last_error = 0, None

    def record_failure(self, error: Exception) -> None:
        """Report the first failure; raise the error after ``failures_max`` failures."""
        self.failures, self.last_error = self.failures + 1, error
        if self.failures > self.session.environment.timeouts.failures_max:
            raise error
        if self.failures == 1:
            self.session.emit_event(
                SilentEvent(message=str(error)), f"The server does not respond, retrying: {error}"
            )


async def _wait_for_change(session: Session, watched: WatchNext, timeouts: CliTimeouts) -> None:
    """Return when a watched object changes, or after ``reread_s``."""
    events = session.client.watch(
        watched.kind, watched.since, namespace=session.namespace, timeout_s=timeouts.reread_s
    )
    try:
        async with asyncio.timeout(timeouts.reread_s):
            async with aclosing(events) as opened:
                async for event in opened:
                    if event.object is not None and watched.matches(event.object):
                        break
    except TimeoutError:
        return
    except Expired:
        await asyncio.sleep(timeouts.retry_s)
    await asyncio.sleep(timeouts.settle_s)
