"""Journal on disk: SQLite in WAL mode, synchronous=FULL, one connection on one thread.

SQLite before 3.51.3 can corrupt a WAL if two connections write or checkpoint at the same time. Here
one connection does both, and a lock file excludes other processes.

A failed write (disk full) is rolled back and refused. After a failed sync it is unknown whether the
pages are on disk, so the journal is broken until another process loads it.

A commit is durable in the WAL. A checkpoint, which moves the WAL into the database, is slow. It
runs only if the WAL is large, and after the response, so that committers do not wait for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from datum_compute.store.journal import (
    Change,
    Entry,
    JournalBroken,
    JournalError,
    LoadedPlane,
    ObjectKey,
    PlaneCreated,
    PlaneDeleted,
)

# --- Tables and migrations
# ``STEPS[n]`` migrates format ``n`` to format ``n + 1``. Format 0 is an empty file. All steps run
# in one transaction: if the process is killed, the file has the old format or the new one. The
# format of a file is its ``user_version``.
#
# To change the format, append a step. Never change a step that was released.


Step = Callable[[sqlite3.Connection], None]


def _first_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE planes (
            name TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            deleted INTEGER NOT NULL
        ) WITHOUT ROWID
        """
    )
    connection.execute(
        """
        CREATE TABLE objects (
            plane TEXT NOT NULL,
            resource TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            version INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (plane, resource, namespace, name)
        )
        """
    )


STEPS: tuple[Step, ...] = (_first_tables,)


def migrate(connection: sqlite3.Connection, path: Path, steps: Sequence[Step] = STEPS) -> None:
    """Migrate a file to the current format.

    Raises JournalError if a newer release or another program wrote the file.
    """
    found = _format_of(connection)
    if found > len(steps):
        raise JournalError(
            f"{path} was written by a newer release (format {found}, this one knows "
            f"{len(steps)}); upgrade datum-compute or use another state directory"
        )
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise JournalError(f"{path} is a database of another program; use another state directory")
    if found < len(steps):
        _run_steps(connection, path, found, steps)


def _run_steps(
    connection: sqlite3.Connection, path: Path, found: int, steps: Sequence[Step]
) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for step in steps[found:]:
            step(connection)
        connection.execute(f"PRAGMA user_version={len(steps)}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise JournalError(
            f"{path} cannot be migrated from format {found} to {len(steps)}: {error}; "
            "the file is unchanged"
        ) from error


def _format_of(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


# --- Journal


_OLDEST_SQLITE = (3, 24, 0)  # ON CONFLICT DO UPDATE

# A COMMIT that fails with one of these codes did not write its last page, so no reader finds it.
_NOT_COMMITTED = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR_WRITE,
    }
)

# Few sizes, so that SQLite caches the compiled statements. A usual batch has one of these sizes.
_ROWS_AT_ONCE = (64, 32, *range(16, 0, -1))
# REPLACE would move the row and its index entry, which writes three times as many pages.
_IN_PLACE = (
    "ON CONFLICT (plane, resource, namespace, name) "
    "DO UPDATE SET version=excluded.version, body=excluded.body"
)
_NEWER = "ON CONFLICT (name) DO UPDATE SET version=excluded.version"
_PAGE_BYTES = 4096
WAL_BYTES_MAX = 16 * 1024 * 1024  # a larger WAL is checkpointed

_log = logging.getLogger(__name__)

R = TypeVar("R")


class SqliteJournal:
    """Runs all database work on one thread, so that the event loop does not wait for the disk."""

    def __init__(self, path: Path, *, wal_bytes_max: int = WAL_BYTES_MAX) -> None:
        self._path = path
        self._wal_bytes_max = wal_bytes_max
        self._wal_bytes = 0  # estimate of the bytes since the last checkpoint
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._closed = False

    def acquire_lock(self) -> None:
        """Lock the directory against other processes until ``close``.

        ``load`` does this as well. A caller that reads other files in the directory locks it first.
        """
        if self._lock_file is None:
            self._lock_file = lock_file(self._path.with_suffix(".lock"))

    async def load(self) -> dict[str, LoadedPlane]:
        return await self._on_thread(self._open_and_load)

    async def append(self, batch: Sequence[Entry]) -> None:
        await self._on_thread(self._append, batch)

    async def close(self) -> None:
        """Close the file after the batch that is being written. Further calls do nothing."""
        if not self._closed:
            self._closed = True
            await self._on_thread(self._close)
            self._thread.shutdown(wait=False)

    async def _on_thread(self, work: Callable[..., R], *args: object) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _open_and_load(self) -> dict[str, LoadedPlane]:
        try:
            self.acquire_lock()
            self._connection = _open_connection(self._path)
            _check(self._connection, self._path)
            return _read_all(self._connection, self._path)
        except (sqlite3.Error, OSError) as error:
            self._close()
            raise JournalError(f"{self._path} cannot be opened: {error}") from error
        except JournalError:
            self._close()
            raise

    def _append(self, batch: Sequence[Entry]) -> None:
        assert self._connection is not None, "append before load"
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            _write_all(self._connection, batch)
        except sqlite3.Error as error:
            self._roll_back()
            raise JournalError(f"{self._path}: {error}") from error
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if error.sqlite_errorcode not in _NOT_COMMITTED:
                raise JournalBroken(f"{self._path}: {error}") from error
            self._roll_back()
            raise JournalError(f"{self._path}: {error}") from error
        self._wal_bytes += _wal_bytes(batch)
        if self._wal_bytes > self._wal_bytes_max:
            # Runs next on this thread: after the response to this batch, before the next one.
            self._thread.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        """Move the WAL into the database.

        If that fails, for example on a full disk, the WAL grows and nothing is lost. The WAL file
        keeps its size and is overwritten from the start, because a sync is faster if the file does
        not grow.
        """
        if self._connection is None:
            return
        self._wal_bytes = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            _log.warning("%s: checkpoint failed: %s", self._path, error)

    def _roll_back(self) -> None:
        assert self._connection is not None
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise JournalBroken(f"{self._path} cannot be rolled back: {error}") from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def write_database(path: Path, planes: Mapping[str, LoadedPlane]) -> None:
    """Create a database with these planes. It is durable when this function returns.

    After a JournalError, the file must not be used.
    """
    try:
        connection = _open_connection(path)
        try:
            _check(connection, path)
            connection.execute("BEGIN IMMEDIATE")
            for name, plane in sorted(planes.items()):
                row = (name, plane.version, int(plane.deleted))
                connection.execute("INSERT INTO planes VALUES (?, ?, ?)", row)
                changes = [Change(name, v, key, b) for key, (v, b) in plane.objects.items()]
                _write_changes(connection, changes)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path} cannot be written: {error}") from error


