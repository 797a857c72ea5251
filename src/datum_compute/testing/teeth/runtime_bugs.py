"""Bugs in what feeds controllers: watches, caches, queues and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from datum_compute.api.errors import ApiError, Expired, Unreachable
from datum_compute.api.kinds import SERVER
from datum_compute.api.meta import Ref
from datum_compute.client import quiet, watching
from datum_compute.client.answers import Listed, WatchEvent
from datum_compute.client.watching import _follow
from datum_compute.runtime.cache import Lister
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.informer import Informer
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.worker import WorkerPool
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import (
    attribute_replaced,
    controller_named,
    function_replaced,
)


@contextmanager
def _watch_error_swallowed() -> Iterator[None]:
    def make(_original: Any) -> Any:
        async def follow_until_trouble(source: Any, random: Any) -> Any:
            listed = await _first_list(source, random)
            yield listed
            version = listed.version
            while True:
                try:
                    async for event in watching._stream(source, version, quiet.Rhythm()):
                        version = event.version or version
                        yield event
                except Unreachable:
                    continue
                except ApiError:
                    return  # 410 among them: taken for the end of the stream

        return follow_until_trouble

    with function_replaced(_follow, make):
        yield


async def _first_list(source: Any, random: Any) -> Listed[Any]:
    failures = watching._Failures(source.what, random)
    while True:
        try:
            return await watching._list(source)
        except (ApiError, Unreachable) as error:
            await failures.delay(error)


@contextmanager
def _relist_not_compared() -> Iterator[None]:
    def make(original: Any) -> Any:
        async def follow_from_now(source: Any, random: Any) -> Any:
            listed_before = False
            async for item in original(source, random):
                if isinstance(item, Listed) and listed_before:
                    yield WatchEvent("BOOKMARK", item.version, None)
                else:
                    listed_before = listed_before or isinstance(item, Listed)
                    yield item

        return follow_from_now

    with function_replaced(_follow, make):
        yield


@contextmanager
def _vanished_objects_kept() -> Iterator[None]:
    """A list puts in what is there, and takes nothing out."""

    def make(original: Any) -> Any:
        async def replace_none(self: Any, listed: Any) -> None:
            present = {entry.ref for entry in listed.items}
            ghosts = [e for e in self.cache.entries() if e.ref not in present]
            await original(self, Listed([*listed.items, *ghosts], listed.version))

        return replace_none

    with attribute_replaced(Informer, "_replace", make):
        yield


@contextmanager
def _other_uid_taken_for_the_same() -> Iterator[None]:
    """An object that was deleted and created anew is told as a change of the old one, and only
    if its generation is another."""

    def make(original: Any) -> Any:
        def put(self: Any, entry: Any, obj: Any = None) -> None:
            known = self.cache.entry(entry.ref)
            if known is not None and known.uid != entry.uid:
                return
            original(self, entry, obj)

        return put

    with attribute_replaced(Informer, "_put", make):
        yield


@contextmanager
def _status_changes_not_told() -> Iterator[None]:
    """Only a new generation is news, as with a predicate that is too strict."""

    def make(original: Any) -> Any:
        def tell(self: Any, change: Any) -> None:
            old, new = change.old, change.new
            if old is None or new is None or old.metadata.generation != new.metadata.generation:
                original(self, change)

        return tell

    with attribute_replaced(Informer, "_notify", make):
        yield


@contextmanager
def _silent_watch_trusted() -> Iterator[None]:
    with attribute_replaced(quiet, "STALL_S", lambda _: 100_000.0):
        yield


@contextmanager
def _own_writes_not_awaited() -> Iterator[None]:
    with attribute_replaced(CachedClient, "read", reading_anything):
        yield


def reading_anything(_original: Any) -> Any:
    """Reads of whatever the cache holds, complete or not."""
    return lambda self, kind: Lister(self._require_informer(kind).cache)


@contextmanager
def _replays_believed() -> Iterator[None]:
    """Events older than what was seen are handed on, and the cache goes back in time."""

    def make(_original: Any) -> Any:
        def moved(self: Any, event: Any) -> None:
            self.version = int(event.version)

        return moved

    def make_apply(original: Any) -> Any:
        def apply(self: Any, event: Any) -> None:
            self._version = min(self._version, int(event.version) - 1)
            original(self, event)

        return apply

    with (
        attribute_replaced(watching._Place, "moved", make),
        attribute_replaced(Informer, "_apply", make_apply),
    ):
        yield


@contextmanager
def _key_in_flight_twice() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def add(self: Any, key: Any) -> None:
            self._cancel_timer(key)
            self._enqueue(key)

        return add

    def make_done(original: Any) -> Any:
        def done(self: Any, key: Any) -> None:
            if key in self._in_flight:
                original(self, key)

        return done

    with (
        attribute_replaced(WorkQueue, "add", make),
        attribute_replaced(WorkQueue, "done", make_done),
    ):
        yield


@contextmanager
def _later_ignored() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def interpret(self: Any, key: Any, _outcome: Any, _version: int) -> str:
            self._queue.forget(key)
            return "done"

        return interpret

    with attribute_replaced(WorkerPool, "_interpret", make):
        yield


@contextmanager
def _failure_not_retried() -> Iterator[None]:
    """The next event will come, somebody thought."""
    with attribute_replaced(WorkQueue, "retry", lambda _: lambda _self, _key: 0.0):
        yield


@contextmanager
def _event_during_work_lost() -> Iterator[None]:
    def make(original: Any) -> Any:
        def done(self: Any, key: Any) -> None:
            self._in_flight[key] = False
            original(self, key)

        return done

    with attribute_replaced(WorkQueue, "done", make):
        yield


@contextmanager
def _owned_objects_not_watched() -> Iterator[None]:
    """The edge from the machine's Server back to its Instance is missing."""
    controller = controller_named("provisioner")

    def make(edges: Any) -> Any:
        return tuple(_mute(edge) if edge.kind is SERVER else edge for edge in edges)

    with attribute_replaced(controller, "edges", make):
        yield


