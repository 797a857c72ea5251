"""All objects of all planes: reads from memory, writes by compare-and-swap and group commit.

Rules it keeps:
- A write is seen by reads and watches, and answered, only after its batch is durable.
- At most one write per object is under way; a second one conflicts at once, which is what it
  would find after the first had landed.
- Versions are one counter per plane; they rise in commit order and never go back.
- While a batch is on its way to the disk, new writes gather in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from datum_compute.api.errors import AlreadyExists, Conflict, NotFound, ServiceUnavailable
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
from datum_compute.store.record import Record, indexed
from datum_compute.store.watchlog import StoreEvent, Watch, WatchLog

WATCH_WINDOW = 5000

Encode = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent list and the version a watch continues from."""

    version: int
    records: list[Record]


@dataclass(slots=True)
class _Plane:
    started: int  # version at load: older history is not known
    version: int  # newest that reads may see
    assigned: int  # newest that a write, perhaps not yet durable, has taken
    closing: bool = False  # its deletion is on the way to the disk
    objects: dict[str, dict[tuple[str, str], Record]] = field(default_factory=dict)
    logs: dict[str, WatchLog] = field(default_factory=dict)
    pending: set[ObjectKey] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Pending:
    entry: Entry
    record: Record | None
    done: asyncio.Future[None]


class Store:
    def __init__(self, journal: Journal, *, watch_window: int = WATCH_WINDOW) -> None:
        self._journal = journal
        self._window = watch_window
        self._planes: dict[str, _Plane] = {}
        self._waiting: list[_Pending] = []
        self._news = asyncio.Event()

    async def load(self) -> None:
        """Take over what is durable. Must end before anything else is called."""
        for name, loaded in (await self._journal.load()).items():
            self._planes[name] = _loaded_plane(loaded)

    async def run(self) -> None:
        """Carry writes to the journal, batch after batch, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._commit(batch)

    def planes(self) -> list[str]:
        return sorted(self._planes)

    async def create_plane(self, plane: str) -> None:
        """Idempotent: an existing plane stays as it is."""
        if plane not in self._planes:
            await self._enqueue(PlaneCreated(plane), None)

    async def delete_plane(self, plane: str) -> None:
        found = self._planes.get(plane)
        if found is not None and not found.closing:
            found.closing = True
            await self._enqueue(PlaneDeleted(plane), None)

    def get(self, plane: str, key: ObjectKey) -> Record | None:
        of_resource = self._plane(plane).objects.get(key.resource, {})
        return of_resource.get((key.namespace, key.name))

    def snapshot(self, plane: str, resource: str, namespace: str | None = None) -> Snapshot:
        """Records sorted by namespace and name; all namespaces when none is given."""
        found = self._plane(plane)
        records = [
            record
            for (space, _), record in sorted(found.objects.get(resource, {}).items())
            if namespace is None or space == namespace
        ]
        return Snapshot(found.version, records)

    def watch(self, plane: str, resource: str, since: int) -> Watch:
        """Events strictly after ``since``; raises Expired when those are no longer known."""
        found = self._plane(plane)
        return self._log(found, resource).watch(since)

    def version(self, plane: str) -> int:
        return self._plane(plane).version

    async def put(self, plane: str, key: ObjectKey, expected: int, encode: Encode) -> Record:
        """Write an object that is at version ``expected`` now (0: that does not exist).

        ``encode`` gets the version the object will have and returns its body.
        """
        found = self._checked(plane, key, expected)
        version = self._assign(found)
        record = indexed(key, version, encode(version))
        found.pending.add(key)
        await self._enqueue(Change(plane, version, key, record.body), record)
        return record

    async def delete(self, plane: str, key: ObjectKey, expected: int, encode: Encode) -> Record:
        """Remove an object; ``encode`` returns the last state that watchers are told."""
        found = self._checked(plane, key, expected)
        version = self._assign(found)
        record = indexed(key, version, encode(version))
        found.pending.add(key)
        await self._enqueue(Change(plane, version, key, None), record)
        return record

    def _checked(self, plane: str, key: ObjectKey, expected: int) -> _Plane:
        """The plane, if the object is at the expected version and nobody is writing it."""
        found = self._plane(plane)
        if found.closing:
            raise NotFound(f"plane {plane!r} is being deleted")
        present = self.get(plane, key)
        if key in found.pending:
            raise Conflict(f"{key.resource} {key.name!r} is being written; read it and try again")
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

    @staticmethod
    def _assign(found: _Plane) -> int:
        found.assigned += 1
        return found.assigned

    async def _enqueue(self, entry: Entry, record: Record | None) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Pending(entry, record, done))
        self._news.set()
        # A caller that gives up must not undo a write that is on its way.
        await asyncio.shield(done)

    async def _commit(self, batch: list[_Pending]) -> None:
        try:
            await self._journal.append([pending.entry for pending in batch])
        except JournalError as error:
            refused = ServiceUnavailable(
                f"the store cannot write ({error}); nothing was changed", retry_after_s=1
            )
            for pending in batch:
                self._release(pending.entry)
                _resolve(pending.done, refused)
            return
        for pending in batch:
            self._release(pending.entry)
            self._apply(pending)
            _resolve(pending.done, None)

    def _release(self, entry: Entry) -> None:
        """The entry is no longer under way: its object may be written again."""
        found = self._planes.get(entry.plane)
        match entry:
            case Change() if found is not None:
                found.pending.discard(entry.key)
            case PlaneDeleted() if found is not None:
                found.closing = False

    def _apply(self, pending: _Pending) -> None:
        match pending.entry:
            case PlaneCreated(plane):
                self._planes.setdefault(plane, _Plane(0, 0, 0))
            case PlaneDeleted(plane):
                gone = self._planes.pop(plane, None)
                for log in gone.logs.values() if gone else ():
                    log.close()
            case Change(plane, version, key, body):
                assert pending.record is not None
                self._apply_change(self._planes[plane], version, key, body, pending.record)

    def _apply_change(
        self, found: _Plane, version: int, key: ObjectKey, body: bytes | None, record: Record
    ) -> None:
        log = self._log(found, key.resource)
        of_resource = found.objects.setdefault(key.resource, {})
        name = (key.namespace, key.name)
        previous = of_resource.get(name)
        if body is None:
            of_resource.pop(name, None)
        else:
            of_resource[name] = record
        found.version = version
        log.append(StoreEvent(version, body is None, record, previous))


def _loaded_plane(loaded: LoadedPlane) -> _Plane:
    plane = _Plane(loaded.version, loaded.version, loaded.version)
    for key, (version, body) in loaded.objects.items():
        of_resource = plane.objects.setdefault(key.resource, {})
        of_resource[(key.namespace, key.name)] = indexed(key, version, body)
    return plane


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