def lock_file(path: Path) -> int:
    """Open and lock a file. Returns its descriptor; closing that releases the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise JournalError(
            f"{path.parent} is in use by another process; stop that one, or use another directory"
        ) from error
    return handle


def _open_connection(path: Path) -> sqlite3.Connection:
    """Open a database that only its owner can read. The WAL file inherits the mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.chmod(path, 0o600)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _configure(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    # With exclusive locking, the index of the WAL is in memory. Its file could not be created on a
    # full disk.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    if mode != "wal":
        raise JournalError(f"{path}: this file system does not support WAL; use a local disk")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a damaged file, and migrate a file of an earlier release."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise JournalError(f"SQLite {sqlite3.sqlite_version} is too old; 3.24 or newer is needed")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalError(f"{path} is damaged: {verdict}; restore it from a backup")
    migrate(connection, path)


def _read_all(connection: sqlite3.Connection, path: Path) -> dict[str, LoadedPlane]:
    planes = {
        name: LoadedPlane(version, {}, deleted=bool(deleted))
        for name, version, deleted in connection.execute(
            "SELECT name, version, deleted FROM planes"
        )
    }
    rows = connection.execute("SELECT plane, resource, namespace, name, version, body FROM objects")
    for plane, resource, namespace, name, version, body in rows:
        if plane not in planes:
            raise JournalError(f"{path} is damaged: objects of no plane; restore it from a backup")
        planes[plane].objects[ObjectKey(resource, namespace, name)] = (version, body)
    return planes


def _wal_bytes(batch: Sequence[Entry]) -> int:
    """Estimate the bytes that a batch adds to the WAL: whole pages, and index pages per object."""
    bodies = sum(len(e.body or b"") for e in batch if isinstance(e, Change))
    return bodies + _PAGE_BYTES * (len(batch) + 2)


def _write_all(connection: sqlite3.Connection, batch: Sequence[Entry]) -> None:
    """Write all entries in order, and the newest version of each plane once."""
    newest: dict[str, int] = {}
    for is_change, entries in groupby(batch, lambda entry: isinstance(entry, Change)):
        if is_change:
            _write_changes(connection, [e for e in entries if isinstance(e, Change)])
        else:
            for entry in entries:
                _write_plane(connection, entry)
    for entry in batch:
        if not isinstance(entry, PlaneCreated):
            newest[entry.plane] = entry.version
    _write_rows(connection, "planes", [(plane, v, 0) for plane, v in newest.items()], _NEWER)


def _write_changes(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Write changes in any order: a batch changes an object at most once."""
    deleted = [(c.plane, *c.key) for c in changes if c.body is None]
    if deleted:
        connection.executemany(
            "DELETE FROM objects WHERE plane=? AND resource=? AND namespace=? AND name=?", deleted
        )
    rows = [(c.plane, *c.key, c.version, c.body) for c in changes if c.body is not None]
    _write_rows(connection, "objects", rows, _IN_PLACE)


def _write_rows(
    connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]], on_conflict: str
) -> None:
    """Insert rows with few statements of many rows.

    Each statement releases the interpreter lock. While the event loop is busy, it takes
    milliseconds to get the lock back.
    """
    while rows:
        size = next(size for size in _ROWS_AT_ONCE if size <= len(rows))
        marks = ",".join([f"({','.join('?' * len(rows[0]))})"] * size)
        connection.execute(
            f"INSERT INTO {table} VALUES {marks} {on_conflict}",  # noqa: S608 - question marks only
            [value for row in rows[:size] for value in row],
        )
        rows = rows[size:]


def _write_plane(connection: sqlite3.Connection, entry: Entry) -> None:
    match entry:
        case PlaneCreated(plane):
            connection.execute(
                "INSERT INTO planes VALUES (?, 0, 0) ON CONFLICT (name) DO UPDATE SET deleted=0",
                (plane,),
            )
        case PlaneDeleted(plane, _):
            connection.execute("DELETE FROM objects WHERE plane=?", (plane,))
            connection.execute("UPDATE planes SET deleted=1 WHERE name=?", (plane,))
