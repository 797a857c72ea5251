"""SQLite journal: damaged files are refused, a full disk loses nothing, the file is locked."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from datum_compute.api.errors import ServiceUnavailable, Timeout
from datum_compute.store.journal import (
    Change,
    JournalBroken,
    JournalError,
    LoadedPlane,
    PlaneCreated,
)
from datum_compute.store.sqlite import STEPS, SqliteJournal
from datum_compute.store.store import Store
from testkit.conformance.plane import PLANE, contents, object_key, open_store, put, refusal

ROOT = Path(__file__).resolve().parents[2]


def database(folder: Path) -> Path:
    return folder / "state.db"


async def fill(folder: Path, count: int = 1) -> dict[str, tuple[int, bytes]]:
    async with open_store(SqliteJournal(database(folder))) as store:
        for index in range(count):
            await put(store, f"thing-{index}", content="x" * 1000)
        return contents(store)


async def stored_names(folder: Path) -> list[str]:
    async with open_store(SqliteJournal(database(folder))) as store:
        return sorted(contents(store))


async def load_planes(folder: Path) -> dict[str, LoadedPlane]:
    journal = SqliteJournal(database(folder))
    planes = await journal.load()
    await journal.close()
    return planes


async def load_error(folder: Path) -> str:
    journal = SqliteJournal(database(folder))
    with pytest.raises(JournalError) as caught:
        await journal.load()
    await journal.close()
    return str(caught.value)


async def test_a_file_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    await fill(tmp_path)
    with sqlite3.connect(database(tmp_path)) as connection:
        connection.execute(f"PRAGMA user_version={len(STEPS) + 1}")
    connection.close()
    before = database(tmp_path).read_bytes()
    message = await load_error(tmp_path)
    assert "newer release" in message
    assert "upgrade datum-compute" in message
    assert database(tmp_path).read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    database(tmp_path).write_bytes(b"this is not a database" * 1000)
    assert "not a database" in await load_error(tmp_path)


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path, count=200)
    content = bytearray(database(tmp_path).read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = os.urandom(64)
    database(tmp_path).write_bytes(content)
    message = await load_error(tmp_path)
    assert "damaged" in message or "malformed" in message


async def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    await fill(tmp_path, count=200)
    size = database(tmp_path).stat().st_size
    os.truncate(database(tmp_path), size // 2)
    message = await load_error(tmp_path)
    assert "damaged" in message or "malformed" in message


async def test_the_error_for_an_unreadable_object_names_it(tmp_path: Path) -> None:
    await fill(tmp_path)
    with sqlite3.connect(database(tmp_path)) as connection:
        connection.execute("UPDATE objects SET body=?", (b"{broken",))
    connection.close()
    journal = SqliteJournal(database(tmp_path))
    with pytest.raises(JournalError, match="default/thing-0 of plane 'hub' cannot be read"):
        await Store(journal).load()
    await journal.close()


async def test_objects_of_no_plane_are_refused(tmp_path: Path) -> None:
    await fill(tmp_path)
    with sqlite3.connect(database(tmp_path)) as connection:
        connection.execute("DELETE FROM planes")
    connection.close()
    assert "objects of no plane" in await load_error(tmp_path)


async def test_the_error_for_a_missing_directory_names_it(tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in await load_error(tmp_path / "missing")


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    database(tmp_path).touch(mode=0o644)
    old_mask = os.umask(0)
    try:
        async with open_store(SqliteJournal(database(tmp_path))) as store:
            await put(store, "thing")
            modes = {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(tmp_path)}
    finally:
        os.umask(old_mask)
    assert set(modes) == {"state.db", "state.db-wal", "state.lock"}
    assert set(modes.values()) == {0o600}


async def test_commits_are_synced_in_wal_mode(tmp_path: Path) -> None:
    journal = SqliteJournal(database(tmp_path))
    await journal.load()
    assert await pragma(journal, "journal_mode") == "wal"
    assert await pragma(journal, "synchronous") == 2
    await journal.close()


async def test_closing_twice_is_allowed(tmp_path: Path) -> None:
    journal = SqliteJournal(database(tmp_path))
    await journal.load()
    await journal.close()
    await journal.close()
    assert (await fill(tmp_path)).keys() == {"thing-0"}


async def test_a_second_journal_of_the_same_file_is_refused(tmp_path: Path) -> None:
    async with open_store(SqliteJournal(database(tmp_path))):
        assert "in use by another process" in await load_error(tmp_path)
    assert (await fill(tmp_path)).keys() == {"thing-0"}


HOLDER = """
import asyncio, sys
from pathlib import Path
from datum_compute.store.sqlite import SqliteJournal

