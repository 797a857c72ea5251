"""A watch that goes on for ever: list, watch, resume, and list again when there is no other way.

Rules it keeps:
- It never ends and never raises for what a server or a network does. It tries again with backoff,
  and says so in the log (``absence.py``); only its reader ends it, by closing it.
- A stream that ended or broke is resumed at the last version seen. Only a version that the server
  no longer knows (410, as an answer or as an event), or an answer that makes no sense, leads to a
  new list.
- What is handed on is always newer than what was handed on before. An event or a bookmark that is
  not (a replay after a reconnect, a plane restored from a backup) is kept back and leads to a new
  list. A list older than what was seen is not believed at once: only a plane that insists has
  really gone back.
- A list is whole or it is not handed on.
- Silence is not trusted: a stream that is quiet for too long is opened anew (``quiet.py``).
- A server that ends every stream at once, or answers 410 again and again, is not asked in a circle:
  that counts as a failure.
- A kind that the server does not serve (404) is asked for again, every NOT_SERVED_S.
"""

from __future__ import annotations

import asyncio
import logging
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


# --- What the log says of a plane that gives no news of a kind: that it is away, at once; that it
# is still, every REMIND_S; that it is back, once. Tries in between are told to nobody: a partition
# of
# an hour has hundreds of them for every kind.


REMIND_S = 300.0

_log = logging.getLogger(__name__)


class OutageLog:
    """``what`` there are no news of."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since_s: float | None = None
        self._told_s = 0.0

    def noticed(self, why: Exception) -> None:
        """One more try was in vain."""
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s = self._told_s = now_s
            _log.warning("%s: no news, trying again: %s", self._what, why)
        elif now_s - self._told_s >= REMIND_S:
            self._told_s = now_s
            minutes = (now_s - self._since_s) / 60
            _log.warning("%s: no news for %.0f min, trying again: %s", self._what, minutes, why)

    def over(self) -> None:
        if self._since_s is None:
            return
        away_s = asyncio.get_running_loop().time() - self._since_s
        self._since_s = None
        _log.info("%s: there is news again, after %.0f s", self._what, away_s)


# --- A time limit for many waits in a row, with one timer for them all
# ``asyncio.timeout`` sets up and takes down a timer for every wait; where waits are short and many,
# that costs more than what is waited for. Here a task says when a wait begins and when it ends, and
# whoever is still in one after the limit is cancelled:
#
#     task = deadlines.begin()
#     try:
#         await work()
#     except asyncio.CancelledError:
#         if not deadlines.passed(task):
#             raise
#         ...  # it took too long
#     finally:
#         deadlines.end(task)


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


# --- When a watch that brings nothing counts as dead
# Silence is not trusted. Our servers send a bookmark twice a minute, so a stream that is quiet for
# STALL_S is dead. kube-apiserver sends one every 60 s: there it would be replaced for nothing,
# again and again. Whoever was quiet for so long twice in a row is such a server until its bookmarks
# come
# sooner: its streams get until its bookmark is overdue, and meanwhile the server itself is asked,
# by the smallest list, whether it lives.


STALL_S = 55.0
OVERDUE_S = 65.0
PROBE_S = 4.0  # STALL_S and this are less than a minute


class Rhythm:
    """How often one server sends bookmarks of one kind, as far as that was seen."""

    def __init__(self) -> None:
        self._stalls = 0
        self._marked_s = 0.0

    @property
    def is_slow(self) -> bool:
        return self._stalls > 1

    @property
    def limit_s(self) -> float:
        return OVERDUE_S if self.is_slow else STALL_S

    def opened(self) -> None:
        self._marked_s = asyncio.get_running_loop().time()

    def bookmark(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._marked_s < STALL_S:
            self._stalls = 0
        self._marked_s = now_s

    def stalled(self) -> None:
        self._stalls += 1


class Probing:
    """Asks the server when the stream is quiet; whoever waits for the stream goes on at once if
    there is no answer. ``failure`` says why."""

    def __init__(
        self, rhythm: Rhythm, deadlines: Deadlines, probe: Callable[[], Awaitable[object]]
    ) -> None:
        self.failure: Unreachable | None = None
        self._rhythm = rhythm
        self._deadlines = deadlines
        self._probe = probe
        self._asking = asyncio.create_task(self._ask()) if rhythm.is_slow else None

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        while True:
            left_s = STALL_S - self._deadlines.lasts_s()
            if left_s > 0:
                await asyncio.sleep(max(left_s, 0.1))
                continue
            if self._rhythm.is_slow:
                self.failure = await self._unanswered()
            if self.failure is not None or not self._rhythm.is_slow:
                self._deadlines.expire()
                return
            await asyncio.sleep(OVERDUE_S - STALL_S)

    async def _unanswered(self) -> Unreachable | None:
        """Why there is no answer; None if there is one, whatever it says."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._probe()
        except ApiError:
            return None
        except TimeoutError:
            return Unreachable(f"a quiet watch, and no answer within {PROBE_S:g} s")
        except Unreachable as error:
            return error
        return None