def _mute(edge: Any) -> Any:
    return replace(edge, to_keys=lambda _view, _change: (), must_map_to_one="")


@contextmanager
def _last_event_dropped() -> Iterator[None]:
    """What is terminating is as good as gone: that it has really gone is no news any more, and
    nobody takes it out of the cache."""

    def make(original: Any) -> Any:
        def apply(self: Any, event: Any) -> None:
            gone = event.object if event.type == "DELETED" else None
            ref = None if gone is None else Ref(gone.metadata.namespace, gone.metadata.name)
            known = None if ref is None else self.cache.entry(ref)
            seen = self._decode(known)
            if seen is not None and seen.is_terminating:
                self._advance(int(event.version))
            else:
                original(self, event)

        return apply

    with attribute_replaced(Informer, "_apply", make):
        yield


@contextmanager
def _failed_delete_taken_for_done() -> Iterator[None]:
    """A delete that got no answer is ticked off; what follows it in the plan is carried out."""

    def make(original: Any) -> Any:
        async def delete(self: Any, *arguments: Any, **options: Any) -> None:
            try:
                await original(self, *arguments, **options)
            except (ApiError, Unreachable):
                return

        return delete

    with attribute_replaced(CachedClient, "delete", make):
        yield


@contextmanager
def _resumed_from_the_newest() -> Iterator[None]:
    """A broken stream goes on from what the server has now, not from what was seen last."""

    def make(_original: Any) -> Any:
        async def follow_newest(source: Any, random: Any) -> Any:
            failures = watching._Failures(source.what, random)
            listed = await _first_list(source, random)
            yield listed
            version = listed.version
            while True:
                try:
                    async for event in watching._stream(source, version, quiet.Rhythm()):
                        failures.over()
                        yield event
                    version = (await watching._list(source)).version
                except Expired:
                    listed = await _first_list(source, random)
                    yield listed
                    version = listed.version
                except (ApiError, Unreachable) as error:
                    await failures.delay(error)
                    version = (await _first_list(source, random)).version

        return follow_newest

    with function_replaced(_follow, make):
        yield


