"""Store: random histories match a model and a watching reader; refused writes are logged."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.errors import ApiError, Expired, ServiceUnavailable
from datum_compute.store.journal import MemoryJournal, ObjectKey
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.store.store import SELECTIONS_MAX, Store
from datum_compute.store.watch_log import StoreEvent, Watch
from testkit.conformance.plane import (
    PLANE,
    THINGS,
    Disk,
    body,
    object_key,
    open_store,
    put,
    refusal,
)
from testkit.fakes.journal import FaultyJournal

NAMES = st.sampled_from(["a", "b", "c"])
AGES = st.sampled_from(["present", "older", "absent"])


@dataclass(frozen=True)
class Write:
    """Put or delete a thing, expecting its present version, an older one, or its absence."""

    name: str
    remove: bool
    expecting: str


@dataclass(frozen=True)
class OtherWrite:
    """A write to another resource: it increases the version of the plane without a watch event."""


@dataclass(frozen=True)
class DeletePlane:
    """Delete the plane and create it again."""


Operation = Write | OtherWrite | DeletePlane
WRITES = st.builds(Write, NAMES, st.booleans(), AGES)
OPERATIONS = st.one_of(WRITES, WRITES, WRITES, st.builds(OtherWrite), st.builds(DeletePlane))


@dataclass(frozen=True)
class Burst:
    """Operations that start together, and whether their batch is refused or a restart follows."""

    operations: list[Operation]
    refused: bool
    restart: bool


BURSTS = st.lists(
    st.builds(Burst, st.lists(OPERATIONS, min_size=1, max_size=6), st.booleans(), st.booleans()),
    max_size=8,
)


@dataclass
class Mirror:
    """A reader that uses only lists and watch events, like an informer."""

    held: dict[str, int] = field(default_factory=dict)
    version: int = 0
    watch: Watch | None = None

    async def follow(self, store: Store) -> None:
        if self.watch is None or self.watch.is_closed:
            try:
                self.watch = store.watch(PLANE, THINGS, self.version)
            except Expired:
                self._list(store)
                self.watch = store.watch(PLANE, THINGS, self.version)
        for event in await self.watch.next_events(0):
            self._apply(event)

    def _list(self, store: Store) -> None:
        snapshot = store.snapshot(PLANE, THINGS)
        self.held = {record.key.name: record.version for record in snapshot.records}
        self.version = snapshot.version

    def _apply(self, event: StoreEvent) -> None:
        assert event.version > self.version, "an event came twice, or out of order"
        name = event.record.key.name
        known = self.held.pop(name, None)
        assert known == (event.previous.version if event.previous else None), "a gap"
        self.version = event.version
        if not event.deleted:
            self.held[name] = event.version


@dataclass
class Model:
    """The expected content: all acknowledged writes, in the order of versions."""

    held: dict[str, int] = field(default_factory=dict)
    newest: int = 0

    def apply(self, acknowledged: list[tuple[int, Write, int]]) -> None:
        for version, write, expected in sorted(acknowledged, key=lambda each: each[0]):
            assert version > self.newest, "a version was used twice"
            assert self.held.get(write.name, 0) == expected, "two writers won"
            self.newest = version
            self.held.pop(write.name, None)
            if not write.remove:
                self.held[write.name] = version


def expected_version(store: Store, write: Write) -> int:
    record = store.get(PLANE, object_key(write.name))
    present = record.version if record else 0
    return {"present": present, "older": max(present - 1, 0), "absent": 0}[write.expecting]


async def attempt(store: Store, operation: Operation) -> tuple[int, Write, int] | None:
    """Perform an operation. Return an acknowledged write with its version."""
    try:
        match operation:
            case OtherWrite():
                key = ObjectKey("others.example.com", "", "x")
                present = store.get(PLANE, key)
                await store.put(PLANE, key, present.version if present else 0, body("x"))
            case DeletePlane():
                await store.delete_plane(PLANE)
            case Write():
                expected = expected_version(store, operation)
                change = store.delete if operation.remove else store.put
                key = object_key(operation.name)
                record = await change(PLANE, key, expected, body(operation.name))
                return record.version, operation, expected
    except ApiError:
        pass
    return None


async def play(disk: Disk, bursts: list[Burst]) -> None:
    model, mirror = Model(), Mirror()
    remaining = list(bursts)
    while remaining:
        journal = FaultyJournal(disk())
        async with open_store(journal, watch_window=3) as store:
            assert_equal(store, model)
            mirror.watch = None
            while remaining:
                burst = remaining.pop(0)
                await play_burst(store, journal, burst, model)
                await mirror.follow(store)
                assert_equal(store, model)
                assert mirror.held == model.held, "the watcher's replay differs from the store"
                if burst.restart:
                    break


async def play_burst(store: Store, journal: FaultyJournal, burst: Burst, model: Model) -> None:
    if burst.refused:
        journal.fail_next()
    outcomes = await asyncio.gather(*(attempt(store, each) for each in burst.operations))
    journal.forgive()
    model.apply([outcome for outcome in outcomes if outcome is not None])
    if PLANE not in store.planes():
        await store.create_plane(PLANE)
        model.held.clear()


def assert_equal(store: Store, model: Model) -> None:
    records = store.snapshot(PLANE, THINGS).records
    assert [(r.key.name, r.version) for r in records] == sorted(model.held.items())
    assert store.version(PLANE) >= model.newest


def check(make_disk: Callable[[Path], Disk], bursts: list[Burst]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(make_disk(Path(folder)), bursts))


def memory_disk(folder: Path) -> Disk:
    journal = MemoryJournal()
    return lambda: journal


@settings(max_examples=200, deadline=None)
@given(BURSTS)
def test_a_store_with_a_memory_journal_equals_its_model(bursts: list[Burst]) -> None:
    check(memory_disk, bursts)


@settings(max_examples=40, deadline=None)
@given(BURSTS)
def test_a_store_with_a_sqlite_journal_equals_its_model(bursts: list[Burst]) -> None:
    check(lambda folder: lambda: SqliteJournal(folder / "state.db"), bursts)


SPACES = ("a", "a-b", "a0", "b")
TOGGLES = st.lists(st.tuples(st.sampled_from(SPACES), NAMES), max_size=20)


@settings(max_examples=100, deadline=None)
@given(TOGGLES)
def test_snapshots_are_sorted_and_contain_only_the_selected_namespace(
    toggles: list[tuple[str, str]],
) -> None:
    """Each toggle creates an object, or deletes it if it exists."""

    async def play_toggles() -> None:
        async with open_store(MemoryJournal()) as store:
            versions: dict[tuple[str, str], int] = {}
            for space, name in toggles:
                key, version = object_key(name, space), versions.pop((space, name), 0)
                if version:
                    await store.delete(PLANE, key, version, body(name))
                else:
                    written = await store.put(PLANE, key, 0, body(name))
                    versions[space, name] = written.version
                for selected in (None, *SPACES):
                    records = store.snapshot(PLANE, THINGS, selected).records
                    expected = [n for n in sorted(versions) if selected in (None, n[0])]
                    assert [record.key[1:] for record in records] == expected

    asyncio.run(play_toggles())


def test_snapshots_share_their_records_until_a_change() -> None:
    """Thousands of watches keep the records of their first list."""

    async def take_snapshots() -> None:
        async with open_store(MemoryJournal()) as store:
            first = await store.put(PLANE, object_key("a", "b"), 0, body("a"))
            before = store.snapshot(PLANE, THINGS, "b")
            assert store.snapshot(PLANE, THINGS, "b").records is before.records
            await store.put(PLANE, object_key("a", "b"), first.version, body("a", "changed"))
            after = store.snapshot(PLANE, THINGS, "b")
            assert [record.version for record in before.records] == [first.version]
            assert [record.version for record in after.records] == [after.version]
            for number in range(2 * SELECTIONS_MAX):
                store.snapshot(PLANE, THINGS, f"n{number}")
            assert len(store._planes[PLANE].selections[THINGS]) <= SELECTIONS_MAX

    asyncio.run(take_snapshots())


async def test_the_store_logs_once_when_writes_start_to_fail_and_once_when_they_resume(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = FaultyJournal(MemoryJournal())
    async with open_store(journal) as store:
        await put(store, "before")
        assert caplog.records == []
        for _ in range(2):
            for number in range(3):
                journal.fail_next()
                assert await refusal(put(store, f"refused-{number}")) is ServiceUnavailable
            await put(store, f"after-{len(caplog.records)}")
            await put(store, f"later-{len(caplog.records)}")
    lines = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == [logging.ERROR, logging.WARNING] * 2
    assert "the disk is full" in lines[0][1]
    assert "accepts writes again" in lines[1][1]


async def test_pending_creates_lists_new_objects_until_their_write_is_durable() -> None:
    journal = FaultyJournal(MemoryJournal())
    async with open_store(journal) as store:
        old = await put(store, "old")
        journal.hold()
        async with asyncio.TaskGroup() as group:
            group.create_task(put(store, "new"))
            group.create_task(put(store, "old", old.version, "changed"))
            await journal.arrived.wait()
            assert store.pending_creates(PLANE) == [object_key("new")]
            journal.release()
        assert store.pending_creates(PLANE) == []