# --- watching


T = TypeVar("T", bound=ApiObject)
L = TypeVar("L")
E = TypeVar("E")

# A stream that lived less than this and brought nothing did not work.
SHORTEST_S = 1.0
# All pages together. A list that hangs would otherwise never be tried again.
LIST_S = 120.0
NOT_SERVED_S = 10.0
# So many lists in a row that are older than what was seen, and the plane was restored.
OLDER_LISTS = 3

_BACKOFF = Backoff(first_s=0.1, most_s=10.0)
# Nothing is wrong with the version we ask for; the server just cannot answer now.
_PASSING = (TooManyRequests, ServiceUnavailable, Timeout)


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What to follow: a kind in one namespace (or all), perhaps only what is selected."""

    kind: KindInfo[T]
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    fields: Mapping[str, str] | None = None
    page_size: int = 0


def follow(
    client: Client, watched: Watched[T], random: Random | None = None
) -> AsyncGenerator[ListResult[T] | WatchEvent[T], None]:
    """First everything there is, then every change; a later list replaces all that went before.

    Without ``random`` the delays after failures have no jitter: for a lone waiter.
    """

    async def list_once() -> ListResult[T]:
        return await client.list(
            watched.kind,
            watched.namespace,
            labels=watched.labels,
            fields=watched.fields,
            page_size=watched.page_size,
        )

    def open_stream(version: str) -> AsyncGenerator[WatchEvent[T], None]:
        return client.watch(
            watched.kind,
            version,
            namespace=watched.namespace,
            labels=watched.labels,
            fields=watched.fields,
        )

    async def probe() -> str:
        return await client.version(watched.kind, watched.namespace, fields=watched.fields)

    source = _Source(watched.kind.plural, list_once, open_stream, probe, _nobody)
    return _follow(source, random)


def follow_mapped(
    client: Client,
    kind: KindInfo[T],
    keep: Callable[[T | UndecodableObject], L],
    *,
    page_size: int,
    random: Random,
    not_served: Callable[[], None],
    labels: Mapping[str, str] | None = None,
    name: str = "",
) -> AsyncGenerator[ListResult[L] | WatchEvent[T | UndecodableObject], None]:
    """As ``follow``, for caches: objects of a list come as what ``keep`` makes of each page, one
    that cannot be decoded comes as Unreadable, and a kind that is not served is told of. ``name``
    is what the log calls it."""

    async def list_once() -> ListResult[L]:
        return await client.list_mapped(kind, keep, page_size=page_size, labels=labels)

    def open_stream(version: str) -> AsyncGenerator[WatchEvent[T | UndecodableObject], None]:
        return client.watch_lenient(kind, version, labels=labels)

    async def probe() -> str:
        return await client.version(kind)

    source = _Source(name or kind.plural, list_once, open_stream, probe, not_served)
    return _follow(source, random)


@dataclass(frozen=True, slots=True)
class _Source(Generic[L, E]):
    """Where the news come from: one list, one stream, a question that only has to be answered, and
    whom to tell that there is neither."""

    what: str
    list_once: Callable[[], Awaitable[ListResult[L]]]
    open_stream: Callable[[str], AsyncGenerator[WatchEvent[E], None]]
    probe: Callable[[], Awaitable[object]]
    not_served: Callable[[], None]


def _nobody() -> None:
    """Nobody needs to know."""


async def _follow(
    source: _Source[L, E], random: Random | None
) -> AsyncGenerator[ListResult[L] | WatchEvent[E], None]:
    failures = _Failures(source.what, random)
    place, rhythm = _Place(), Rhythm()
    while True:
        try:
            if not place.known:
                listed = await _list(source)
                place.listed(listed.version)
                yield listed
            async with aclosing(_stream(source, str(place.version), rhythm)) as events:
                async for event in events:
                    place.moved(event)
                    failures.over()
                    yield event
        except Expired as error:
            place.known = False
            _log.debug("%s: the history is gone; listing again", source.what)
            await failures.expired(error)
        except NotFound as error:
            place.known = False
            source.not_served()
            await failures.delay(error, at_least_s=NOT_SERVED_S, is_news=False)
        except Unreachable as error:
            await failures.delay(error)
        except ApiError as error:
            place.known = place.known and isinstance(error, _PASSING)
            await failures.delay(error)


class _Place:
    """How far the news have come. ``known`` is False when only a list can tell how to go on."""

    def __init__(self) -> None:
        self.version = 0
        self.known = False
        self._older_lists = 0

    def listed(self, text: str) -> None:
        version = _number(text)
        if version < self.version and self._older_lists < OLDER_LISTS:
            self._older_lists += 1
            raise InternalError(f"the list of version {version} is older than {self.version}")
        self._older_lists = 0
        self.version, self.known = version, True

    def moved(self, event: WatchEvent[E]) -> None:
        version = _number(event.version)
        if version < self.version or (event.object is not None and version == self.version):
            self.known = False
            raise InternalError(
                f"the server sent version {version} again, after {self.version}: "
                "a replay, or a plane restored from a backup"
            )
        self.version = version


def _number(version: str) -> int:
    if not version.isdecimal():
        raise InternalError(f"the server speaks of version {version!r}, which is no number")
    return int(version)


async def wait_for(
    client: Client,
    kind: KindInfo[T],
    ref: Ref,
    condition: Callable[[T | None], bool],
    *,
    timeout_s: float,
) -> T | None:
    """The object as soon as the condition holds; TimeoutError names what did not come."""
    watched = Watched(kind, ref.namespace, fields={"metadata.name": ref.name})
    try:
        async with asyncio.timeout(timeout_s), aclosing(follow(client, watched)) as news:
            async for item in news:
                if isinstance(item, ListResult):
                    seen = item.items[0] if item.items else None
                elif item.object is None:
                    continue
                else:
                    seen = None if item.type == "DELETED" else item.object
                if condition(seen):
                    return seen
    except TimeoutError:
        raise TimeoutError(f"{kind.kind} {ref} was not as awaited within {timeout_s:g} s") from None
    raise AssertionError("a followed watch does not end")


async def _list(source: _Source[L, E]) -> ListResult[L]:
    try:
        async with asyncio.timeout(LIST_S):
            return await source.list_once()
    except TimeoutError:
        raise Unreachable(f"the list was not complete within {LIST_S:g} s") from None


async def _stream(
    source: _Source[L, E], version: str, rhythm: Rhythm
) -> AsyncGenerator[WatchEvent[E], None]:
    """The events of one stream; ends when it ends or stalls, raises when it was of no use."""
    loop = asyncio.get_running_loop()
    opened_s, brought = loop.time(), 0
    events = source.open_stream(version)
    rhythm.opened()
    with (
        closing(Deadlines(rhythm.limit_s)) as deadlines,
        closing(Probing(rhythm, deadlines, source.probe)) as probing,
    ):
        async with aclosing(events):
            while True:
                try:
                    event = await _within(deadlines, events)
                except TimeoutError:
                    rhythm.stalled()
                    if probing.failure is not None:
                        raise probing.failure from None
                    _log.debug("%s: the watch is silent; opening another", source.what)
                    return
                if event is None:
                    break
                if event.object is None:
                    rhythm.bookmark()
                brought += 1
                yield event
    if not brought and loop.time() - opened_s < SHORTEST_S:
        raise Unreachable("the server ends watches as soon as they begin")


async def _within(
    deadlines: Deadlines, events: AsyncGenerator[WatchEvent[E], None]
) -> WatchEvent[E] | None:
    """The next event, None at the end; TimeoutError if it does not come in time."""
    task = deadlines.begin()
    try:
        return await anext(events, None)
    except asyncio.CancelledError:
        if deadlines.passed(task):
            raise TimeoutError from None
        raise
    finally:
        deadlines.end(task)


class _Failures:
    """Counts failures in a row and waits longer after each."""

    def __init__(self, what: str, random: Random | None) -> None:
        self._absence = OutageLog(what)
        self._random = random
        self._count = 0
        self._expired = 0

    def over(self) -> None:
        self._count = self._expired = 0
        self._absence.over()

    async def expired(self, error: Expired) -> None:
        """Once that is nobody's failure; again, before a stream has brought anything, it is."""
        self._expired += 1
        if self._expired > 1:
            await self.delay(error)

    async def delay(
        self, error: ApiError | Unreachable, *, at_least_s: float = 0.0, is_news: bool = True
    ) -> None:
        self._count += 1
        delay_s = max(at_least_s, _BACKOFF.delay_s(self._count, self._random))
        if isinstance(error, ApiError):
            delay_s = max(delay_s, min(error.retry_after_s, _BACKOFF.most_s))
        # Who says when to come again is not away; it may just be stopped, with us in it.
        asked_back = self._count == 1 and isinstance(error, ApiError) and error.retry_after_s > 0
        if is_news and not asked_back:
            self._absence.noticed(error)
        await asyncio.sleep(delay_s)
