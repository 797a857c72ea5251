"""Keeps a cache equal to what a plane holds of one kind: list, then watch, for ever.

A watch that ends is resumed; one that is too old, or goes quiet without closing, leads to a new
list. Errors are retried with backoff and never end the informer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from datum_compute.api.errors import ApiError, Expired, Unreachable
from datum_compute.api.meta import ApiObject, KindInfo, ref_of
from datum_compute.client.client import Client, WatchEvent
from datum_compute.runtime.backoff import Backoff
from datum_compute.runtime.cache import Cache

T = TypeVar("T", bound=ApiObject)

# Servers send a bookmark about once a minute; after two of them missing the stream is dead.
WATCH_S = 300
STALL_S = 130.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """``old`` is None for a new object, ``new`` is None for one that is gone."""

    old: T | None
    new: T | None

    @property
    def latest(self) -> T:
        """The new state, or the last one of what is gone."""
        latest = self.new if self.new is not None else self.old
        assert latest is not None, "a change is of something"
        return latest


Handler = Callable[[Change[T]], None]


class Informer(Generic[T]):
    def __init__(self, client: Client, kind: KindInfo[T], random: Random) -> None:
        self.kind = kind
        self.cache: Cache[T] = Cache()
        self.first_sync = asyncio.Event()
        self._client = client
        self._random = random
        self._version = 0
        self._handlers: list[Handler[T]] = []
        self._progress = asyncio.Event()
        self._backoff = Backoff(first_s=0.1, most_s=10.0)

    @property
    def synced(self) -> bool:
        return self.first_sync.is_set()

    @property
    def version(self) -> int:
        """The plane version up to which this cache has seen every change of its kind."""
        return self._version

    def subscribe(self, handler: Handler[T]) -> None:
        """Be told of every change, beginning with what the cache holds already."""
        self._handlers.append(handler)
        for obj in self.cache.all():
            handler(Change(None, obj))

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                await self._list()
                failures = 0
                await self._watch_until_expired()
            except (ApiError, Unreachable) as error:
                failures += 1
                delay_s = self._backoff.delay_s(failures, self._random)
                _log.debug("%s: %s; listing again in %.1f s", self.kind.plural, error, delay_s)
                await asyncio.sleep(delay_s)

    async def caught_up(self, version: int, timeout_s: float) -> bool:
        """Wait until the cache has seen ``version``; False if it has not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._version < version:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def _list(self) -> None:
        listed = await self._client.list(self.kind)
        present = {ref_of(obj) for obj in listed.items}
        for ref in self.cache.refs():
            if ref not in present:
                self._tell(Change(self.cache.remove(ref), None))
        for obj in listed.items:
            self._put(obj)
        self._advance(listed.version)
        self.first_sync.set()

    async def _watch_until_expired(self) -> None:
        while True:
            events = self._client.watch(self.kind, str(self._version), timeout_s=WATCH_S)
            try:
                while True:
                    async with asyncio.timeout(STALL_S):
                        event = await anext(events, None)
                    if event is None:
                        break
                    self._apply(event)
            except TimeoutError:
                _log.warning("%s: the watch went quiet; opening another", self.kind.plural)
            except Expired:
                return
            finally:
                await events.aclose()

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            if event.type == "DELETED":
                self._tell(Change(self.cache.remove(ref_of(event.object)), None))
            else:
                self._put(event.object)
        self._advance(event.version)

    def _put(self, obj: T) -> None:
        old = self.cache.get(ref_of(obj))
        if old is not None and old.metadata.resource_version == obj.metadata.resource_version:
            return
        self.cache.put(obj)
        self._tell(Change(old, obj))

    def _advance(self, version: str) -> None:
        self._version = int(version)
        self._progress.set()

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            handler(change)
