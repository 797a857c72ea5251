"""Who waits for changes is woken by those that concern it, and misses none of them."""

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


def of_ams(event: StoreEvent) -> bool:
    return event.record.labels["cell"] == "ams"


async def waiting(watch: Watch) -> asyncio.Task[list[StoreEvent]]:
    task = asyncio.create_task(watch.next_events(LONG_S))
    await asyncio.sleep(0)
    return task


async def test_changes_of_others_wake_nobody_and_push_nobody_out_of_the_window() -> None:
    log = WatchLog(floor=0, window=2)
    task = await waiting(log.watch(0, of_ams))
    for version in range(1, 20):
        log.append(change(version, "lhr"))
        await asyncio.sleep(0)
    assert not task.done()
    log.append(change(20, "ams"))
    assert [event.version for event in await task] == [20]


async def test_what_comes_after_the_change_that_woke_it_is_read_with_it() -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, of_ams)
    task = await waiting(watch)
    for version, cell in enumerate(("lhr", "ams", "lhr", "ams", "lhr"), start=1):
        log.append(change(version, cell))
    assert [event.version for event in await task] == [2, 3, 4, 5]
    task = await waiting(watch)
    log.append(change(6, "ams"))
    assert [event.version for event in await task] == [6]


async def test_what_came_while_it_was_busy_is_read_whether_it_concerns_it_or_not() -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, of_ams)
    log.append(change(1, "ams"))
    log.append(change(2, "lhr"))
    assert [event.version for event in await watch.next_events(LONG_S)] == [1, 2]


async def test_a_reader_that_is_too_slow_for_what_concerns_it_is_told() -> None:
    log = WatchLog(floor=0, window=2)
    watch = log.watch(0, of_ams)
    task = await waiting(watch)
    for version in range(1, 20):
        log.append(change(version, "ams"))
    with pytest.raises(Expired):
        await task


@pytest.mark.parametrize("end", ["interrupted", "closed"])
async def test_a_wait_can_be_ended_after_changes_of_others(end: str) -> None:
    log = WatchLog(floor=0, window=100)
    watch = log.watch(0, of_ams)
    task = await waiting(watch)
    log.append(change(1, "lhr"))
    (watch.interrupt if end == "interrupted" else log.close)()
    assert await task == []


async def test_a_reader_that_is_far_behind_takes_a_bounded_number_of_bytes_at_once() -> None:
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
