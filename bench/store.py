"""The store: durable writes compared with the disk and SQLite, reads, and events to watchers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from itertools import count
from pathlib import Path

from bench.latencies import Latencies, latencies_of
from bench.measurement import RESULTS, Measurement, rate, rate_async
from datum_compute.app.process import run_loop
from datum_compute.store.journal import MemoryJournal, ObjectKey
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.store.store import Encode, Store
from datum_compute.store.watch_log import Watch
from testkit.conformance.plane import ENOUGH_S, PLANE, THINGS, body, object_key, open_store

BODY_BYTES = 3000
LISTED = 10_000
WRITERS = 64
SYNCS = 300
EVENTS = 1000


def measure() -> list[Measurement]:
    # In the folder of the results: on the disk of the checkout, not a memory file system.
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        floors = [
            Measurement("sync", synced_appends(Path(folder)), "syncs/s"),
            Measurement("sqlite 1", bare_sqlite(Path(folder), rows=1), "rows/s"),
            Measurement(f"sqlite {WRITERS}", bare_sqlite(Path(folder), rows=WRITERS), "rows/s"),
        ]
        return floors + asyncio.run(measure_store(Path(folder)))


async def measure_store(folder: Path) -> list[Measurement]:
    async with open_store(SqliteJournal(folder / "store.db")) as store:
        one = await puts(store, writers=1)
        many = await puts(store, writers=WRITERS)
        await fill(store)
        return [
            Measurement("put, 1 writer", one, "writes/s", "sqlite 1"),
            Measurement(f"put, {WRITERS} writers", many, "writes/s", f"sqlite {WRITERS}"),
            Measurement("get", gets(store), "reads/s"),
            Measurement(f"list of {LISTED}", lists(store), "lists/s"),
        ]


def synced_appends(folder: Path) -> float:
    """Append and sync 4 KB, the lower bound of a durable write."""
    handle = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    page = b"x" * 4096

    def step() -> int:
        os.write(handle, page)
        os.fdatasync(handle)
        return 1

    try:
        return rate(step)
    finally:
        os.close(handle)


def sync_latencies(folder: Path, *, pause_s: float) -> Latencies:
    """Append and sync one at a time with pauses, the lower bound of an event."""
    handle = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken_s = []
    try:
        for _ in range(SYNCS):
            start = time.perf_counter()
            os.write(handle, b"x" * 4096)
            os.fdatasync(handle)
            taken_s.append(time.perf_counter() - start)
            time.sleep(pause_s)
    finally:
        os.close(handle)
    return latencies_of(taken_s)


def bare_sqlite(folder: Path, *, rows: int) -> float:
    """Commit ``rows`` rows at once with the settings of the journal."""
    connection = sqlite3.connect(folder / f"bare-{rows}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE objects (name TEXT PRIMARY KEY, body BLOB NOT NULL)")
    numbers = count()

    def step() -> int:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            row = (f"thing-{next(numbers) % 1000}", os.urandom(BODY_BYTES))
            connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?)", row)
        connection.execute("COMMIT")
        return rows

    try:
        return rate(step)
    finally:
        connection.close()


def stored_alone(folder: Path, body: bytes, *, writers: int) -> tuple[float, float]:
    """Return new objects per second with the store alone, and the CPU time of one in microseconds:
    the part of a create without parsing, checks and response."""

    async def measure() -> tuple[float, float]:
        async with open_store(SqliteJournal(folder / "alone.db")) as store:
            numbers = count()

            async def step(_worker: int) -> None:
                key = object_key(f"thing-{next(numbers)}")
                await store.put(PLANE, key, 0, lambda _version: body)

            before_s = time.process_time()
            found = await rate_async(step, workers=writers)
            return found, (time.process_time() - before_s) / next(numbers) * 1e6

    return run_loop(measure())


def encoder(name: str) -> Encode:
    padding = "x" * (BODY_BYTES - 100)

    def encoded(version: int) -> bytes:
        metadata = f'{{"name":"{name}","uid":"{name}","resourceVersion":"{version}"}}'
        return f'{{"metadata":{metadata},"spec":"{padding}"}}'.encode()

    return encoded


async def puts(store: Store, *, writers: int) -> float:
    """Each writer changes one object, one write after the other."""
    names = [f"writer-{writers}-{number}" for number in range(writers)]
    versions = [0] * writers

    async def step(worker: int) -> None:
        name = names[worker]
        record = await store.put(PLANE, object_key(name), versions[worker], encoder(name))
        versions[worker] = record.version

    return await rate_async(step, workers=writers)


async def fill(store: Store) -> None:
    keys = [ObjectKey(THINGS, "listed", f"thing-{number}") for number in range(LISTED)]
    for start in range(0, LISTED, 1000):
        chunk = keys[start : start + 1000]
        await asyncio.gather(*(store.put(PLANE, key, 0, encoder(key.name)) for key in chunk))


def gets(store: Store) -> float:
    key = ObjectKey(THINGS, "listed", "thing-5")

    def step() -> int:
        for _ in range(1000):
            store.get(PLANE, key)
        return 1000

    return rate(step)


def lists(store: Store) -> float:
    def step() -> int:
        assert len(store.snapshot(PLANE, THINGS, "listed").records) == LISTED
        return 1

    return rate(step)


# --- the watch log


def measure_watch_log() -> list[Measurement]:
    return [
        Measurement("1 reader", asyncio.run(deliveries(1)), "events/s"),
        Measurement("100 readers", asyncio.run(deliveries(100)), "events/s"),
        Measurement("1000 readers", asyncio.run(deliveries(1000)), "events/s"),
    ]


async def deliveries(readers: int) -> float:
    """Return events delivered per second to all readers, while one writer writes without pause."""
    async with open_store(MemoryJournal()) as store:
        watches = [store.watch(PLANE, THINGS, 0) for _ in range(readers)]
        start = time.perf_counter()
        await asyncio.gather(write(store), *(read(watch) for watch in watches))
        return readers * EVENTS / (time.perf_counter() - start)


async def write(store: Store) -> None:
    version = 0
    for _ in range(EVENTS):
        version = (await store.put(PLANE, object_key("thing"), version, body("thing"))).version


async def read(watch: Watch) -> None:
    seen = 0
    while seen < EVENTS:
        seen += len(await watch.next_events(ENOUGH_S))
