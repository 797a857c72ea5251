"""The journal on disk: SQLite in WAL mode, synchronous=FULL, one connection on one thread.

SQLite before 3.51.3 can corrupt a WAL when two connections write or checkpoint at the same
moment. One connection does all of both here, and a lock file keeps a second process away.

A failed write (disk full) is rolled back and refused. A failed sync is not: the pages may be on
disk or not, so the journal is broken until a new process reads what is really there.

A commit is durable in the WAL. Moving the WAL into the database takes long and is nobody's
business who waits for a commit, so it happens after the answer, and only when the WAL is large.
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

# --- The tables of the journal, and how those of earlier releases become today's
# ``STEPS[n]`` turns format ``n`` into format ``n + 1``; format 0 is an empty file. A file is
# brought up to date in one transaction: whatever ends the process in the middle, the file is in the
# old
# format or in the new one.
#
# To change the format: append a step, and never touch one that was released. The version that a
# file has is kept in its ``user_version``.


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
    """Raise JournalError for a file of a newer release, or of somebody else."""
    found = _format_of(connection)
    if found > len(steps):
        raise JournalError(
            f"{path} was written by a newer release (format {found}, this one knows "
            f"{len(steps)}); upgrade datum-compute or use another state directory"
        )
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise JournalError(f"{path} is a database of another program; use another state directory")
    if found < len(steps):
        _carry_out(connection, path, found, steps)


def _carry_out(
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
            f"{path} cannot be brought from format {found} to {len(steps)}: {error}; "
            "it was left as it is"
        ) from error


def _format_of(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


# --- sqlite


_OLDEST_SQLITE = (3, 24, 0)  # ON CONFLICT DO UPDATE

# A COMMIT that fails with one of these did not write its last page, so no reader will find it.
_NOT_COMMITTED = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR_WRITE,
    }
)

# Few sizes, so that SQLite need not compile a statement for every batch; a usual batch is one.
_ROWS_AT_ONCE = (64, 32, *range(16, 0, -1))
# A row that is replaced instead would move, and the index with it: that is three times the pages.
_IN_PLACE = (
    "ON CONFLICT (plane, resource, namespace, name) "
    "DO UPDATE SET version=excluded.version, body=excluded.body"
)
_NEWER = "ON CONFLICT (name) DO UPDATE SET version=excluded.version"
_PAGE_BYTES = 4096
WAL_BYTES_MAX = 16 * 1024 * 1024  # before it is moved into the database

logger = logging.getLogger(__name__)

R = TypeVar("R")


class SqliteJournal:
    """All database work happens on one thread; the event loop never waits for the disk."""

    def __init__(self, path: Path, *, wal_bytes_max: int = WAL_BYTES_MAX) -> None:
        self._path = path
        self._wal_bytes_max = wal_bytes_max
        self._wal_bytes = 0  # written since the WAL was last moved, roughly
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._closed = False

    def claim(self) -> None:
        """Keep every other process away from the directory, from now until close. Loading does it
        too; this is for whoever looks at files beside the database first."""
        if self._lock_file is None:
            self._lock_file = hold_lock(self._path.with_suffix(".lock"))

    async def load(self) -> dict[str, LoadedPlane]:
        return await self._on_thread(self._open_and_load)

    async def append(self, batch: Sequence[Entry]) -> None:
        await self._on_thread(self._append, batch)

    async def close(self) -> None:
        """Idempotent; ends after a batch that is still being written."""
        if not self._closed:
            self._closed = True
            await self._on_thread(self._close)
            self._thread.shutdown(wait=False)

    async def _on_thread(self, work: Callable[..., R], *args: object) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _open_and_load(self) -> dict[str, LoadedPlane]:
        try:
            self.claim()
            self._connection = _opened(self._path)
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
            # Comes next on this thread: after this batch is answered, before another one.
            self._thread.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        """Nothing is lost when it fails, on a full disk for example: the WAL only grows. The file
        keeps its size and is written anew from its begin: syncing that is quicker than growing."""
        if self._connection is None:
            return
        self._wal_bytes = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            logger.warning("%s cannot take in its WAL: %s", self._path, error)

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
    """A new database that holds these planes; it is on disk when this returns.

    Raises JournalError; what is left behind then is no database to use.
    """
    try:
        connection = _opened(path)
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


def hold_lock(path: Path) -> int:
    """An open file that no second process can lock, for as long as it is open."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise JournalError(
            f"{path.parent} is in use by another process; stop that one, or use another directory"
        ) from error
    return handle


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to a file that only its owner may read; the WAL inherits the mode."""
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
    # Nobody shares the file, so the index of the WAL need not be a file either: one could not be
    # made on a full disk.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    if mode != "wal":
        raise JournalError(f"{path}: this file system does not support WAL; use a local disk")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a damaged file; one of an earlier release is brought up to date."""
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
    """About what a batch adds to the WAL: whole pages, and some of the index for every object."""
    bodies = sum(len(e.body or b"") for e in batch if isinstance(e, Change))
    return bodies + _PAGE_BYTES * (len(batch) + 2)


def _write_all(connection: sqlite3.Connection, batch: Sequence[Entry]) -> None:
    """All entries in order; the version of a plane once, at its newest."""
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
    """An object changes at most once in a batch, so their order does not matter."""
    gone = [(c.plane, *c.key) for c in changes if c.body is None]
    if gone:
        connection.executemany(
            "DELETE FROM objects WHERE plane=? AND resource=? AND namespace=? AND name=?", gone
        )
    rows = [(c.plane, *c.key, c.version, c.body) for c in changes if c.body is not None]
    _write_rows(connection, "objects", rows, _IN_PLACE)


def _write_rows(
    connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]], if_there: str
) -> None:
    """Many rows go into one statement: Python's interpreter lock is given up and asked for again
    at each, and while the event loop is busy every asking takes milliseconds."""
    while rows:
        size = next(size for size in _ROWS_AT_ONCE if size <= len(rows))
        marks = ",".join([f"({','.join('?' * len(rows[0]))})"] * size)
        connection.execute(
            f"INSERT INTO {table} VALUES {marks} {if_there}",  # noqa: S608 - question marks only
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
