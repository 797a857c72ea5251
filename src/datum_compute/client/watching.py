"""A watch that goes on for ever: list, watch, resume, and list again when there is no other way.

Rules it keeps:
- It never ends and never raises for what a server or a network does. It tries again with backoff,
  and says so in the log; only its reader ends it, by closing it.
- A stream that ended or broke is resumed at the last version seen. Only a version that the server
  no longer knows (410, as an answer or as an event), or an answer that makes no sense, leads to a
  new list.
- Silence is not trusted: servers send a bookmark at least once a minute, ours twice. A stream that
  is quiet for STALL_S is taken for dead and opened anew; for a quiet plane that costs one request.
- A server that ends every stream at once is not asked in a circle: that counts as a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from datum_compute.api.errors import (
    ApiError,
    Expired,
    InternalError,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.client.answers import Listed, WatchEvent
from datum_compute.client.backoff import Backoff

if TYPE_CHECKING:
    from datum_compute.client.client import Client

T = TypeVar("T", bound=ApiObject)

STALL_S = 55.0
# A stream that lived less than this and brought nothing did not work.
SHORTEST_S = 1.0

_BACKOFF = Backoff(first_s=0.1, most_s=10.0)
# Nothing is wrong with the version we ask for; the server just cannot answer now.
_PASSING = (TooManyRequests, ServiceUnavailable, Timeout)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What to follow: a kind in one namespace (or all), perhaps only what is selected."""

    kind: KindInfo[T]
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    fields: Mapping[str, str] | None = None
    page_size: int = 0


async def follow(
    client: Client, watched: Watched[T], random: Random | None = None
) -> AsyncGenerator[Listed[T] | WatchEvent[T], None]:
    """First everything there is, then every change; a later list replaces all that went before.

    Without ``random`` the delays after failures have no jitter: for a lone waiter.
    """
    failures = _Failures(watched.kind.plural, random)
    version = ""
    while True:
        try:
            if not version:
                listed = await _list(client, watched)
                version = listed.version
                yield listed
            async with aclosing(_stream(client, watched, version)) as events:
                async for event in events:
                    failures.over()
                    version = event.version or version
                    yield event
        except Expired:
            version = ""
            _log.debug("%s: the history is gone; listing again", watched.kind.plural)
        except Unreachable as error:
            await failures.delay(error)
        except ApiError as error:
            version = version if isinstance(error, _PASSING) else ""
            await failures.delay(error)


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
                if isinstance(item, Listed):
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


async def _list(client: Client, watched: Watched[T]) -> Listed[T]:
    listed = await client.list(
        watched.kind,
        watched.namespace,
        labels=watched.labels,
        fields=watched.fields,
        page_size=watched.page_size,
    )
    if not listed.version.isdecimal():
        raise InternalError(f"the server listed at version {listed.version!r}, which is no number")
    return listed


async def _stream(
    client: Client, watched: Watched[T], version: str
) -> AsyncGenerator[WatchEvent[T], None]:
    """The events of one stream; ends when it ends or stalls, raises when it was of no use."""
    loop = asyncio.get_running_loop()
    opened_s, brought = loop.time(), 0
    events = client.watch(
        watched.kind,
        version,
        namespace=watched.namespace,
        labels=watched.labels,
        fields=watched.fields,
    )
    async with aclosing(events):
        while True:
            try:
                async with asyncio.timeout(STALL_S):
                    event = await anext(events, None)
            except TimeoutError:
                _log.info("%s: the watch is silent; opening another", watched.kind.plural)
                return
            if event is None:
                break
            brought += 1
            yield event
    if not brought and loop.time() - opened_s < SHORTEST_S:
        raise Unreachable("the server ends watches as soon as they begin")


class _Failures:
    """Counts failures in a row and waits longer after each."""

    def __init__(self, what: str, random: Random | None) -> None:
        self._what = what
        self._random = random
        self._count = 0

    def over(self) -> None:
        self._count = 0

    async def delay(self, error: ApiError | Unreachable) -> None:
        self._count += 1
        delay_s = _BACKOFF.delay_s(self._count, self._random)
        if isinstance(error, ApiError):
            delay_s = max(delay_s, min(error.retry_after_s, _BACKOFF.most_s))
        # The first may be a restart; those after it are worth a word.
        level = logging.DEBUG if self._count == 1 else logging.WARNING
        _log.log(level, "%s: %s; trying again in %.1f s", self._what, error, delay_s)
        await asyncio.sleep(delay_s)
