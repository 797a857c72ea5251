"""All objects of all planes: reads from memory, writes by compare-and-swap and group commit.

Rules:
- Reads and watches return a write only after its batch is durable. The caller gets its response
  after that as well.
- An object has at most one write in progress. A second write conflicts immediately, as it would
  after the first one is committed.
- Each plane has one version counter. Versions increase in commit order and never decrease, even
  if the plane is deleted and created again.
- While a batch is written to disk, new writes are collected for the next batch.
- A refused batch changed nothing. If the result of a batch is unknown, the store stops: all waiting
  writes fail, and no further write is accepted.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from datum_compute.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    NotFound,
    ServiceUnavailable,
    Timeout,
)
from datum_compute.api.meta.codec import DecodeError, JsonObject
from datum_compute.store.journal import (
    Change,
    Entry,
    Journal,
    JournalError,
    LoadedPlane,
    ObjectKey,
    PlaneCreated,
    PlaneDeleted,
)
from datum_compute.store.records import Record, build_record, decode_record
from datum_compute.store.watch_log import EventFilter, StoreEvent, Watch, WatchLog

WATCH_WINDOW = 1000
_NO_SELECTIONS: Mapping[str | None, list[Record]] = {}
SELECTIONS_MAX = 64  # namespaces of a resource whose sorted records are kept

_log = logging.getLogger(__name__)

Encode = Callable[[int], bytes]
Listener = Callable[[StoreEvent], None]
# Called after each batch with its number of entries, its duration in seconds, and whether it is
# durable.
CommitObserver = Callable[[int, float, bool], None]


def _ignore_commit(_entries: int, _seconds: float, _ok: bool) -> None:
    """The default ``CommitObserver``: do nothing."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent list, and the version from which a watch continues. Readers share the list."""

    version: int
    records: Sequence[Record]


class _SortedNames:
    """The namespaces and names of the objects of one resource, sorted when they are read."""

    __slots__ = ("_is_sorted", "_names")

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        self._names = sorted(names)
        self._is_sorted = True

    def add(self, name: tuple[str, str]) -> None:
        self._names.append(name)
        self._is_sorted = False

    def remove(self, name: tuple[str, str]) -> bool:
        """Remove a name if the names are sorted. Otherwise return False: sort all again."""
        if self._is_sorted:
            del self._names[bisect_left(self._names, name)]
        return self._is_sorted

    def select(self, namespace: str | None) -> list[tuple[str, str]]:
        """Return the names in a namespace, or all of them, in order."""
        names = self._names
        if not self._is_sorted:
            names.sort()  # almost linear: only the names at the end are out of order
            self._is_sorted = True
        if namespace is None:
            return names
        start = bisect_left(names, (namespace, ""))
        # No string is between the namespace and the namespace followed by a NUL byte.
        return names[start : bisect_left(names, (namespace + "\0", ""), start)]


@dataclass(slots=True)
class _Plane:
    started: int  # version at load; older history is unknown
    version: int  # of the newest committed change
    last_assigned: int  # newest version given to a write, which may not be durable yet
    closing: asyncio.Future[None] | None = None  # done when the deletion is durable
    objects: dict[str, dict[tuple[str, str], Record]] = field(default_factory=dict)
    names: dict[str, _SortedNames] = field(default_factory=dict)  # cache of sorted names
    # Cache of sorted records by resource and namespace, cleared when a record of the resource
    # changes.
    selections: dict[str, dict[str | None, list[Record]]] = field(default_factory=dict)
    logs: dict[str, WatchLog] = field(default_factory=dict)
    pending: set[ObjectKey] = field(default_factory=set)
    dependents: dict[str, dict[ObjectKey, None]] = field(default_factory=dict)  # by owner uid
    # A dict, because the order of calls must not depend on memory addresses.
    listeners: dict[Listener, None] = field(default_factory=dict)

    def get(self, key: ObjectKey) -> Record | None:
        resource, namespace, name = key
        records = self.objects.get(resource)
        return records.get((namespace, name)) if records else None

    def put(self, record: Record) -> Record | None:
        """Store a record and return the one that it replaces."""
        resource, name = record.key.resource, record.key[1:]
        previous = self._pop(record.key)
        self.objects.setdefault(resource, {})[name] = record
        if previous is None and resource in self.names:
            self.names[resource].add(name)
        for uid in record.owners:
            self.dependents.setdefault(uid, {})[record.key] = None
        return previous

    def remove(self, key: ObjectKey) -> Record | None:
        previous, names = self._pop(key), self.names.get(key.resource)
        if previous is not None and names is not None and not names.remove(key[1:]):
            del self.names[key.resource]
        return previous

    def select(self, resource: str, namespace: str | None) -> list[Record]:
        """Return the records of a resource, sorted by namespace and name, and cache them."""
        cached = self.selections.setdefault(resource, {})
        records = self.objects.get(resource, {})
        if resource not in self.names:
            self.names[resource] = _SortedNames(records)
        if len(cached) >= SELECTIONS_MAX:
            cached.clear()
        names = self.names[resource].select(namespace)
        selected = cached[namespace] = [records[name] for name in names]
        return selected

    def _pop(self, key: ObjectKey) -> Record | None:
        self.selections.pop(key.resource, None)
        previous = self.objects.get(key.resource, {}).pop(key[1:], None)
        for uid in previous.owners if previous is not None else ():
            keys = self.dependents.get(uid, {})
            keys.pop(key, None)
            if not keys:
                self.dependents.pop(uid, None)
        return previous


