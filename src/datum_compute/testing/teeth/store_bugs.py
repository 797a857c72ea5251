"""Bugs in the store and the server: versions, commits, watch history, namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.errors import Conflict
from datum_compute.server.creations import CreationsUnderWay
from datum_compute.server.delete import _check_preconditions
from datum_compute.server.eventlines import EventLines
from datum_compute.store import store
from datum_compute.store.journal import JournalError
from datum_compute.store.store import Store
from datum_compute.store.watchlog import WatchLog
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _acknowledged_before_commit() -> Iterator[None]:
    def make(_original: Any) -> Any:
        async def written(self: Any, change: Any, record: Any) -> None:
            self._enqueued(change, record)
            self._planes[change.plane].pending.add(change.key)

        return written

    with attribute_replaced(Store, "_written", make):
        yield


@contextmanager
def _told_before_commit() -> Iterator[None]:
    """Watchers hear of a batch while it is still on its way to the disk."""

    def make(_original: Any) -> Any:
        async def commit(self: Any, batch: Any) -> None:
            for pending in batch:
                self._release(pending.entry)
                self._apply(pending)
            try:
                await self._journal.append([pending.entry for pending in batch])
            except JournalError as error:
                for pending in batch:
                    store._resolve(pending.done, store._refused(str(error)))
                return
            except (Exception, asyncio.CancelledError):
                for pending in batch:
                    store._resolve(pending.done, store._unknown())
                raise
            for pending in batch:
                store._resolve(pending.done, None)

        return commit

    with attribute_replaced(Store, "_commit", make):
        yield


@contextmanager
def _versions_from_objects() -> Iterator[None]:
    """At start the newest version is taken from the objects; deletions had newer ones."""

    def make(original: Any) -> Any:
        def loaded_plane(name: str, loaded: Any) -> Any:
            plane = original(name, loaded)
            newest = max((version for version, _ in loaded.objects.values()), default=0)
            plane.started = plane.version = plane.assigned = newest
            return plane

        return loaded_plane

    with function_replaced(store._loaded_plane, make):
        yield


@contextmanager
def _old_history_claimed() -> Iterator[None]:
    """After a restart any resume point is accepted, as if nothing had happened since."""

    def make(original: Any) -> Any:
        def loaded_plane(name: str, loaded: Any) -> Any:
            plane = original(name, loaded)
            plane.started = 0
            return plane

        return loaded_plane

    with function_replaced(store._loaded_plane, make):
        yield


@contextmanager
def _watch_skips_one() -> Iterator[None]:
    def make(original: Any) -> Any:
        return lambda self, since, *concerns: original(
            self, since + 1 if since > self._floor else since, *concerns
        )

    with attribute_replaced(WatchLog, "watch", make):
        yield


@contextmanager
def _compacted_history_served() -> Iterator[None]:
    """A resume point that is too old gets what is left, and no 410."""

    def make(original: Any) -> Any:
        return lambda self, since, *concerns: original(self, max(since, self._floor), *concerns)

    with attribute_replaced(WatchLog, "watch", make):
        yield


@contextmanager
def _bookmark_ahead() -> Iterator[None]:
    """Bookmarks name a version a little ahead of what the stream has told."""

    def make(original: Any) -> Any:
        return lambda self, version: original(self, version + 3)

    with attribute_replaced(EventLines, "bookmark", make):
        yield


@contextmanager
def _compare_and_swap_skipped() -> Iterator[None]:
    """The store writes over what changed since it was read."""

    def make(original: Any) -> Any:
        def checked(self: Any, plane: str, key: Any, expected: int) -> Any:
            try:
                return original(self, plane, key, expected)
            except Conflict:
                return self._planes[plane]

        return checked

    with attribute_replaced(Store, "_checked", make):
        yield


@contextmanager
def _uid_precondition_ignored() -> Iterator[None]:
    with function_replaced(_check_preconditions, lambda _: lambda _call, _old, _options: None):
        yield


@contextmanager
def _arrivals_not_counted() -> Iterator[None]:
    def make(_original: Any) -> Any:
        return lambda _self, _plane, _namespace: False

    with attribute_replaced(CreationsUnderWay, "any_in_namespace", make):
        yield


BUGS = (
    PlantedBug(
        "acknowledged-before-commit",
        "an answer goes out before its batch is durable (I10)",
        _acknowledged_before_commit,
    ),
    PlantedBug(
        "told-before-commit",
        "watches tell what a crash may take back: etcd #20221",
        _told_before_commit,
        meets=("CrashAtCommit", "FillDisk"),
    ),
    PlantedBug(
        "version-reused-after-crash",
        "the version counter is read off the objects that are left (I9)",
        _versions_from_objects,
        meets=("CrashAtCommit", "StopHost"),
    ),
    PlantedBug(
        "old-history-claimed",
        "a restarted server accepts resume points it knows nothing about: etcd #15271",
        _old_history_claimed,
        meets=("StopHost", "CrashAtCommit"),
    ),
    PlantedBug(
        "watch-skips-one",
        "off by one at the resume point: etcd #19179",
        _watch_skips_one,
        meets=("CloseWatches", "StopHost", "CutLink"),
    ),
    PlantedBug(
        "compacted-history-served",
        "a watch from before the compaction is served without 410: etcd #18089",
        _compacted_history_served,
        meets=("LoseHistory",),
    ),
    PlantedBug(
        "bookmark-ahead",
        "a bookmark promises more than was told: lost events at the next resume",
        _bookmark_ahead,
    ),
    PlantedBug("lost-update", "compare-and-swap compares nothing (I11)", _compare_and_swap_skipped),
    PlantedBug(
        "delete-by-name",
        "a delete meant for an earlier uid takes the new object: ZooKeeper #314",
        _uid_precondition_ignored,
        meets=("RepeatWrites", "DelayWrites"),
    ),
    PlantedBug(
        "namespace-gone-while-work-arrives",
        "a create on its way to the disk is not seen by the namespace that goes",
        _arrivals_not_counted,
        meets=("DeleteNewNamespace",),
    ),
)