async def hold() -> None:
    await SqliteJournal(Path(sys.argv[1])).load()
    print("held", flush=True)
    sys.stdin.read()

asyncio.run(hold())
"""


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(database(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert "in use by another process" in asyncio.run(load_error(tmp_path))
        holder.kill()
    assert asyncio.run(fill(tmp_path)).keys() == {"thing-0"}


async def pragma(journal: SqliteJournal, text: str) -> object:
    """Read or set a pragma of the journal's connection, on its thread."""

    def execute() -> object:
        assert journal._connection is not None
        (value,) = journal._connection.execute(f"PRAGMA {text}").fetchone()
        return value

    return await journal._on_thread(execute)


async def test_a_full_disk_refuses_writes_and_keeps_reads(tmp_path: Path) -> None:
    journal = SqliteJournal(database(tmp_path))
    async with open_store(journal) as store:
        await put(store, "before")
        pages = await pragma(journal, "page_count")
        await pragma(journal, f"max_page_count={pages}")
        assert await refusal(put(store, "large", content="x" * 100_000)) is ServiceUnavailable
        assert list(contents(store)) == ["before"]
        await pragma(journal, "max_page_count=1000000")
        assert await refusal(put(store, "large", content="x" * 100_000)) is None
        after = contents(store)
    async with open_store(SqliteJournal(database(tmp_path))) as store:
        assert contents(store) == after


FULL_DISK = """
import asyncio, json, resource, sys
from pathlib import Path
from datum_compute.api.errors import ServiceUnavailable
from datum_compute.store.sqlite import SqliteJournal
from testkit.conformance.plane import contents, open_store, put, refusal

async def main() -> None:
    acknowledged, refused = [], []
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with open_store(SqliteJournal(Path(sys.argv[1]))) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
        while len(refused) < 5:
            name = f"thing-{len(acknowledged) + len(refused)}"
            outcome = await refusal(put(store, name, content="x" * 5000))
            assert outcome in (None, ServiceUnavailable), outcome
            (refused if outcome else acknowledged).append(name)
            assert sorted(contents(store)) == sorted(acknowledged), "reads go on"
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert await refusal(put(store, "recovered")) is None
        acknowledged.append("recovered")
    print(json.dumps([acknowledged, refused]))

asyncio.run(main())
"""


def test_writes_refused_by_a_full_disk_leave_nothing(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(database(tmp_path))],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    acknowledged, refused = json.loads(finished.stdout)
    assert len(acknowledged) > 5
    stored = asyncio.run(stored_names(tmp_path))
    assert stored == sorted(acknowledged)
    assert not set(refused) & set(stored)


START_ON_A_FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from datum_compute.api.errors import ServiceUnavailable
from datum_compute.store.sqlite import SqliteJournal
from testkit.conformance.plane import contents, open_store, put, refusal

async def main() -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited[1]))
    async with open_store(SqliteJournal(Path(sys.argv[1]))) as store:
        assert sorted(contents(store)) == ["early"], "reads go on"
        assert await refusal(put(store, "refused")) is ServiceUnavailable
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert await refusal(put(store, "late")) is None

