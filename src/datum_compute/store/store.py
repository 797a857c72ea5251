"""All objects of all planes: reads from memory, writes by compare-and-swap and group commit.

Rules it keeps:
- A write is seen by reads and watches, and answered, only after its batch is durable.
- At most one write per object is under way; a second one conflicts at once, which is what it
  would find after the first had landed.
- Versions are one counter per plane; they rise in commit order and never go back, not even when
  a plane is deleted and made anew.
- While a batch is on its way to the disk, new writes gather in the next one.
- A batch that was refused changed nothing. When it is unknown what a batch did, the store stops:
  everyone who waits is told, and nothing is written any more.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

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
from datum_compute.store.records import Record, indexed, record_of
from datum_compute.store.watch_log import EventFilter, StoreEvent, Watch, WatchLog

WATCH_WINDOW = 1000
SELECTIONS_MAX = 64  # namespaces of a resource whose sorted records are kept

_log = logging.getLogger(__name__)

Encode = Callable[[int], bytes]
Listener = Callable[[StoreEvent], None]
# Told of every batch: how many entries, how many seconds, whether it is durable.
CommitObserver = Callable[[int, float, bool], None]


def unobserved(_entries: int, _seconds: float, _ok: bool) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent list and the version a watch continues from. Readers share the list."""

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
    started: int  # version at load: older history is not known
    version: int  # newest that reads may see
    assigned: int  # newest that a write, perhaps not yet durable, has taken
    closing: asyncio.Future[None] | None = None  # its deletion, on the way to the disk
    objects: dict[str, dict[tuple[str, str], Record]] = field(default_factory=dict)
    names: dict[str, _SortedNames] = field(default_factory=dict)  # a cache
    # Records by resource and namespace, until a record of the resource changes.
    selections: dict[str, dict[str | None, list[Record]]] = field(default_factory=dict)
    logs: dict[str, WatchLog] = field(default_factory=dict)
    pending: set[ObjectKey] = field(default_factory=set)
    dependents: dict[str, dict[ObjectKey, None]] = field(default_factory=dict)  # by owner uid
    # Dicts, because the order in which they are gone through must not depend on addresses.
    listeners: dict[Listener, None] = field(default_factory=dict)

    def get(self, key: ObjectKey) -> Record | None:
        resource, namespace, name = key
        of_resource = self.objects.get(resource)
        return of_resource.get((namespace, name)) if of_resource else None

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
        """Return the records of a resource, sorted by namespace and name."""
        known = self.selections.setdefault(resource, {})
        if namespace not in known:
            records = self.objects.get(resource, {})
            if resource not in self.names:
                self.names[resource] = _SortedNames(records)
            if len(known) >= SELECTIONS_MAX:
                known.clear()
            names = self.names[resource].select(namespace)
            known[namespace] = [records[name] for name in names]
        return known[namespace]

    def _pop(self, key: ObjectKey) -> Record | None:
        self.selections.pop(key.resource, None)
        previous = self.objects.get(key.resource, {}).pop(key[1:], None)
        for uid in previous.owners if previous is not None else ():
            keys = self.dependents.get(uid, {})
            keys.pop(key, None)
            if not keys:
                self.dependents.pop(uid, None)
        return previous


class _Pending(msgspec.Struct, frozen=True):
    entry: Entry
    record: Record | None
    done: asyncio.Future[None]


