"""Informer: keeps a cache equal to the objects of one kind on a plane and reports every change.

``client/watch.py`` lists, watches and reconnects. The informer applies its events to the cache
and calls the handlers. No error of the plane ends it.

- Only a complete list replaces the cache. Objects missing from the list are reported as deleted,
  also those that this process created and the watch did not deliver before it was lost.
- An object with the same name and another uid is reported as a deletion and a creation.
- ``version`` is the plane version up to which the cache is complete. It decreases only if the plane
  was restored from a backup. ``epoch`` then increases, and writes of the previous epoch are no
  longer awaited. A relist increases it, too: the version of the new plane may be any.
- If a plane was replaced by another one of the same name, the version at which a watch resumes may
  exist there too, and the watch continues unnoticed. The caller that detects the replacement calls
  ``relist``.
- If the plane does not serve the kind, ``answered`` is set and ``synced`` is False. The informer
  retries until the plane serves it.
- An object that cannot be decoded is cached and logged. If it was readable before, it is reported
  as deleted: controllers then read it, fail, and retry until it is readable or gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.client.client import Client
from datum_compute.client.responses import ListResult, UndecodableObject, WatchEvent
from datum_compute.client.watch import follow_mapped
from datum_compute.runtime.cache import Cache, CacheEntry, Lister

T = TypeVar("T", bound=ApiObject)

PAGE_SIZE = 2000
# Objects of the first list that are applied before other tasks may run.
FIRST_LIST_BATCH_SIZE = 1000

_log = logging.getLogger(__name__)


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
    """``old`` is None if the object is new, ``new`` is None if it was deleted."""

    old: T | None
    new: T | None

    @property
    def latest(self) -> T:
        """The new state, or the last state of a deleted object."""
        latest = self.new if self.new is not None else self.old
        assert latest is not None, "a change has an old or a new state"
        return latest


Handler = Callable[[ObjectChange[T]], None]


class Informer(Generic[T]):
    """``labels`` restricts the list and the watch to objects with these labels, ``namespace`` to
    one namespace. Set ``namespace`` before ``run``."""

    def __init__(
        self,
        client: Client,
        kind: KindInfo[T],
        random: Random,
        labels: Mapping[str, str] | None = None,
        plane: str = "",
    ) -> None:
        self.kind = kind
        self._log_name = f"{plane}: {kind.plural}" if plane else kind.plural
        self.labels = labels
        self.namespace = ""
        self.cache: Cache[T] = Cache(kind.model)
        self.strict = Lister(self.cache)
        self.lenient = Lister(self.cache, _strict=False)
        self.first_sync = asyncio.Event()  # set by the first complete list
        # Set by the first complete list, or by a response that the plane does not serve the kind.
        self.answered = asyncio.Event()
        self.epoch = 1
        # The epoch of writes from now on: that of the next list, if another plane was detected.
        self.write_epoch = 1
        self.lists = 0  # number of complete lists
        self._client = client
        self._random = random
        self._version = 0
        self._is_served = True
        self._last_event_s = -math.inf
        self._handlers: list[Handler[T]] = []
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._task: asyncio.Task[Any] | None = None
        self._relisting = False
        # Objects created by this process that are not cached yet, with the version of the write;
        # infinite while the write has no response.
        self._unseen: dict[Ref, tuple[T, float]] = {}

    @property
    def is_synced(self) -> bool:
        return self._is_served and self.first_sync.is_set()

    @property
    def is_served(self) -> bool:
        """False while the plane responds that it does not serve the kind."""
        return self._is_served

    @property
    def version(self) -> int:
        """Plane version up to which the cache contains every change of the kind."""
        return self._version

    def age(self) -> float:
        """Return the seconds since the last event or bookmark; infinite before the first list."""
        return asyncio.get_running_loop().time() - self._last_event_s

    def subscribe(self, handler: Handler[T]) -> None:
        """Call the handler for every cached object and for every later change."""
        self._handlers.append(handler)
        for entry in self.cache.entries():
            if not entry.error:
                handler(ObjectChange(None, self.cache.decode(entry)))

    def expect_creation(self, obj: T) -> None:
        """Report the object as deleted if a list after its creation does not contain it.

        Call it before the write, and ``set_created_version`` or ``cancel_creation`` afterwards.
        """
        self._unseen[ref_of(obj)] = obj, math.inf

    def set_created_version(self, ref: Ref, version: int) -> None:
        """Set the version of the write; 0 if it has no response and may have succeeded."""
        if ref in self._unseen:  # not if the watch has delivered the object already
            self._unseen[ref] = self._unseen[ref][0], version

    def cancel_creation(self, ref: Ref) -> None:
        """The object was not created."""
        self._unseen.pop(ref, None)

    async def run(self) -> None:
        """Follow the plane until the task is cancelled."""
        task = self._task = asyncio.current_task()
        assert task is not None
        while True:
            self._relisting = False
            try:
                return await self._follow()
            except asyncio.CancelledError:
                # relist() cancels once. A further cancellation ends the task.
                if not self._relisting or task.uncancel() > 0:
                    raise

    def relist(self) -> None:
        """End the watch and list again, because another plane has replaced the one listed."""
        if self._task is None:
            return
        self.write_epoch += 1
        if not self._relisting:
            self._relisting = True
            self._task.cancel()

    async def _follow(self) -> None:
        following = follow_mapped(
            self._client,
            self.kind,
            self.cache.entry_for,
            page_size=PAGE_SIZE,
            random=self._random,
            not_served=self._mark_not_served,
            namespace=self.namespace,
            labels=self.labels,
            name=self._log_name,
        )
        async with aclosing(following) as items:
            async for item in items:
                if isinstance(item, ListResult):
                    await self._replace(item, self.write_epoch)
                else:
                    self._apply(item)

    async def wait_for(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until an event makes ``is_done`` true. Return False on timeout."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not is_done():  # checked again after the wake-up: it may have become false
            if loop.time() >= deadline_s:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = is_done
            timer = loop.call_at(deadline_s, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                del self._waiters[waiter]
        return True

    async def refresh(self) -> None:
        """List without waiting for the watch.

        The watch of a kind without changes reports the plane version only with its next bookmark.
        """
        listed = await self._client.list_mapped(
            self.kind,
            self.cache.entry_for,
            page_size=PAGE_SIZE,
            namespace=self.namespace,
            labels=self.labels,
        )
        if int(listed.version) > self._version:
            await self._replace(listed, self.epoch)

    def notify_waiters(self) -> None:
        """Wake the waiters whose condition is true.

        Conditions are checked here: often many tasks wait for one write, and waking all of them
        for each event costs more.
        """
        for waiter, is_done in self._waiters.items():
            if not waiter.done() and is_done():
                waiter.set_result(None)

    async def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait until the cache contains ``version``. Return False on timeout."""
        return await self.wait_for(lambda: self._version >= version, timeout_s)

    async def _replace(self, listed: ListResult[CacheEntry], epoch: int) -> None:
        version, last_epoch = int(listed.version), self.epoch
        if epoch > self.epoch:
            self.epoch = epoch
        elif version < self._version:
            self.epoch = self.write_epoch = self.write_epoch + 1
            _log.warning(
                "%s: version of the plane decreased from %d to %d; was it restored from a backup?",
                self._log_name,
                self._version,
                version,
            )
        present = {entry.ref for entry in listed.items}
        for ref in self.cache.refs():
            if ref not in present:
                self._remove(ref)
        for number, entry in enumerate(listed.items, start=1):
            self._put(entry)
            if not self.first_sync.is_set() and number % FIRST_LIST_BATCH_SIZE == 0:
                await asyncio.sleep(0)  # safe: a cache that is not synced is not read
        # Versions of different epochs cannot be compared.
        self._remove_unseen(version if self.epoch == last_epoch else sys.maxsize)
        self._is_served = True
        self.lists += 1
        self.first_sync.set()
        self._advance(version)

    def _apply(self, event: WatchEvent[T | UndecodableObject]) -> None:
        obj = event.object
        if int(event.version) <= self._version:
            obj = None  # a refresh has applied it already
        if obj is not None and event.type == "DELETED":
            self._remove(Ref(obj.metadata.namespace, obj.metadata.name))
        elif obj is not None:
            readable = None if isinstance(obj, UndecodableObject) else obj
            self._put(self.cache.entry_for(obj), readable)
        self._advance(max(int(event.version), self._version))

    def _put(self, entry: CacheEntry, obj: T | None = None) -> None:
        self._unseen.pop(entry.ref, None)
        cached = self.cache.entry(entry.ref)
        if cached is not None and cached.uid != entry.uid:
            self._remove(entry.ref)
            cached = None
        if cached is not None and cached.version == entry.version:
            return
        old = self._decode(cached)
        self.cache.put(entry, obj)
        new = self._decode(entry)
        if new is not None:
            self._notify(ObjectChange(old, new))
            return
        _log.error("%s %s cannot be decoded: %s", self.kind.kind, entry.ref, entry.error)
        if old is not None:
            self._notify(ObjectChange(old, None))

    def _remove(self, ref: Ref) -> None:
        self._unseen.pop(ref, None)
        old = self._decode(self.cache.entry(ref))
        self.cache.remove(ref)
        if old is not None:
            self._notify(ObjectChange(old, None))

    def _remove_unseen(self, version: int) -> None:
        """Report created objects that a list of the version would contain if they existed."""
        for ref, (obj, created_version) in list(self._unseen.items()):
            if created_version <= version:
                del self._unseen[ref]
                self._notify(ObjectChange(obj, None))

    def _decode(self, entry: CacheEntry | None) -> T | None:
        return None if entry is None or entry.error else self.cache.decode(entry)

    def _mark_not_served(self) -> None:
        if self._is_served:
            _log.info("%s: the plane does not serve the kind; retrying", self._log_name)
        self._is_served = False
        self._advance(self._version)

    def _advance(self, version: int) -> None:
        self._version = version
        self._last_event_s = asyncio.get_running_loop().time()
        self.answered.set()
        self.notify_waiters()

    def _notify(self, change: ObjectChange[Any]) -> None:
        for handler in self._handlers:
            handler(change)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
