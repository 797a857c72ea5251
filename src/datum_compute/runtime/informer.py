"""Keeps a cache equal to what a plane holds of one kind, and tells of every change.

How a watch is kept alive is told in ``client/watching.py``; here its news become a cache and
changes, and nothing a plane does ends it.

Rules it keeps:
- Only a whole list replaces the cache; what the list lacks is told as gone.
- An object of the same name and another uid is told as one that is gone and one that is new.
- ``version`` is how far the plane's history is known. It goes back only when the plane itself did
  (restored from a backup); then ``epoch`` goes up, and what was written in an earlier life of the
  plane is no longer waited for.
- A plane that was replaced by another of its name may have counted past the version that a watch
  resumes at, and then the watch continues as if nothing had happened. Whoever notices that calls
  ``relist``.
- A kind that the plane does not serve is ``answered`` but not ``synced``; it is looked for again,
  and synced when it appears.
- An object that cannot be decoded is kept, logged and not told of; lookups that need it fail. To
  those who knew it before it is told as gone: they look, fail, and come back until it can be read
  or is gone indeed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.client.answers import Listed, Unreadable, WatchEvent
from datum_compute.client.client import Client
from datum_compute.client.watching import follow_kept
from datum_compute.runtime.cache import Cache, CacheEntry, Lister

T = TypeVar("T", bound=ApiObject)

PAGE_SIZE = 2000
# The first list of a large kind is taken in so many objects at a time; others work in between.
AT_ONCE = 1000

_log = logging.getLogger(__name__)


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
    """``old`` is None for a new object, ``new`` is None for one that is gone."""

    old: T | None
    new: T | None

    @property
    def latest(self) -> T:
        """The new state, or the last one of what is gone."""
        latest = self.new if self.new is not None else self.old
        assert latest is not None, "a change is of something"
        return latest


Handler = Callable[[ObjectChange[T]], None]


class Informer(Generic[T]):
    def __init__(
        self,
        client: Client,
        kind: KindInfo[T],
        random: Random,
        labels: Mapping[str, str] | None = None,
        plane: str = "",
    ) -> None:
        self.kind = kind
        self._name = f"{plane}: {kind.plural}" if plane else kind.plural  # for the log
        self.labels = labels  # only what bears them is asked for
        self.cache: Cache[T] = Cache(kind.model)
        self.strict = Lister(self.cache)
        self.lenient = Lister(self.cache, _strict=False)  # for those who only wake others
        self.first_sync = asyncio.Event()
        self.answered = asyncio.Event()
        self.epoch = 1
        self.lists = 0
        self._client = client
        self._random = random
        self._version = 0
        self._served = True
        self._heard_s = -math.inf
        self._handlers: list[Handler[T]] = []
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._running: asyncio.Task[Any] | None = None
        self._relisting = False

    @property
    def synced(self) -> bool:
        return self._served and self.first_sync.is_set()

    @property
    def served(self) -> bool:
        """False while the plane says that it has no such kind."""
        return self._served

    @property
    def version(self) -> int:
        """The plane version up to which this cache has seen every change of its kind."""
        return self._version

    def age(self) -> float:
        """Seconds since the plane last said something about this kind; the view is at most so
        old. Infinite before the first list."""
        return asyncio.get_running_loop().time() - self._heard_s

    def subscribe(self, handler: Handler[T]) -> None:
        """Be told of every change, beginning with what the cache holds already."""
        self._handlers.append(handler)
        for entry in self.cache.entries():
            if not entry.error:
                handler(ObjectChange(None, self.cache.decode(entry)))

    async def run(self) -> None:
        """Follow the plane in a task of its own until that is cancelled."""
        running = self._running = asyncio.current_task()
        assert running is not None
        while True:
            self._relisting = False
            try:
                return await self._follow()
            except asyncio.CancelledError:
                # A relist cancels once; one cancellation more ends the task.
                if not self._relisting or running.uncancel() > 0:
                    raise

    def relist(self) -> None:
        """End the watch and list again, because the plane is not the one that was listed before."""
        if self._running is not None and not self._relisting:
            self._relisting = True
            self._running.cancel()

    async def _follow(self) -> None:
        following = follow_kept(
            self._client,
            self.kind,
            self.cache.entry_for,
            page_size=PAGE_SIZE,
            random=self._random,
            not_served=self._note_not_served,
            labels=self.labels,
            name=self._name,
        )
        async with aclosing(following) as news:
            async for item in news:
                if isinstance(item, Listed):
                    await self._replace(item)
                else:
                    self._apply(item)

    async def wait_for(self, is_enough: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the news make it true; False if they have not in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while not is_enough():  # asked again by who was woken: it may have changed since
            if loop.time() >= until_s:
                return False
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting[woken] = is_enough
            timer = loop.call_at(until_s, _wake, woken)
            try:
                await woken
            finally:
                timer.cancel()
                del self._waiting[woken]
        return True

    async def refresh(self) -> None:
        """List beside the watch. For who cannot wait: the stream of a quiet kind says only with its
        next bookmark how far it is."""
        listed = await self._client.list_kept(
            self.kind, self.cache.entry_for, page_size=PAGE_SIZE, labels=self.labels
        )
        if int(listed.version) > self._version:
            await self._replace(listed)

    def notify_waiters(self) -> None:
        """Wake those who wait for progress and for whom there is enough of it. Asked here, because
        many wait for the one write, and to wake them all for every other would cost far more."""
        for woken, is_enough in self._waiting.items():
            if not woken.done() and is_enough():
                woken.set_result(None)

    async def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until the cache has seen ``version``; False if it has not in time."""
        return await self.wait_for(lambda: self._version >= version, timeout_s)

    async def _replace(self, listed: Listed[CacheEntry]) -> None:
        version = int(listed.version)
        if version < self._version:
            self.epoch += 1
            _log.warning(
                "%s: the plane went back from version %d to %d, as after a restore",
                self._name,
                self._version,
                version,
            )
        present = {entry.ref for entry in listed.items}
        for ref in self.cache.refs():
            if ref not in present:
                self._remove(ref)
        for number, entry in enumerate(listed.items, start=1):
            self._put(entry)
            if not self.first_sync.is_set() and number % AT_ONCE == 0:
                await asyncio.sleep(0)  # nobody reads a view that is not synced
        self._served = True
        self.lists += 1
        self.first_sync.set()
        self._advance(version)

    def _apply(self, event: WatchEvent[T | Unreadable]) -> None:
        obj = event.object
        if int(event.version) <= self._version:
            obj = None  # the cache has been refreshed beyond it
        if obj is not None and event.type == "DELETED":
            self._remove(Ref(obj.metadata.namespace, obj.metadata.name))
        elif obj is not None:
            readable = None if isinstance(obj, Unreadable) else obj
            self._put(self.cache.entry_for(obj), readable)
        self._advance(max(int(event.version), self._version))

    def _put(self, entry: CacheEntry, obj: T | None = None) -> None:
        known = self.cache.entry(entry.ref)
        if known is not None and known.uid != entry.uid:
            self._remove(entry.ref)
            known = None
        if known is not None and known.version == entry.version:
            return
        old = self._readable(known)
        self.cache.put(entry, obj)
        new = self._readable(entry)
        if new is not None:
            self._tell(ObjectChange(old, new))
            return
        _log.error("%s %s cannot be read: %s", self.kind.kind, entry.ref, entry.error)
        if old is not None:
            self._tell(ObjectChange(old, None))

    def _remove(self, ref: Ref) -> None:
        entry = self.cache.entry(ref)
        old = self._readable(entry)
        self.cache.remove(ref)
        if old is not None:
            self._tell(ObjectChange(old, None))

    def _readable(self, entry: CacheEntry | None) -> T | None:
        return None if entry is None or entry.error else self.cache.decode(entry)

    def _note_not_served(self) -> None:
        if self._served:
            _log.info("%s are not served; looking for them again and again", self._name)
        self._served = False
        self._advance(self._version)

    def _advance(self, version: int) -> None:
        self._version = version
        self._heard_s = asyncio.get_running_loop().time()
        self.answered.set()
        self.notify_waiters()

    def _tell(self, change: ObjectChange[Any]) -> None:
        for handler in self._handlers:
            handler(change)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