class Store:
    def __init__(
        self,
        journal: Journal,
        *,
        watch_window: int = WATCH_WINDOW,
        on_commit: CommitObserver = unobserved,
    ) -> None:
        self._journal = journal
        self._on_commit = on_commit
        self._window = watch_window
        self._planes: dict[str, _Plane] = {}
        self._retired: dict[str, int] = {}  # newest version of each plane that is gone
        self._waiting: list[_Pending] = []
        self._news = asyncio.Event()
        self._stopped = False
        self._refusing = False

    async def load(self) -> None:
        """Take over what is durable. Must end before anything else is called."""
        for name, loaded in (await self._journal.load()).items():
            if loaded.deleted:
                self._retired[name] = loaded.version
            else:
                self._planes[name] = _loaded_plane(name, loaded)

    async def run(self) -> None:
        """Carry writes to the journal, batch after batch, until cancelled; once for each store."""
        assert not self._stopped, "a stopped store does not start again; load a new one"
        try:
            while True:
                await self._news.wait()
                self._news.clear()
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
        """Idempotent: an existing plane stays as it is; one that is being deleted comes anew."""
        while (found := self._planes.get(plane)) is not None:
            if found.closing is None:
                return
            self._refuse_if_stopped()
            await asyncio.wait([found.closing])
        await self._enqueued(PlaneCreated(plane), None)

    async def delete_plane(self, plane: str) -> None:
        """Idempotent: returns when the plane and everything in it is gone."""
        found = self._planes.get(plane)
        if found is None:
            return
        if found.closing is None:
            found.assigned += 1
            found.closing = self._enqueued(PlaneDeleted(plane, found.assigned), None)
        await asyncio.shield(found.closing)  # others may be waiting for it

    def contents(self) -> dict[str, LoadedPlane]:
        """Everything, as of one moment over all planes: what a load would find. Only durable writes
        are in it, and whatever is written later does not change it."""
        planes = {
            name: LoadedPlane(
                plane.version,
                {
                    record.key: (record.version, record.body)
                    for of_resource in plane.objects.values()
                    for record in of_resource.values()
                },
            )
            for name, plane in self._planes.items()
        }
        retired = {n: LoadedPlane(v, {}, deleted=True) for n, v in self._retired.items()}
        return {**retired, **planes}

    def get(self, plane: str, key: ObjectKey) -> Record | None:
        return self._plane(plane).get(key)

    def snapshot(self, plane: str, resource: str, namespace: str | None = None) -> Snapshot:
        """Records sorted by namespace and name; all namespaces when none is given."""
        found = self._plane(plane)
        return Snapshot(found.version, found.select(resource, namespace))

    def resources(self, plane: str) -> list[str]:
        """The resources of which the plane holds, or once held, an object."""
        return sorted(self._plane(plane).objects)

    def counts(self, plane: str) -> dict[str, int]:
        """How many objects the plane holds of each resource."""
        return {resource: len(held) for resource, held in self._plane(plane).objects.items()}

    def dependents(self, plane: str, uid: str) -> list[Record]:
        """The objects that name this uid as an owner."""
        found = (self.get(plane, key) for key in self._plane(plane).dependents.get(uid, ()))
        return [record for record in found if record is not None]

    def listen(self, plane: str, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every change of the plane as it becomes visible; returns what
        ends that. A listener must be quick and must not fail."""
        listeners = self._plane(plane).listeners
        listeners[listener] = None
        return lambda: listeners.pop(listener, None)

    def changed(self, plane: str, resource: str) -> int:
        """The version of the newest change of a resource that is known, to notice the next."""
        return self._log(self._plane(plane), resource).newest

    def assigned(self, plane: str) -> int:
        """The newest version that any write, perhaps not yet visible, has taken."""
        return self._plane(plane).assigned

    def forget(self, plane: str, resource: str) -> None:
        """The resource is no longer served: its watches end, its history is gone."""
        found = self._plane(plane)
        log = found.logs.pop(resource, None)
        if log is not None:
            found.logs[resource] = WatchLog(found.version, self._window)
            log.close()

    def watch(
        self, plane: str, resource: str, since: int, concerns: EventFilter | None = None
    ) -> Watch:
        """Events strictly after ``since``; raises Expired when those are no longer known. What
        does not concern the reader need not wake it."""
        found = self._plane(plane)
        if since > found.version:
            # Only another life of this plane (an older backup) can have given it out.
            raise Expired(
                f"resource version {since} is ahead of plane {plane!r}, which is at "
                f"{found.version}; list again"
            )
        return self._log(found, resource).watch(since, concerns)

    def version(self, plane: str) -> int:
        return self._plane(plane).version

    def subscribe(self, plane: str, resource: str, waker: Callable[[], None]) -> None:
        """Call ``waker`` after every change of a resource, and when the plane goes."""
        self._log(self._plane(plane), resource).subscribe(waker)

    async def put(
        self,
        plane: str,
        key: ObjectKey,
        expected: int,
        encode: Encode,
        metadata: JsonObject | None = None,
    ) -> Record:
        """Write an object that is at version ``expected`` now (0: that does not exist).

        ``encode`` gets the version the object will have and returns its body. Who has the metadata
        of that body at hand, and leaves it alone from now on, spares the store reading it.
        """
        record = self._next_record(plane, key, expected, encode, metadata)
        await self._written(Change(plane, record.version, key, record.body), record)
        return record

    async def delete(self, plane: str, key: ObjectKey, expected: int, encode: Encode) -> Record:
        """Remove an object; ``encode`` returns the last state that watchers are told."""
        record = self._next_record(plane, key, expected, encode)
        await self._written(Change(plane, record.version, key, None), record)
        return record

    def _next_record(
        self,
        plane: str,
        key: ObjectKey,
        expected: int,
        encode: Encode,
        metadata: JsonObject | None = None,
    ) -> Record:
        """The object's next state, at a version of its own that nobody else gets."""
        found = self._checked(plane, key, expected)
        found.assigned += 1
        version = found.assigned
        body = encode(version)
        if metadata is None:
            return indexed(key, version, body)
        return record_of(key, version, body, metadata)

    def _written(self, change: Change, record: Record) -> asyncio.Future[None]:
        """Ends when the change is durable; a caller that gives up leaves, and the write goes on."""
        done = self._enqueued(change, record)
        self._planes[change.plane].pending.add(change.key)
        return done

    def _checked(self, plane: str, key: ObjectKey, expected: int) -> _Plane:
        """The plane, if the object is at the expected version and nobody is writing it."""
        self._refuse_if_stopped()
        found = self._plane(plane)
        if found.closing is not None:
            raise NotFound(f"plane {plane!r} is being deleted")
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

    def _plane(self, plane: str) -> _Plane:
        found = self._planes.get(plane)
        if found is None:
            raise NotFound(f"there is no plane {plane!r}")
        return found

    def _log(self, found: _Plane, resource: str) -> WatchLog:
        log = found.logs.get(resource)
        if log is None:
            # Without a log nothing has happened to this resource since start.
            log = found.logs[resource] = WatchLog(found.started, self._window)
        return log

    def _enqueued(self, entry: Entry, record: Record | None) -> asyncio.Future[None]:
        """Put an entry into the next batch; the future ends when that batch has."""
        self._refuse_if_stopped()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Pending(entry, record, done))
        self._news.set()
        return done

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise _refused("it has stopped")

    async def _commit(self, batch: list[_Pending]) -> None:
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        try:
            await self._journal.append([pending.entry for pending in batch])
        except JournalError as error:
            self._on_commit(len(batch), clock() - begun_s, False)
            self._note_refusal(error)
            for pending in batch:
                self._release(pending.entry)
                _resolve(pending.done, _refused(str(error)))
            return
        except (Exception, asyncio.CancelledError):
            # Cancelled, or the journal broke: the batch may or may not be durable.
            for pending in batch:
                _resolve(pending.done, _unknown())
            raise
        self._on_commit(len(batch), clock() - begun_s, True)
        self._note_refusal(None)
        for pending in batch:
            self._release(pending.entry)
            self._apply(pending)
        for pending in batch:
            _resolve(pending.done, None)

    def _note_refusal(self, error: JournalError | None) -> None:
        """One line when the disk begins to refuse, one when it takes writes again."""
        if error is not None and not self._refusing:
            _log.error(
                "nothing can be written any more: %s; reads go on, and writes will be taken again "
                "as soon as the disk takes them",
                error,
            )
        if error is None and self._refusing:
            _log.warning("the disk takes writes again")
        self._refusing = error is not None

    def _stop(self) -> None:
        self._stopped = True
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            _resolve(pending.done, _refused("it has stopped"))

    def _release(self, entry: Entry) -> None:
        """The entry is no longer under way: its object may be written again."""
        found = self._planes.get(entry.plane)
        if found is None:
            return
        if isinstance(entry, Change):
            found.pending.discard(entry.key)
        elif isinstance(entry, PlaneDeleted):
            found.closing = None

    def _apply(self, pending: _Pending) -> None:
        match pending.entry:
            case Change() as change:
                assert pending.record is not None
                self._apply_change(self._planes[change.plane], change, pending.record)
            case PlaneCreated(plane):
                if plane not in self._planes:
                    version = self._retired.pop(plane, 0)
                    self._planes[plane] = _Plane(version, version, version)
            case PlaneDeleted(plane, version):
                gone = self._planes.pop(plane)
                self._retired[plane] = version
                for log in gone.logs.values():
                    log.close()

    def _apply_change(self, found: _Plane, change: Change, record: Record) -> None:
        log = self._log(found, change.key.resource)
        gone = change.body is None
        previous = found.remove(change.key) if gone else found.put(record)
        found.version = change.version
        event = StoreEvent(change.version, gone, record, previous)
        log.append(event)
        for listener in list(found.listeners):
            listener(event)


def _loaded_plane(name: str, loaded: LoadedPlane) -> _Plane:
    plane = _Plane(loaded.version, loaded.version, loaded.version)
    for key, (version, body) in loaded.objects.items():
        try:
            plane.put(indexed(key, version, body))
        except DecodeError as error:
            raise JournalError(
                f"{key.resource} {key.namespace}/{key.name} of plane {name!r} cannot be read: "
                f"{error}; restore the state from a backup"
            ) from error
    return plane


def _refused(why: str) -> ApiError:
    return ServiceUnavailable(
        f"the store cannot write ({why}); nothing was changed", retry_after_s=1
    )


def _unknown() -> ApiError:
    return Timeout("the store stopped while writing; read again to learn whether it was written")


def _resolve(done: asyncio.Future[None], error: ApiError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()  # a caller that has gone leaves nobody to retrieve it
