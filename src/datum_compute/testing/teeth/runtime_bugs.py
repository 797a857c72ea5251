"""Bugs in what feeds controllers: watches, caches, queues and workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.errors import ApiError, Expired, NotFound, Unreachable
from datum_compute.api.meta import ref_of
from datum_compute.client import watching
from datum_compute.client.answers import Listed, WatchEvent
from datum_compute.client.watching import follow
from datum_compute.runtime.informer import Change, Informer
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.view import View
from datum_compute.runtime.worker import Worker
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import (
    attribute_replaced,
    controller_named,
    function_replaced,
)


@contextmanager
def _watch_error_swallowed() -> Iterator[None]:
    def make(_original: Any) -> Any:
        async def follow_until_trouble(client: Any, watched: Any, random: Any = None) -> Any:
            listed = await _first_list(client, watched, random)
            yield listed
            version = listed.version
            while True:
                try:
                    async for event in watching._stream(client, watched, version):
                        version = event.version or version
                        yield event
                except Unreachable:
                    continue
                except ApiError:
                    return  # 410 among them: taken for the end of the stream

        return follow_until_trouble

    with function_replaced(follow, make):
        yield


async def _first_list(client: Any, watched: Any, random: Any) -> Listed[Any]:
    failures = watching._Failures(watched.kind.plural, random)
    while True:
        try:
            return await watching._list(client, watched)
        except (ApiError, Unreachable) as error:
            await failures.delay(error)


@contextmanager
def _relist_not_compared() -> Iterator[None]:
    def make(original: Any) -> Any:
        async def follow_from_now(client: Any, watched: Any, random: Any = None) -> Any:
            listed_before = False
            async for item in original(client, watched, random):
                if isinstance(item, Listed) and listed_before:
                    yield WatchEvent("BOOKMARK", item.version, None)
                else:
                    listed_before = listed_before or isinstance(item, Listed)
                    yield item

        return follow_from_now

    with function_replaced(follow, make):
        yield


@contextmanager
def _vanished_objects_kept() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def replace(self: Any, listed: Any) -> None:
            for obj in listed.items:
                self._put(obj)
            self._advance(listed.version)
            self.first_sync.set()

        return replace

    with attribute_replaced(Informer, "_replace", make):
        yield


@contextmanager
def _replaced_object_taken_for_the_old_one() -> Iterator[None]:
    """The informer forgets that an object with another uid is another object."""

    def make(_original: Any) -> Any:
        def put(self: Any, obj: Any) -> None:
            old = self.cache.get(ref_of(obj))
            if old is not None and old.metadata.generation == obj.metadata.generation:
                return  # "nothing new in its spec"
            self.cache.put(obj)
            self._tell(Change(old, obj))

        return put

    with attribute_replaced(Informer, "_put", make):
        yield


@contextmanager
def _silent_watch_trusted() -> Iterator[None]:
    with attribute_replaced(watching, "STALL_S", lambda _: 100_000.0):
        yield


@contextmanager
def _own_writes_not_awaited() -> Iterator[None]:
    """With names that the server draws, as ReplicaSets have them; only one of the two parts is
    the bug, but without the other it would be harmless."""

    def make(_original: Any) -> Any:
        def read(self: Any, kind: Any) -> Any:
            return self._informer(kind).cache

        return read

    with attribute_replaced(View, "read", make):
        yield


@contextmanager
def _key_in_flight_twice() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def add(self: Any, key: Any) -> None:
            self._cancel_timer(key)
            if key not in self._wanted:
                self._wanted.add(key)
                self._make_ready(key)

        return add

    with attribute_replaced(WorkQueue, "add", make):
        yield


@contextmanager
def _later_ignored() -> Iterator[None]:
    def make(_original: Any) -> Any:
        return lambda self, key, _outcome: self.queue.forget(key)

    with attribute_replaced(Worker, "_interpret", make):
        yield


@contextmanager
def _failure_not_retried() -> Iterator[None]:
    """The next event will come, somebody thought."""
    with attribute_replaced(WorkQueue, "retry", lambda _: lambda _self, _key: 0.0):
        yield


@contextmanager
def _event_during_work_lost() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def done(self: Any, key: Any) -> None:
            self._in_flight.discard(key)
            self._wanted.discard(key)

        return done

    with attribute_replaced(WorkQueue, "done", make):
        yield


@contextmanager
def _owned_objects_not_watched() -> Iterator[None]:
    """The edge from the machine's Server back to its Instance is missing."""
    controller = controller_named("provisioner")

    def make(watches: Any) -> Any:
        return tuple(_mute(watch) for watch in watches)

    with attribute_replaced(controller, "watches", make):
        yield