class _Planes(dict[str, _Plane]):
    """The planes by name. Access to a missing one raises NotFound."""

    def __missing__(self, name: str) -> NoReturn:
        raise NotFound(f"there is no plane {name!r}", name=name, kind="planes")


class _PendingWrite(msgspec.Struct, frozen=True):
    entry: Entry
    record: Record | None
    done: asyncio.Future[None]


class Store:
    def __init__(
        self,
        journal: Journal,
        *,
        watch_window: int = WATCH_WINDOW,
        on_commit: CommitObserver = _ignore_commit,
    ) -> None:
        self._journal = journal
        self._on_commit = on_commit
        self._window = watch_window
        self._planes = _Planes()
        self._deleted_planes: dict[str, int] = {}  # last version of each deleted plane
        self._waiting: list[_PendingWrite] = []
        self._has_waiting = asyncio.Event()
        self._stopped = False
        self._refusing = False

    async def load(self) -> None:
        """Read the durable state from the journal. Must finish before any other call."""
        for name, loaded in (await self._journal.load()).items():
            if loaded.deleted:
                self._deleted_planes[name] = loaded.version
            else:
                self._planes[name] = _build_plane(name, loaded)

    async def run(self) -> None:
        """Write batches to the journal until cancelled. Can be called once per store."""
        assert not self._stopped, "a stopped store does not start again; load a new one"
        try:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                while self._waiting:
                    batch, self._waiting = self._waiting, []
                    await self._commit(batch)
        except (Exception, asyncio.CancelledError):
            self._stop()
            raise

    def planes(self) -> list[str]:
        return sorted(self._planes)

    def has_plane(self, plane: str) -> bool:
        return plane in self._planes

    async def create_plane(self, plane: str) -> None:
        """Create a plane, unless it exists. Waits for a deletion that is in progress."""
        while (found := self._planes.get(plane)) is not None:
            if found.closing is None:
                return
            self._refuse_if_stopped()
            await asyncio.wait([found.closing])
        await self._enqueue(PlaneCreated(plane), None)

    async def delete_plane(self, plane: str) -> None:
        """Delete a plane and its objects. Does nothing if the plane does not exist."""
        found = self._planes.get(plane)
        if found is None:
            return
        if found.closing is None:
            found.last_assigned += 1
            found.closing = self._enqueue(PlaneDeleted(plane, found.last_assigned), None)
        await asyncio.shield(found.closing)  # other callers may be waiting for it

    def snapshot_all(self) -> dict[str, LoadedPlane]:
        """Return a consistent copy of all planes: the durable writes, as a load would read them."""
        planes = {
            name: LoadedPlane(
                plane.version,
                {
                    record.key: (record.version, record.body)
                    for records in plane.objects.values()
                    for record in records.values()
                },
            )
            for name, plane in self._planes.items()
        }
        deleted = {
            name: LoadedPlane(version, {}, deleted=True)
            for name, version in self._deleted_planes.items()
        }
        return {**deleted, **planes}

    def get(self, plane: str, key: ObjectKey) -> Record | None:
        return self._planes[plane].get(key)

    def snapshot(self, plane: str, resource: str, namespace: str | None = None) -> Snapshot:
        """Return the records of a namespace, or of all, sorted by namespace and name."""
        found = self._planes[plane]
        records = found.selections.get(resource, _NO_SELECTIONS).get(namespace)
        if records is None:
            records = found.select(resource, namespace)
        return Snapshot(found.version, records)

    def resources(self, plane: str) -> list[str]:
        """Return the resources of which the plane has, or had, an object."""
        return sorted(self._planes[plane].objects)

    def counts(self, plane: str) -> dict[str, int]:
        """Return the number of objects of each resource."""
        return {resource: len(names) for resource, names in self._planes[plane].objects.items()}

    def dependents(self, plane: str, uid: str) -> list[Record]:
        """Return the objects that have an owner reference to this uid."""
        found = (self.get(plane, key) for key in self._planes[plane].dependents.get(uid, ()))
        return [record for record in found if record is not None]

    def listen(self, plane: str, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each change of the plane when it is committed.

        Returns the function that ends the calls. A listener must be fast and must not raise.
        """
        listeners = self._planes[plane].listeners
        listeners[listener] = None
        return lambda: listeners.pop(listener, None)

    def last_assigned_version(self, plane: str) -> int:
        """Return the newest version given to a write, which may not be committed yet."""
        return self._planes[plane].last_assigned

    def pending_creates(self, plane: str) -> list[ObjectKey]:
        """Return the keys of the objects that are being created: their writes are accepted, but not
        durable yet."""
        found = self._planes[plane]
        return [key for key in found.pending if found.get(key) is None]

    def close_watches(self, plane: str, resource: str) -> None:
        """End all watches of a resource and drop its history."""
        found = self._planes[plane]
        log = found.logs.pop(resource, None)
        if log is not None:
            found.logs[resource] = WatchLog(found.version, self._window)
            log.close()

    def watch(
        self, plane: str, resource: str, since: int, event_filter: EventFilter | None = None
    ) -> Watch:
        """Return a watch of the events after ``since``. Only events that pass the filter wake it.

        Raises Expired if the history does not reach back to ``since``.
        """
        found = self._planes[plane]
        if since > found.version:
            # The client got the version before the plane was restored from an older backup.
            raise Expired(
                f"resource version {since} is ahead of plane {plane!r}, which is at "
                f"{found.version}; list again"
            )
        return self._log(found, resource).watch(since, event_filter)

    def version(self, plane: str) -> int:
        return self._planes[plane].version

    def subscribe(self, plane: str, resource: str, waker: Callable[[], None]) -> None:
        """Call ``waker`` after each change of a resource, and when the plane is deleted."""
        self._log(self._planes[plane], resource).subscribe(waker)

    async def put(
        self,
        plane: str,
        key: ObjectKey,
        expected: int,
        encode: Encode,
        metadata: JsonObject | None = None,
    ) -> Record:
        """Write an object whose current version is ``expected`` (0: it does not exist).

        ``encode`` gets the new version of the object and returns its body. With ``metadata``, which
        the caller must not change afterwards, the store does not decode that body.
        """
        record = self._next_record(plane, key, expected, encode, metadata)
        await self._submit(Change(plane, record.version, key, record.body), record)
        return record

    async def delete(self, plane: str, key: ObjectKey, expected: int, encode: Encode) -> Record:
        """Delete an object. ``encode`` returns the last state, which watch events contain."""
        record = self._next_record(plane, key, expected, encode)
        await self._submit(Change(plane, record.version, key, None), record)
        return record

    def _next_record(
        self,
        plane: str,
        key: ObjectKey,
        expected: int,
        encode: Encode,
        metadata: JsonObject | None = None,
    ) -> Record:
        """Return the next state of the object, at a version that no other write gets."""
        found = self._check_precondition(plane, key, expected)
        found.last_assigned += 1
        version = found.last_assigned
        body = encode(version)
        if metadata is None:
            return decode_record(key, version, body)
        return build_record(key, version, body, metadata)

    def _submit(self, change: Change, record: Record) -> asyncio.Future[None]:
        """Return a future that is done when the change is durable.

        The write goes on if the caller is cancelled.
        """
        done = self._enqueue(change, record)
        self._planes[change.plane].pending.add(change.key)
        return done

    def _check_precondition(self, plane: str, key: ObjectKey, expected: int) -> _Plane:
        """Return the plane. Raise unless the object is at ``expected`` and has no pending write."""
        self._refuse_if_stopped()
        found = self._planes[plane]
        if found.closing is not None:
            raise NotFound(f"plane {plane!r} is being deleted", name=plane, kind="planes")
        present = found.get(key)
        if key in found.pending:
            raise Conflict(
                f'{key.resource} "{key.name}" is being written; read it and try again',
                name=key.name,
            )
        if present is None and expected:
            raise NotFound(f'{key.resource} "{key.name}" not found', name=key.name)
        if present is not None and not expected:
            raise AlreadyExists(f'{key.resource} "{key.name}" already exists', name=key.name)
        if present is not None and present.version != expected:
            raise Conflict(
                f'{key.resource} "{key.name}" has been modified; read it and try again',
                name=key.name,
            )
        return found

    def _log(self, found: _Plane, resource: str) -> WatchLog:
        log = found.logs.get(resource)
        if log is None:
            # A resource without a log has not changed since the start.
            log = found.logs[resource] = WatchLog(found.started, self._window)
        return log

    def _enqueue(self, entry: Entry, record: Record | None) -> asyncio.Future[None]:
        """Add an entry to the next batch. The future is done when that batch is."""
        self._refuse_if_stopped()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingWrite(entry, record, done))
        self._has_waiting.set()
        return done

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise _write_refused("the store has stopped")

    async def _commit(self, batch: list[_PendingWrite]) -> None:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        try:
            await self._journal.append([pending.entry for pending in batch])
        except JournalError as error:
            self._on_commit(len(batch), clock() - started_s, False)
            self._log_refusal(error)
            for pending in batch:
                self._release(pending.entry)
                _resolve(pending.done, _write_refused(str(error)))
            return
        except (Exception, asyncio.CancelledError):
            # Cancelled, or the journal is broken: the batch may or may not be durable.
            for pending in batch:
                _resolve(pending.done, _result_unknown())
            raise
        self._on_commit(len(batch), clock() - started_s, True)
        self._log_refusal(None)
        for pending in batch:
            self._release(pending.entry)
            self._apply(pending)
        for pending in batch:
            _resolve(pending.done, None)

    def _log_refusal(self, error: JournalError | None) -> None:
        """Log when the disk starts to refuse writes, and when it accepts them again."""
        if error is not None and not self._refusing:
            _log.error(
                "writes fail: %s; reads continue, and writes resume when the disk accepts them",
                error,
            )
        if error is None and self._refusing:
            _log.warning("the disk accepts writes again")
        self._refusing = error is not None

    def _stop(self) -> None:
        self._stopped = True
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            _resolve(pending.done, _write_refused("the store has stopped"))

    def _release(self, entry: Entry) -> None:
        """End the pending write of an entry, so that its object can be written again."""
        found = self._planes.get(entry.plane)
        if found is None:
            return
        if isinstance(entry, Change):
            found.pending.discard(entry.key)
        elif isinstance(entry, PlaneDeleted):
            found.closing = None

    def _apply(self, pending: _PendingWrite) -> None:
        match pending.entry:
            case Change() as change:
                assert pending.record is not None
                self._apply_change(self._planes[change.plane], change, pending.record)
            case PlaneCreated(plane):
                if plane not in self._planes:
                    version = self._deleted_planes.pop(plane, 0)
                    self._planes[plane] = _Plane(version, version, version)
            case PlaneDeleted(plane, version):
                removed = self._planes.pop(plane)
                self._deleted_planes[plane] = version
                for log in removed.logs.values():
                    log.close()

    def _apply_change(self, found: _Plane, change: Change, record: Record) -> None:
        log = self._log(found, change.key.resource)
        deleted = change.body is None
        previous = found.remove(change.key) if deleted else found.put(record)
        found.version = change.version
        event = StoreEvent(change.version, deleted, record, previous)
        log.append(event)
        for listener in list(found.listeners):
            listener(event)


def _build_plane(name: str, loaded: LoadedPlane) -> _Plane:
    plane = _Plane(loaded.version, loaded.version, loaded.version)
    for key, (version, body) in loaded.objects.items():
        try:
            plane.put(decode_record(key, version, body))
        except DecodeError as error:
            raise JournalError(
                f"{key.resource} {key.namespace}/{key.name} of plane {name!r} cannot be read: "
                f"{error}; restore the state from a backup"
            ) from error
    return plane


def _write_refused(why: str) -> ApiError:
    return ServiceUnavailable(
        f"the store cannot write ({why}); nothing was changed", retry_after_s=1
    )


def _result_unknown() -> ApiError:
    return Timeout("the store stopped during the write; read the object to check the result")


def _resolve(done: asyncio.Future[None], error: ApiError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # marks it as retrieved: a cancelled caller does not await the future
