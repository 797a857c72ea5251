"""Migrations: files of earlier releases are migrated in one transaction, or stay unchanged."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datum_compute.store.journal import JournalError, LoadedPlane
from datum_compute.store.sqlite import STEPS, SqliteJournal, Step, migrate
from testkit.conformance.plane import PLANE, contents, object_key, open_store, put

# Format 1 as release 0.1 wrote it. Do not change it together with the code.
FORMAT_1 = """
PRAGMA journal_mode=WAL;
CREATE TABLE planes (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, deleted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE objects (
    plane TEXT NOT NULL, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    version INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (plane, resource, namespace, name)
);
INSERT INTO planes VALUES ('hub', 7, 0), ('gone', 3, 1);
INSERT INTO objects VALUES
    ('hub', 'things.example.com', 'default', 'kept', 5,
     CAST('{"metadata":{"name":"kept","namespace":"default","uid":"u"}}' AS BLOB));
PRAGMA user_version=1;
"""


def write_format_1(folder: Path) -> Path:
    path = folder / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FORMAT_1)
    return path


def content(path: Path) -> tuple[Any, ...]:
    """Return the format, the columns of all tables, and all rows."""
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        names = sorted(name for (name,) in listed)
        columns = {
            name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names
        }
        rows = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]
        return version, columns, rows


def add_size(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE objects ADD COLUMN size INTEGER NOT NULL DEFAULT 0")


def fill_size(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE objects SET size = length(body)")


def fail_after_delete(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM planes")
    connection.execute("INSERT INTO missing_table VALUES (1)")


LATER: tuple[Step, ...] = (*STEPS[:1], add_size, fill_size)


def migrate_file(path: Path, steps: tuple[Step, ...]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path, steps)


async def test_a_file_of_the_first_release_is_read_and_written(tmp_path: Path) -> None:
    path = write_format_1(tmp_path)
    async with open_store(SqliteJournal(path)) as store:
        assert list(contents(store)) == ["kept"]
        assert store.version(PLANE) == 7
        await put(store, "new")
        assert store.version(PLANE) == 8
    async with open_store(SqliteJournal(path)) as store:
        assert sorted(contents(store)) == ["kept", "new"]


async def test_a_deleted_plane_of_an_earlier_release_keeps_its_versions(tmp_path: Path) -> None:
    journal = SqliteJournal(write_format_1(tmp_path))
    loaded = await journal.load()
    await journal.close()
    assert loaded["gone"] == LoadedPlane(3, {}, deleted=True)
    assert loaded[PLANE].objects[object_key("kept")][0] == 5


def test_a_migrated_old_file_has_the_same_tables_as_a_new_one(tmp_path: Path) -> None:
    old, new = write_format_1(tmp_path), tmp_path / "new.db"
    migrate_file(old, LATER)
    migrate_file(new, LATER)
    assert content(old)[:2] == content(new)[:2]


def test_each_pending_step_runs_once_and_in_order(tmp_path: Path) -> None:
    path = write_format_1(tmp_path)
    migrate_file(path, LATER)
    after = content(path)
    assert after[0] == (len(LATER),)
    (objects, planes) = after[2]
    assert [(row[3], row[6]) for row in objects] == [("kept", len(objects[0][5]))]
    assert len(planes) == 2
    migrate_file(path, LATER)
    assert content(path) == after


def test_a_failing_step_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = write_format_1(tmp_path)
    before = content(path)
    with pytest.raises(JournalError, match=r"from format 1 to 4: .*missing_table.*is unchanged"):
        migrate_file(path, (*LATER, fail_after_delete))
    assert content(path) == before
    migrate_file(path, LATER)
    assert content(path)[0] == (len(LATER),)


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from datum_compute.store.sqlite import migrate
from tests.store.test_sqlite_migrations import LATER

def kill_process(connection):
    connection.execute("DELETE FROM planes")
    os.kill(os.getpid(), signal.SIGKILL)

steps = list(LATER)
steps.insert(int(sys.argv[2]), kill_process)
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA synchronous=FULL")
connection.execute("PRAGMA cache_size=1")  # so that pages of the transaction reach the file
migrate(connection, Path(sys.argv[1]), steps)
"""


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_migration_killed_in_the_middle_leaves_the_file_unchanged(
    tmp_path: Path, at: int
) -> None:
    path = write_format_1(tmp_path)
    before = content(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(at)], capture_output=True)
    assert done.returncode == -9, done.stderr
    assert content(path) == before
    migrate_file(path, LATER)
    assert content(path)[0] == (len(LATER),)


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE songs (name TEXT); INSERT INTO songs VALUES ('x')")
    before = content(path)
    with pytest.raises(JournalError, match="another program"):
        asyncio.run(SqliteJournal(path).load())
    assert content(path) == before