@contextmanager
def _tasks_left_behind() -> Iterator[None]:
    """Each delete leaves somebody who waits for news that never come."""

    def make(original: Any) -> Any:
        async def delete(self: Any, *arguments: Any, **options: Any) -> None:
            await original(self, *arguments, **options)
            asyncio.get_running_loop().create_task(asyncio.Event().wait())

        return delete

    with attribute_replaced(CachedClient, "delete", make):
        yield


BUGS = (
    PlantedBug(
        "tasks-left-behind",
        "a waiter for each object that went: memory grows until the process is killed (I20)",
        _tasks_left_behind,
        shows=("I20",),
    ),
    PlantedBug(
        "swallowed-watch-error",
        "an ERROR event ends the informer for ever: etcd #18089, OpenSandbox #1534",
        _watch_error_swallowed,
        meets=("ForgetHistory",),
    ),
    PlantedBug(
        "relist-not-compared",
        "a list after 410 only moves the version on: Sieve, unobserved states",
        _relist_not_compared,
        meets=("LoseDeletes",),
    ),
    PlantedBug(
        "vanished-objects-kept",
        "a relist adds and never removes: etcd #18089, lost delete (F10)",
        _vanished_objects_kept,
        meets=("LoseDeletes",),
    ),
    PlantedBug(
        "other-uid-taken-for-the-same",
        "create-delete-create folds into one event and nobody looks at the uid (F5)",
        _other_uid_taken_for_the_same,
        meets=("LoseHistory",),
    ),
    PlantedBug(
        "status-changes-not-told",
        "a predicate on the generation where the status matters: control-plane.md h.7",
        _status_changes_not_told,
    ),
    PlantedBug(
        "replays-believed",
        "a reconnect replays old events and the cache goes back: etcd #15271, #20221 (F9)",
        _replays_believed,
        meets=("RepeatEvents",),
    ),
    PlantedBug(
        "half-open-watch-trusted",
        "silence is never suspicious: OpenSandbox #1534, kopf #1276 (F7)",
        _silent_watch_trusted,
        meets=("HalfOpenWatches",),
    ),
    PlantedBug(
        "watch-resumed-from-newest",
        "events between break and resume are skipped: Sieve, unobserved states",
        _resumed_from_the_newest,
        meets=("CutLink", "IsolateHost", "HalfOpenWatches"),
    ),
    PlantedBug(
        "own-writes-not-awaited",
        "the cache is read before it is complete or has seen our own write: Sieve, stale states",
        _own_writes_not_awaited,
        meets=("StopHost", "CrashAtCommit"),
    ),
    PlantedBug(
        "key-in-flight-twice",
        "per-key exclusion lost: two workers reconcile one object",
        _key_in_flight_twice,
    ),
    PlantedBug(
        "event-during-work-lost",
        "a wake-up that arrives while its key is in flight is dropped",
        _event_during_work_lost,
    ),
    PlantedBug(
        "later-ignored",
        "a bounded requeue is never set: the missed event is final",
        _later_ignored,
        meets=("LoseMachine", "LyingProvider"),
    ),
    PlantedBug(
        "failure-not-retried",
        "an error is logged and forgotten until the next event",
        _failure_not_retried,
        meets=("ConflictStorm", "Throttle", "LoseRequests"),
    ),
    PlantedBug(
        "wake-up-edge-missing",
        "the Server's state does not wake its Instance: control-plane.md h.7",
        _owned_objects_not_watched,
    ),
    PlantedBug(
        "lost-delete",
        "a DELETED event is dropped and a ghost stays in the cache: etcd #18089 (F10)",
        _last_event_dropped,
        meets=("scale-down", "ChangeImage"),
    ),
    PlantedBug(
        "failed-delete-taken-for-done",
        "a delete without an answer counts as done: Sieve, leaked storage",
        _failed_delete_taken_for_done,
        meets=("Throttle",),
    ),
)
