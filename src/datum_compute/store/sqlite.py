"""The journal on disk: SQLite in WAL mode, synchronous=FULL, one connection on one thread.

SQLite before 3.51.3 can corrupt a WAL when two connections write or checkpoint at the same
moment. One connection does all of both here, and a lock file keeps a second process away.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from datum_compute.store.journal import (
    Change,
    Entry,
    JournalError,
    LoadedPlane,
    ObjectKey,
    PlaneCreated,
    PlaneDeleted,
)

SCHEMA_VERSION = 1

_TABLES = """
CREATE TABLE planes (name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    plane TEXT NOT NULL,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (plane, resource, namespace, name)
);
"""

R = TypeVar("R")


class SqliteJournal:
    """All database work happens on one thread; the event loop never waits for the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None
        self._lock_file: int | None = None

    async def load(self) -> dict[str, LoadedPlane]:
        return await self._on_thread(self._open_and_load)

    async def append(self, batch: Sequence[Entry]) -> None:
        try:
            await self._on_thread(self._append, batch)
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {error}") from error

    async def close(self) -> None:
        await self._on_thread(self._close)
        self._thread.shutdown()

    async def _on_thread(self, work: Callable[..., R], *args: object) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _open_and_load(self) -> dict[str, LoadedPlane]:
        try:
            self._lock_file = _locked(self._path.with_suffix(".lock"))
            connection = sqlite3.connect(self._path, isolation_level=None)
            os.chmod(self._path, 0o600)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._connection = connection
            _check(connection, self._path)
            return _read_all(connection)
        except sqlite3.Error as error:
            raise JournalError(f"{self._path} cannot be opened: {error}") from error

    def _append(self, batch: Sequence[Entry]) -> None:
        assert self._connection is not None, "append before load"
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for entry in batch:
                _write(self._connection, entry)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _locked(path: Path) -> int:
    """An open file that no second process can lock, for as long as it is open."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise JournalError(f"{path.parent} is in use by another process") from error
    return handle


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of an empty file; refuse a damaged or newer one."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
        )
    elif found > SCHEMA_VERSION:
        raise JournalError(
            f"{path} was written by a newer release (format {found}, this one knows "
            f"{SCHEMA_VERSION}); upgrade datum-compute or use another state directory"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise JournalError(f"{path} is damaged: {verdict}; restore it from a backup")


def _read_all(connection: sqlite3.Connection) -> dict[str, LoadedPlane]:
    planes = {
        name: LoadedPlane(version, {})
        for name, version in connection.execute("SELECT name, version FROM planes")
    }
    rows = connection.execute(
        "SELECT plane, resource, namespace, name, version, body FROM objects ORDER BY version"
    )
    for plane, resource, namespace, name, version, body in rows:
        planes[plane].objects[ObjectKey(resource, namespace, name)] = (version, body)
    return planes


def _write(connection: sqlite3.Connection, entry: Entry) -> None:
    match entry:
        case PlaneCreated(plane):
            connection.execute("INSERT OR IGNORE INTO planes VALUES (?, 0)", (plane,))
        case PlaneDeleted(plane):
            connection.execute("DELETE FROM objects WHERE plane = ?", (plane,))
            connection.execute("DELETE FROM planes WHERE name = ?", (plane,))
        case Change(plane, version, key, None):
            connection.execute(
                "DELETE FROM objects WHERE plane=? AND resource=? AND namespace=? AND name=?",
                (plane, *key),
            )
            connection.execute("UPDATE planes SET version=? WHERE name=?", (version, plane))
        case Change(plane, version, key, body):
            connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)",
                (plane, *key, version, body),
            )
            connection.execute("UPDATE planes SET version=? WHERE name=?", (version, plane))