asyncio.run(main())
"""


async def test_a_store_started_on_a_full_disk_serves_reads_and_recovers(tmp_path: Path) -> None:
    async with open_store(SqliteJournal(database(tmp_path))) as store:
        await put(store, "early")
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START_ON_A_FULL_DISK, str(database(tmp_path))),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await started.communicate()
    assert started.returncode == 0, stderr.decode()
    assert await stored_names(tmp_path) == ["early", "late"]


class FailingCommit:
    """A connection whose first commit fails with an error code of SQLite."""

    def __init__(self, inner: sqlite3.Connection, error_code: int) -> None:
        self._inner = inner
        self._error_code = error_code

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        if statement == "COMMIT" and self._error_code:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, self._error_code = self._error_code, 0
            raise error
        return self._inner.execute(statement, parameters)


async def journal_with_failing_commit(folder: Path, error_code: int) -> SqliteJournal:
    journal = SqliteJournal(database(folder))
    await journal.load()
    assert journal._connection is not None
    journal._connection = FailingCommit(journal._connection, error_code)  # type: ignore[assignment]
    return journal


async def test_a_failed_sync_breaks_the_journal(tmp_path: Path) -> None:
    journal = await journal_with_failing_commit(tmp_path, sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(JournalBroken):
        await journal.append([PlaneCreated(PLANE)])
    await journal.close()


async def test_a_failed_write_is_rolled_back(tmp_path: Path) -> None:
    journal = await journal_with_failing_commit(tmp_path, sqlite3.SQLITE_FULL)
    with pytest.raises(JournalError):
        await journal.append([PlaneCreated("refused")])
    await journal.append([PlaneCreated("kept")])
    await journal.close()
    assert set(await load_planes(tmp_path)) == {"kept"}


async def test_a_batch_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal(database(tmp_path))
    await journal.load()
    await journal.append([PlaneCreated(PLANE)])

    def limit_lengths() -> None:
        assert journal._connection is not None
        journal._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)

    await journal._on_thread(limit_lengths)
    small = Change(PLANE, 1, object_key("small"), b"{}")
    with pytest.raises(JournalError):
        await journal.append([small, Change(PLANE, 2, object_key("large"), b"x" * 2000)])
    await journal.append([Change(PLANE, 3, object_key("next"), b"{}")])
    await journal.close()
    plane = (await load_planes(tmp_path))[PLANE]
    assert (plane.version, list(plane.objects)) == (3, [object_key("next")])


async def test_a_batch_cancelled_at_shutdown_is_durable_as_a_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    """The result of the writes is unknown, and the file is intact."""
    journal = SqliteJournal(database(tmp_path))
    store = Store(journal)
    await store.load()
    runner = asyncio.create_task(store.run())
    await store.create_plane(PLANE)
    writes = [asyncio.create_task(refusal(put(store, f"thing-{i}"))) for i in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    runner.cancel()
    outcomes = set(await asyncio.gather(*writes))
    await asyncio.wait([runner])
    await journal.close()
    assert outcomes <= {None, Timeout, ServiceUnavailable}
    async with open_store(SqliteJournal(database(tmp_path))) as reopened:
        assert len(contents(reopened)) in (0, 50)


async def test_a_large_wal_is_checkpointed_after_the_response(tmp_path: Path) -> None:
    journal = SqliteJournal(database(tmp_path), wal_bytes_max=200_000)
    async with open_store(journal) as store:
        for number in range(200):
            await put(store, f"thing-{number}", content="x" * 5000)
        (_busy, frames, moved) = await journal._on_thread(wal_state, journal)
        kept = contents(store)
        assert frames == moved < 100, "pages of a few writes are left, and all can be moved"
        assert database(tmp_path).stat().st_size > 500_000
    async with open_store(SqliteJournal(database(tmp_path))) as store:
        assert contents(store) == kept


def wal_state(journal: SqliteJournal) -> tuple[int, int, int]:
    assert journal._connection is not None
    found = journal._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    busy, frames, moved = found
    return busy, frames, moved


async def test_a_failed_checkpoint_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = SqliteJournal(database(tmp_path), wal_bytes_max=0)
    await journal.load()
    await journal.append([PlaneCreated(PLANE)])
    assert journal._connection is not None
    journal._connection = FailingCheckpoint(journal._connection)  # type: ignore[assignment]
    await journal.append([PlaneCreated("kept")])
    await journal.append([PlaneCreated("kept-too")])
    await journal.close()
    assert {"kept", "kept-too"} <= set(await load_planes(tmp_path))
    assert "checkpoint failed: disk full" in caplog.text


class FailingCheckpoint:
    """A connection whose checkpoints fail, as on a full disk."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("disk full")
        return self._inner.execute(statement, parameters)
