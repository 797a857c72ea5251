"""A watch that never ends: list, watch, resume, and list again if that is not possible.

Rules:
- ``follow`` does not end and does not raise because of a server or network failure. It retries with
  backoff and logs the outage. It ends when its reader closes it.
- A stream that ended or broke is resumed at the last version. A new list is only requested if that
  version has expired (410, as response or event), or if a response was invalid.
- Versions increase. An event or bookmark that is not newer (a replay after a reconnect, a plane
  restored from a backup) is dropped and leads to a new list. A list that is older is requested
  again, and accepted after OLDER_LISTS_MAX such lists in a row: the plane was restored.
- A list is returned when all its pages have arrived.
- A stream without an event or bookmark for IDLE_TIMEOUT_S is replaced.
- A server that ends every stream at once, or repeats 410, counts as failing. ``follow`` then backs
  off instead of looping. An event, or a stream that stays open for STREAM_MIN_S, ends the backoff.
- A kind that the server does not serve (404) is requested again every NOT_SERVED_RETRY_S.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from datum_compute.api.errors import (
    ApiError,
    Expired,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref
from datum_compute.client.responses import ListResult, UndecodableObject, WatchEvent
from datum_compute.client.transport.retry import Backoff

if TYPE_CHECKING:
    from datum_compute.client.client import Client


# --- The log lines of an outage: the first failure, a reminder every REMIND_S, and the recovery
# Other retries are not logged, because an outage of an hour has hundreds for each kind.


REMIND_S = 300.0

_log = logging.getLogger(__name__)


class OutageLog:
    """Logs the outages of the watch ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since_s: float | None = None
        self._logged_s = 0.0

    def add_failure(self, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = self._logged_s = now_s
            _log.warning("%s: watch failed, retrying: %s", self._name, error)
        elif now_s - self._logged_s >= REMIND_S:
            self._logged_s = now_s
            minutes = (now_s - self._since_s) / 60
            _log.warning("%s: watch failing for %.0f min, retrying: %s", self._name, minutes, error)

    def end(self) -> None:
        if self._since_s is None:
            return
        outage_s = asyncio.get_running_loop().time() - self._since_s
        self._since_s = None
        _log.info("%s: watch recovered after %.0f s", self._name, outage_s)


# --- One time limit for many waits, with a single timer
# ``asyncio.timeout`` creates and cancels a timer for each wait, which costs more than a short wait
# itself. Here a task marks the begin and the end of a wait. It is cancelled if the wait exceeds the
# limit:
#
#     task = deadlines.begin()
#     try:
#         await work()
#     except asyncio.CancelledError:
#         if not deadlines.has_expired(task):
#             raise
#         ...  # the wait exceeded the limit
#     finally:
#         deadlines.end(task)


class Deadlines:
    """One time limit for the waits of many tasks. Each task has at most one wait at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[asyncio.Task[Any], float] = {}  # in order of begin
        # The tasks that this object has cancelled, with their earlier cancellation requests.
        self._expired_tasks: dict[asyncio.Task[Any], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Start a wait of the running task, and return that task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "a deadline requires a running task"
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check)
        return task

    def has_expired(self, task: asyncio.Task[Any]) -> bool:
        """Return True if only the limit cancelled the task. The cancellation is then undone."""
        before = self._expired_tasks.pop(task, None)
        return before is not None and task.uncancel() <= before

    def end(self, task: asyncio.Task[Any]) -> None:
        self._since.pop(task, None)
        if self._expired_tasks and self._expired_tasks.pop(task, None) is not None:
            task.uncancel()  # the wait ended in the same turn of the event loop

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, since_s in list(self._since.items()):
            left_s = since_s + self._seconds - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._check)
                return
            self._expire(task)

    def _expire(self, task: asyncio.Task[Any]) -> None:
        del self._since[task]
        self._expired_tasks[task] = task.cancelling()
        task.cancel()


# --- follow


T = TypeVar("T", bound=ApiObject)
L = TypeVar("L")
E = TypeVar("E")

# A stream without an event or bookmark for this long is replaced. Our server sends a bookmark every
# 30 s, kube-apiserver every 60 s. TCP keepalive detects a dead connection sooner (see http1.py).
IDLE_TIMEOUT_S = 75.0
# A stream that ends within this time without an event counts as a failure.
STREAM_MIN_S = 1.0
# The time limit of a list with all its pages.
LIST_TIMEOUT_S = 120.0
NOT_SERVED_RETRY_S = 10.0
OLDER_LISTS_MAX = 3  # consecutive lists with an older version that are rejected

_BACKOFF = Backoff(first_s=0.1, most_s=10.0)
# Errors after which the requested version is still valid.
_TEMPORARY_ERRORS = (TooManyRequests, ServiceUnavailable, Timeout)


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What to follow: a kind in one namespace or all, optionally with selectors."""

    kind: KindInfo[T]
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    fields: Mapping[str, str] | None = None
    page_size: int = 0


def follow(
    client: Client, watched: Watched[T], random: Random | None = None
) -> AsyncGenerator[ListResult[T] | WatchEvent[T], None]:
    """Yield a list, and then every change. A later list replaces everything before it.

    Without ``random``, the delays after failures have no jitter. Use that for a single client.
    """

    async def list_once() -> ListResult[T]:
        return await client.list(
            watched.kind,
            watched.namespace,
            labels=watched.labels,
            fields=watched.fields,
            page_size=watched.page_size,
        )

    def open_stream(
        version: str, on_open: Callable[[], None]
    ) -> AsyncGenerator[WatchEvent[T], None]:
        return client.watch(
            watched.kind,
            version,
            namespace=watched.namespace,
            labels=watched.labels,
            fields=watched.fields,
            on_open=on_open,
        )

    source = _Source(watched.kind.plural, list_once, open_stream, _noop)
    return _follow(source, random)


def follow_mapped(
    client: Client,
    kind: KindInfo[T],
    keep: Callable[[T | UndecodableObject], L],
    *,
    page_size: int,
    random: Random,
    not_served: Callable[[], None],
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    name: str = "",
) -> AsyncGenerator[ListResult[L] | WatchEvent[T | UndecodableObject], None]:
    """Follow a kind in one namespace or all, for caches.

    Lists contain the results of ``keep``, which is applied page by page. An object that cannot be
    decoded is yielded as UndecodableObject. ``not_served`` is called if the server does not serve
    the kind. ``name`` is the name of the watch in the log.
    """

    async def list_once() -> ListResult[L]:
        return await client.list_mapped(
            kind, keep, page_size=page_size, namespace=namespace, labels=labels
        )

    def open_stream(
        version: str, on_open: Callable[[], None]
    ) -> AsyncGenerator[WatchEvent[T | UndecodableObject], None]:
        return client.watch_lenient(
            kind, version, namespace=namespace, labels=labels, on_open=on_open
        )

    source = _Source(name or kind.plural, list_once, open_stream, not_served)
    return _follow(source, random)


@dataclass(frozen=True, slots=True)
class _Source(Generic[L, E]):
    """The functions that list and watch one kind."""

    name: str
    list_once: Callable[[], Awaitable[ListResult[L]]]
    open_stream: Callable[[str, Callable[[], None]], AsyncGenerator[WatchEvent[E], None]]
    not_served: Callable[[], None]


def _noop() -> None:
    pass


async def _follow(
    source: _Source[L, E], random: Random | None
) -> AsyncGenerator[ListResult[L] | WatchEvent[E], None]:
    failures = _Failures(source.name, random)
    cursor = _Cursor()
    while True:
        try:
            if not cursor.is_valid:
                listed = await _list(source)
                cursor.accept_list(listed.version)
                yield listed
            async with aclosing(_stream(source, str(cursor.version), failures)) as events:
                async for event in events:
                    cursor.accept_event(event)
                    failures.reset()
                    yield event
        except Expired as error:
            cursor.is_valid = False
            _log.debug("%s: the version has expired; listing again", source.name)
            await failures.count_expired(error)
        except NotFound as error:
            cursor.is_valid = False
            source.not_served()
            await failures.delay(error, at_least_s=NOT_SERVED_RETRY_S, is_outage=False)
        except Unreachable as error:
            await failures.delay(error)
        except ApiError as error:
            cursor.is_valid = cursor.is_valid and isinstance(error, _TEMPORARY_ERRORS)
            await failures.delay(error)


class _Cursor:
    """The version of the last list or event. Unless ``is_valid``, a new list is required."""

    def __init__(self) -> None:
        self.version = 0
        self.is_valid = False
        self._older_lists = 0

    def accept_list(self, text: str) -> None:
        version = _parse_version(text)
        if version < self.version and self._older_lists < OLDER_LISTS_MAX:
            self._older_lists += 1
            raise InternalError(f"the list of version {version} is older than {self.version}")
        self._older_lists = 0
        self.version, self.is_valid = version, True

    def accept_event(self, event: WatchEvent[E]) -> None:
        version = _parse_version(event.version)
        if version < self.version or (event.object is not None and version == self.version):
            self.is_valid = False
            raise InternalError(
                f"the server sent version {version} again, after {self.version}: "
                "a replay, or a plane restored from a backup"
            )
        self.version = version


def _parse_version(version: str) -> int:
    if not version.isdecimal():
        raise InternalError(f"the server sent version {version!r}, which is not a number")
    return int(version)


async def wait_for(
    client: Client,
    kind: KindInfo[T],
    ref: Ref,
    condition: Callable[[T | None], bool],
    *,
    timeout_s: float,
) -> T | None:
    """Return the object as soon as the condition holds. Raise TimeoutError after ``timeout_s``."""
    watched = Watched(kind, ref.namespace, fields={"metadata.name": ref.name})
    try:
        async with asyncio.timeout(timeout_s), aclosing(follow(client, watched)) as changes:
            async for item in changes:
                if isinstance(item, ListResult):
                    seen = item.items[0] if item.items else None
                elif item.object is None:
                    continue
                else:
                    seen = None if item.type == "DELETED" else item.object
                if condition(seen):
                    return seen
    except TimeoutError:
        raise TimeoutError(
            f"{kind.kind} {ref} did not meet the condition within {timeout_s:g} s"
        ) from None
    raise AssertionError("follow() ended")


async def _list(source: _Source[L, E]) -> ListResult[L]:
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            return await source.list_once()
    except TimeoutError:
        raise Unreachable(f"the list was not complete within {LIST_TIMEOUT_S:g} s") from None


async def _stream(
    source: _Source[L, E], version: str, failures: _Failures
) -> AsyncGenerator[WatchEvent[E], None]:
    """Yield the events of one stream until it ends or is idle for too long.

    Raise Unreachable if it ends at once without an event. A stream that stayed open ends a series
    of failures, also without an event: otherwise the delays of several outages would add up in a
    watch of a quiet kind.
    """
    loop, has_events = asyncio.get_running_loop(), False
    opened_s = math.inf

    def on_open() -> None:
        nonlocal opened_s
        opened_s = loop.time()

    def is_stable() -> bool:
        return loop.time() - opened_s >= STREAM_MIN_S

    events = source.open_stream(version, on_open)
    try:
        with closing(Deadlines(IDLE_TIMEOUT_S)) as deadlines:
            async with aclosing(events):
                while True:
                    try:
                        event = await _next_event(deadlines, events)
                    except TimeoutError:
                        _log.debug("%s: the watch is idle; opening another", source.name)
                        break
                    if event is None:
                        break
                    has_events = True
                    yield event
    except (ApiError, Unreachable):
        if is_stable():
            failures.reset()
        raise
    if is_stable():
        failures.reset()
    elif not has_events:
        raise Unreachable("the server ended the watch immediately")


async def _next_event(
    deadlines: Deadlines, events: AsyncGenerator[WatchEvent[E], None]
) -> WatchEvent[E] | None:
    """Return the next event, or None at the end. Raise TimeoutError after the limit."""
    task = deadlines.begin()
    try:
        return await anext(events, None)
    except asyncio.CancelledError:
        if deadlines.has_expired(task):
            raise TimeoutError from None
        raise
    finally:
        deadlines.end(task)


class _Failures:
    """Counts consecutive failures and waits longer after each."""

    def __init__(self, name: str, random: Random | None) -> None:
        self._outage = OutageLog(name)
        self._random = random
        self._count = 0
        self._expired = 0

    def reset(self) -> None:
        self._count = self._expired = 0
        self._outage.end()

    async def count_expired(self, error: Expired) -> None:
        """Count an expired version. The first one since the last event is not a failure."""
        self._expired += 1
        if self._expired > 1:
            await self.delay(error)

    async def delay(
        self, error: ApiError | Unreachable, *, at_least_s: float = 0.0, is_outage: bool = True
    ) -> None:
        self._count += 1
        delay_s = max(at_least_s, _BACKOFF.delay_s(self._count, self._random))
        if isinstance(error, ApiError):
            delay_s = max(delay_s, min(error.retry_after_s, _BACKOFF.most_s))
        # A server that sends Retry-After is not broken: it may be overloaded or shutting down.
        is_asked_to_retry = (
            self._count == 1 and isinstance(error, ApiError) and error.retry_after_s > 0
        )
        if is_outage and not is_asked_to_retry:
            self._outage.add_failure(error)
        await asyncio.sleep(delay_s)