def _mute(watch: Any) -> Any:
    return type(watch)(watch.role, watch.kind, lambda _view, _change: ())


@contextmanager
def _failed_delete_taken_for_done() -> Iterator[None]:
    """A delete that got no answer is ticked off; what follows it in the plan is carried out."""

    def make(_original: Any) -> Any:
        async def delete(self: Any, kind: Any, ref: Any, *, uid: str, version: str = "") -> None:
            try:
                await self.client.delete(kind, ref, uid=uid, version=version)
            except (ApiError, Unreachable, NotFound):
                return

        return delete

    with attribute_replaced(View, "delete", make):
        yield


@contextmanager
def _deletions_after_a_break_not_told() -> Iterator[None]:
    """After 410 the list is taken in as if nothing could have gone meanwhile."""

    def make(original: Any) -> Any:
        async def follow_forgetful(client: Any, watched: Any, random: Any = None) -> Any:
            known: dict[Any, Any] = {}
            async for item in original(client, watched, random):
                if isinstance(item, Listed):
                    fresh = {ref_of(obj): obj for obj in item.items}
                    known = {**known, **fresh}
                    yield Listed(list(known.values()), item.version)
                else:
                    _note(known, item)
                    yield item

        return follow_forgetful

    with function_replaced(follow, make):
        yield


def _note(known: dict[Any, Any], event: Any) -> None:
    if event.object is None:
        return
    if event.type == "DELETED":
        known.pop(ref_of(event.object), None)
    else:
        known[ref_of(event.object)] = event.object


@contextmanager
def _resumed_from_the_newest() -> Iterator[None]:
    """A broken stream goes on from what the server has now, not from what was seen last."""

    def make(_original: Any) -> Any:
        async def follow_newest(client: Any, watched: Any, random: Any = None) -> Any:
            failures = watching._Failures(watched.kind.plural, random)
            listed = await _first_list(client, watched, random)
            yield listed
            version = listed.version
            while True:
                try:
                    async for event in watching._stream(client, watched, version):
                        failures.over()
                        yield event
                    version = (await watching._list(client, watched)).version
                except Expired:
                    listed = await _first_list(client, watched, random)
                    yield listed
                    version = listed.version
                except (ApiError, Unreachable) as error:
                    await failures.delay(error)

        return follow_newest

    with function_replaced(follow, make):
        yield


BUGS = (
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
        meets=("ForgetHistory", "LoseDeletes"),
    ),
    PlantedBug(
        "vanished-objects-kept",
        "a relist adds and never removes: etcd #18089, lost delete (F10)",
        _vanished_objects_kept,
        meets=("ForgetHistory", "LoseDeletes"),
    ),
    PlantedBug(
        "known-objects-outlive-a-relist",
        "what was known before 410 is merged with the list: Sieve, stale states",
        _deletions_after_a_break_not_told,
        meets=("ForgetHistory", "LoseDeletes"),
    ),
    PlantedBug(
        "status-only-events-dropped",
        "an object is new only with a new generation: create-delete-create folded (F5)",
        _replaced_object_taken_for_the_old_one,
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
        meets=("CloseWatches", "StopHost"),
    ),
    PlantedBug(
        "own-writes-not-awaited",
        "the cache is read before it is complete or has seen our own write: Sieve, stale states",
        _own_writes_not_awaited,
        meets=("LagWatches",),
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
        meets=("CrashAtCommit",),
    ),
    PlantedBug(
        "failure-not-retried",
        "an error is logged and forgotten until the next event",
        _failure_not_retried,
    ),
    PlantedBug(
        "wake-up-edge-missing",
        "the Server's state does not wake its Instance: control-plane.md h.7",
        _owned_objects_not_watched,
    ),
    PlantedBug(
        "lost-delete",
        "a delete without an answer counts as done: Sieve, leaked storage",
        _failed_delete_taken_for_done,
        meets=("LoseRequests", "Throttle", "CutLink"),
    ),
)
