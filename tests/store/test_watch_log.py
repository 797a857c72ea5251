"""Watch log: filters wake a reader only for its events, and no such event is lost."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import Expired
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.watch_log import READ_BYTES, StoreEvent, Watch, WatchLog

LONG_S = 3600.0


def change(version: int, cell: str) -> StoreEvent:
    key = ObjectKey("things.example.com", "", f"thing-{version}")
    return StoreEvent(version, False, Record(key, version, b"{}", "", {"cell": cell}), None)


def is_in_ams(event: StoreEvent) -> bool:
    return event.record.labels["cell"] == "ams"


async def waiting(watch: Watch) -> asyncio.Task[list[StoreEvent]]:
    task = asyncio.create_task(watch.next_events(LONG_S))
    await asyncio.sleep(0)
    return task


async def test_filtered_events_neither_wake_a_reader_nor_expire_its_position() -> None:
    log = WatchLog(floor=0, window=2)
    task = await waiting(log.watch(0, is_in_ams))
    for version in range(1, 20):
        log.append(change(version, "lhr"))
        await asyncio.sleep(0)
    assert not task.done()
    log.append(change(20, "ams"))
    assert [event.version for event in await task] == [20]


async def test_a_woken_reader_also_gets_the_events_after_the_one_that_woke_it() -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, is_in_ams)
    task = await waiting(watch)
    for version, cell in enumerate(("lhr", "ams", "lhr", "ams", "lhr"), start=1):
        log.append(change(version, cell))
    assert [event.version for event in await task] == [2, 3, 4, 5]
    task = await waiting(watch)
    log.append(change(6, "ams"))
    assert [event.version for event in await task] == [6]


async def test_events_before_the_wait_are_returned_without_the_filter() -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, is_in_ams)
    log.append(change(1, "ams"))
    log.append(change(2, "lhr"))
    assert [event.version for event in await watch.next_events(LONG_S)] == [1, 2]


async def test_a_reader_that_falls_behind_its_own_events_gets_expired() -> None:
    log = WatchLog(floor=0, window=2)
    watch = log.watch(0, is_in_ams)
    task = await waiting(watch)
    for version in range(1, 20):
        log.append(change(version, "ams"))
    with pytest.raises(Expired):
        await task


@pytest.mark.parametrize("end", ["interrupted", "closed"])
async def test_a_wait_ends_without_events_when_interrupted_or_closed_after_filtered_events(
    end: str,
) -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, is_in_ams)
    task = await waiting(watch)
    log.append(change(1, "lhr"))
    (watch.interrupt if end == "interrupted" else log.close)()
    assert await task == []


async def test_a_reader_that_is_far_behind_reads_a_bounded_number_of_bytes_at_once() -> None:
    log = WatchLog(floor=0, window=1000)
    watch = log.watch(0)
    for version in range(1, 42):
        key = ObjectKey("things.example.com", "", f"thing-{version}")
        body = b"x" * (2 * READ_BYTES if version == 41 else 10_000)
        log.append(StoreEvent(version, False, Record(key, version, body, "", {}), None))
    sizes, seen = [], []
    while events := await watch.next_events(0):
        sizes.append(sum(len(event.record.body) for event in events))
        seen += [event.version for event in events]
    assert seen == list(range(1, 42))
    assert max(sizes[:-1]) <= READ_BYTES
    assert len(sizes) == 8


async def test_many_small_events_are_read_in_several_steps() -> None:
    log = WatchLog(floor=0, window=1000)
    watch = log.watch(0)
    for version in range(1, 200):
        log.append(change(version, "ams"))
    steps = []
    while events := await watch.next_events(0):
        steps.append([event.version for event in events])
    assert [version for step in steps for version in step] == list(range(1, 200))
    assert max(map(len, steps)) <= 64
