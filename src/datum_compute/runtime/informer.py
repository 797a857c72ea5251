"""Keeps a cache equal to what a plane holds of one kind.

How a watch is kept alive is told in ``client/watching.py``; here its news become a cache and
changes, and nothing a plane does ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from datum_compute.api.meta import ApiObject, KindInfo, ref_of
from datum_compute.client.answers import Listed, WatchEvent
from datum_compute.client.client import Client
from datum_compute.client.watching import Watched, follow
from datum_compute.runtime.cache import Cache

T = TypeVar("T", bound=ApiObject)


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
        async with aclosing(follow(self._client, Watched(self.kind), self._random)) as news:
            async for item in news:
                if isinstance(item, Listed):
                    self._replace(item)
                else:
                    self._apply(item)

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

    def _replace(self, listed: Listed[T]) -> None:
        present = {ref_of(obj) for obj in listed.items}
        for ref in self.cache.refs():
            if ref not in present:
                self._tell(Change(self.cache.remove(ref), None))
        for obj in listed.items:
            self._put(obj)
        self._advance(listed.version)
        self.first_sync.set()

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
        self._version = int(version or self._version)
        self._progress.set()

    def _tell(self, change: Change[T]) -> None:
        for handler in self._handlers:
            handler(change)
