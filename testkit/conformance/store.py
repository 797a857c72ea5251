"""Conformance checks for a Store over any Journal.

A check receives a ``Disk``: a function that opens a journal, with the same durable content for
every call. ``CHECKS`` lists all checks, those of planes (``plane.py``) included. A check raises
AssertionError if the rule does not hold. Checks wait for events, not for time.
"""

from __future__ import annotations

import asyncio

from datum_compute.api.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    NotFound,
    ServiceUnavailable,
    Timeout,
)
from datum_compute.api.meta.codec import decode
from datum_compute.store.journal import JournalBroken
from datum_compute.store.journal import ObjectKey as Key
from datum_compute.store.store import Store
from testkit.conformance.plane import (
    ENOUGH_S,
    PLANE,
    PLANE_CHECKS,
    THINGS,
    Check,
    Disk,
    body,
    contents,
    delete,
    object_key,
    open_store,
    put,
    read,
    refusal,
    watch_refusal,
)
from testkit.fakes.journal import FaultyJournal

# --- durability and versions


async def check_acknowledged_writes_survive_reopening(disk: Disk) -> None:
    """Objects and deletions that were acknowledged are the same after a restart."""
    async with open_store(disk()) as store:
        first = await put(store, "kept", content="one")
        await put(store, "kept", first.version, content="two")
        gone = await put(store, "gone")
        await delete(store, "gone", gone.version)
        before = contents(store)
    async with open_store(disk()) as store:
        assert contents(store) == before
        record = store.get(PLANE, object_key("kept"))
        assert record is not None
        assert record.uid == "uid-kept"
        assert decode(record.body)["content"] == "two"


async def check_versions_rise_and_never_go_back(disk: Disk) -> None:
    """Versions of a plane increase with every write and deletion, also across restarts."""
    seen = [0]
    for _ in range(3):
        async with open_store(disk()) as store:
            assert store.version(PLANE) == seen[-1]
            created = await put(store, "thing")
            changed = await put(store, "thing", created.version)
            removed = await delete(store, "thing", changed.version)
            seen += [created.version, changed.version, removed.version]
            assert store.version(PLANE) == seen[-1]
    assert seen == sorted(set(seen)), f"versions {seen} do not rise"


async def check_a_body_carries_the_version_it_is_stored_under(disk: Disk) -> None:
    """The ``resourceVersion`` in a body equals the version of its record, also for concurrent
    writes."""
    async with open_store(disk()) as store:
        records = await asyncio.gather(*(put(store, f"thing-{i}") for i in range(20)))
        for record in records:
            assert decode(record.body)["metadata"]["resourceVersion"] == str(record.version)
            assert store.get(PLANE, record.key) == record
        assert len({record.version for record in records}) == len(records)


# --- compare and swap


async def check_writes_need_the_present_version(disk: Disk) -> None:
    """A write or deletion needs the current version. Otherwise it is refused: AlreadyExists for a
    create, Conflict for another version, NotFound if the object does not exist."""
    async with open_store(disk()) as store:
        first = await put(store, "thing")
        second = await put(store, "thing", first.version)
        assert await refusal(put(store, "thing")) is AlreadyExists
        assert await refusal(put(store, "thing", first.version)) is Conflict
        assert await refusal(delete(store, "thing", first.version)) is Conflict
        assert await refusal(put(store, "other", 7)) is NotFound
        assert await refusal(delete(store, "other", 7)) is NotFound
        assert store.get(PLANE, object_key("thing")) == second
        await delete(store, "thing", second.version)
        assert await refusal(put(store, "thing", second.version)) is NotFound
        assert await refusal(put(store, "thing")) is None


async def check_one_write_per_object_is_under_way(disk: Disk) -> None:
    """While a write to an object is being committed, other writes to it are refused with Conflict.
    Writes to other objects are accepted."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        first = await put(store, "thing")
        journal.hold()
        writing = asyncio.create_task(put(store, "thing", first.version))
        await journal.arrived.wait()
        assert await refusal(put(store, "thing", first.version)) is Conflict
        assert await refusal(delete(store, "thing", first.version)) is Conflict
        other = asyncio.create_task(put(store, "other"))
        journal.release()
        second = await writing
        assert (await other).version > second.version
        assert await refusal(put(store, "thing", second.version)) is None


async def check_exactly_one_of_many_racing_writers_wins(disk: Disk) -> None:
    """Of concurrent writes with the same expected version one succeeds; the others get Conflict."""
    async with open_store(disk()) as store:
        first = await put(store, "thing")
        calls = [refusal(put(store, "thing", first.version, content=i)) for i in range(20)]
        outcomes = await asyncio.gather(*calls)
        assert outcomes.count(None) == 1
        assert outcomes.count(Conflict) == 19


async def check_a_failing_encoder_leaves_no_trace(disk: Disk) -> None:
    """If the encoder raises, the caller gets the error and the object is not locked."""

    def broken(version: int) -> bytes:
        raise RuntimeError("no body")

    async with open_store(disk()) as store:
        try:
            await store.put(PLANE, object_key("thing"), 0, broken)
        except RuntimeError:
            pass
        else:
            raise AssertionError("the encoder's error was swallowed")
        assert contents(store) == {}
        assert await refusal(put(store, "thing")) is None


# --- visibility of writes


async def check_a_write_is_invisible_before_its_commit(disk: Disk) -> None:
    """Reads, snapshots and watches return a write only after it is committed."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        first = await put(store, "thing")
        watch = store.watch(PLANE, THINGS, first.version)
        journal.hold()
        writing = asyncio.create_task(put(store, "thing", first.version))
        await journal.arrived.wait()
        assert store.get(PLANE, object_key("thing")) == first
        assert store.snapshot(PLANE, THINGS).version == first.version
        assert await watch.next_events(0) == []
        assert not writing.done()
        journal.release()
        second = await writing
        assert store.get(PLANE, object_key("thing")) == second
        (event,) = await read(watch, 1)
        assert (event.record, event.previous, event.deleted) == (second, first, False)


async def check_concurrent_writes_share_commits(disk: Disk) -> None:
    """Writes that arrive during a commit are committed together in the next batch."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        journal.batch_sizes.clear()
        journal.hold()
        first = asyncio.create_task(put(store, "first"))
        await journal.arrived.wait()
        others = [asyncio.create_task(put(store, f"thing-{i}")) for i in range(50)]
        await asyncio.sleep(0)
        journal.release()
        await asyncio.gather(first, *others)
        assert journal.batch_sizes == [1, 50]


async def check_a_refused_batch_changes_nothing(disk: Disk) -> None:
    """If the journal refuses a batch, every caller in it gets ServiceUnavailable and nothing
    changes. The same writes succeed afterwards."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        kept = await put(store, "kept")
        before = contents(store)
        watch = store.watch(PLANE, THINGS, kept.version)
        journal.fail_next()
        calls = (put(store, "kept", kept.version), put(store, "new"), store.create_plane("cell/a"))
        assert await asyncio.gather(*map(refusal, calls)) == [ServiceUnavailable] * 3
        assert contents(store) == before
        assert store.version(PLANE) == kept.version
        assert store.planes() == [PLANE]
        assert await watch.next_events(0) == []
        assert await refusal(put(store, "kept", kept.version)) is None
        assert await refusal(put(store, "new")) is None
        after = contents(store)
        assert [event.record.key.name for event in await read(watch, 2)] == ["kept", "new"]
    async with open_store(disk()) as store:
        assert contents(store) == after


async def check_a_caller_who_gives_up_undoes_nothing(disk: Disk) -> None:
    """A write is committed although its caller was canceled, and watches deliver it."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        watch = store.watch(PLANE, THINGS, 0)
        journal.hold()
        writing = asyncio.create_task(put(store, "thing"))
        await journal.arrived.wait()
        writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled()
        assert await refusal(put(store, "thing")) is Conflict, "the write is still under way"
        journal.release()
        (event,) = await read(watch, 1)
        assert store.get(PLANE, object_key("thing")) == event.record
        assert await refusal(put(store, "thing", event.version)) is None


async def check_a_refused_write_of_a_canceled_caller_locks_nothing(disk: Disk) -> None:
    """If the caller was canceled and the journal refuses the write, the object is not locked."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        journal.hold()
        journal.fail_next()
        writing = asyncio.create_task(put(store, "thing"))
        await journal.arrived.wait()
        writing.cancel()
        journal.release()
        await put(store, "other")  # committed in the batch after the refused one
        assert list(contents(store)) == ["other"]
        assert await refusal(put(store, "thing")) is None


# --- watches


async def check_a_watch_is_ordered_gap_free_and_resumable(disk: Disk) -> None:
    """A watch delivers every write and deletion of its resource in the order of versions. A watch
    from any of these versions delivers exactly the later events."""
    async with open_store(disk()) as store:
        watch = store.watch(PLANE, THINGS, 0)
        await asyncio.gather(*(put(store, f"thing-{i}") for i in range(10)))
        for name, (version, _) in contents(store).items():
            changed = await put(store, name, version)
            await delete(store, name, changed.version)
        await store.put(PLANE, Key("others.example.com", "", "x"), 0, body("x"))
        events = await read(watch, 30)
        versions = [event.version for event in events]
        assert versions == sorted(set(versions))
        assert [event.deleted for event in events].count(True) == 10
        for position, since in enumerate([0, *versions]):
            resumed = await store.watch(PLANE, THINGS, since).next_events(0)
            assert resumed == events[position:]


async def check_the_event_of_a_deletion_has_the_last_state(disk: Disk) -> None:
    """The event of a deletion contains the last state with the version of the deletion."""
    async with open_store(disk()) as store:
        created = await put(store, "thing", content="last")
        watch = store.watch(PLANE, THINGS, created.version)
        removed = await store.delete(PLANE, created.key, created.version, body("thing", "last"))
        (event,) = await read(watch, 1)
        assert event.deleted
        assert event.version == removed.version > created.version
        assert decode(event.record.body)["content"] == "last"
        assert decode(event.record.body)["metadata"]["resourceVersion"] == str(removed.version)
        assert event.previous == created


async def check_history_that_is_gone_is_expired(disk: Disk) -> None:
    """A watch is Expired if it starts or falls behind the retained history, or before a restart."""
    async with open_store(disk(), watch_window=4) as store:
        slow = store.watch(PLANE, THINGS, 0)
        version = 0
        for _ in range(20):
            version = (await put(store, "thing", version)).version
        assert await refusal(slow.next_events(0)) is Expired
        assert watch_refusal(store, 0) is Expired
        assert watch_refusal(store, version - 4) is None, "the window is kept"
        for since in range(version):
            if watch_refusal(store, since) is None:
                recent = await store.watch(PLANE, THINGS, since).next_events(0)
                assert [event.version for event in recent] == list(range(since + 1, version + 1))
    async with open_store(disk(), watch_window=4) as store:
        assert watch_refusal(store, version - 1) is Expired, "history does not survive a restart"
        assert await store.watch(PLANE, THINGS, version).next_events(0) == []


async def check_a_version_from_the_future_is_expired(disk: Disk) -> None:
    """A watch from a version that the plane has not reached is Expired."""
    async with open_store(disk()) as store:
        newest = (await put(store, "thing")).version
        assert watch_refusal(store, newest) is None
        assert watch_refusal(store, newest + 1) is Expired


async def check_a_waiting_watch_wakes(disk: Disk) -> None:
    """A write wakes every waiting reader. A canceled reader loses no event."""
    async with open_store(disk()) as store:
        watches = [store.watch(PLANE, THINGS, 0) for _ in range(5)]
        readers = [asyncio.create_task(watch.next_events(ENOUGH_S)) for watch in watches]
        await asyncio.sleep(0)
        readers[0].cancel()
        record = await put(store, "thing")
        woken = await asyncio.gather(*readers[1:])
        assert [[event.record for event in events] for events in woken] == [[record]] * 4
        assert len(await watches[0].next_events(0)) == 1, "a cancelled wait loses nothing"


# --- lists


async def check_a_snapshot_is_sorted_and_whole(disk: Disk) -> None:
    """A snapshot contains all objects of the resource, sorted by key, with the plane's version."""
    async with open_store(disk()) as store:
        keys = [object_key(name, space) for space in ("b", "a") for name in ("y", "x")]
        for key in keys:
            await store.put(PLANE, key, 0, body(key.name))
        everything = store.snapshot(PLANE, THINGS)
        assert [record.key for record in everything.records] == sorted(keys)
        assert everything.version == store.version(PLANE)
        only = store.snapshot(PLANE, THINGS, "a").records
        assert [record.key for record in only] == [object_key("x", "a"), object_key("y", "a")]
        assert store.snapshot(PLANE, "others.example.com").records == []


# --- shutdown and failure


async def check_a_stopped_store_answers_everyone(disk: Disk) -> None:
    """When a store stops, a write in the journal ends with Timeout, because its result is unknown.
    Queued and later writes get ServiceUnavailable. Reads continue."""
    journal = FaultyJournal(disk())
    store = Store(journal)
    await store.load()
    runner = asyncio.create_task(store.run())
    await store.create_plane(PLANE)
    journal.hold()
    under_way = asyncio.create_task(refusal(put(store, "under-way")))
    await journal.arrived.wait()
    waiting = asyncio.create_task(refusal(put(store, "waiting")))
    await asyncio.sleep(0)
    runner.cancel()
    assert await under_way is Timeout, "whether it was written is unknown"
    assert await waiting is ServiceUnavailable
    assert await refusal(put(store, "late")) is ServiceUnavailable
    assert await refusal(store.delete_plane(PLANE)) is ServiceUnavailable
    assert contents(store) == {}, "reads go on"
    await asyncio.wait([runner])
    await journal.close()


async def check_a_broken_journal_stops_the_store(disk: Disk) -> None:
    """A broken journal ends the store: the write gets Timeout, later writes ServiceUnavailable."""
    journal = FaultyJournal(disk())
    store = Store(journal)
    await store.load()
    runner = asyncio.create_task(store.run())
    await store.create_plane(PLANE)
    journal.fail_next(JournalBroken("the sync failed"))
    assert await refusal(put(store, "thing")) is Timeout
    await asyncio.wait([runner])
    assert isinstance(runner.exception(), JournalBroken)
    assert await refusal(put(store, "thing")) is ServiceUnavailable
    await journal.close()


CHECKS: tuple[Check, ...] = (
    check_acknowledged_writes_survive_reopening,
    check_versions_rise_and_never_go_back,
    check_a_body_carries_the_version_it_is_stored_under,
    check_writes_need_the_present_version,
    check_one_write_per_object_is_under_way,
    check_exactly_one_of_many_racing_writers_wins,
    check_a_failing_encoder_leaves_no_trace,
    check_a_write_is_invisible_before_its_commit,
    check_concurrent_writes_share_commits,
    check_a_refused_batch_changes_nothing,
    check_a_caller_who_gives_up_undoes_nothing,
    check_a_refused_write_of_a_canceled_caller_locks_nothing,
    check_a_watch_is_ordered_gap_free_and_resumable,
    check_the_event_of_a_deletion_has_the_last_state,
    check_history_that_is_gone_is_expired,
    check_a_version_from_the_future_is_expired,
    check_a_waiting_watch_wakes,
    check_a_snapshot_is_sorted_and_whole,
    *PLANE_CHECKS,
    check_a_stopped_store_answers_everyone,
    check_a_broken_journal_stops_the_store,
)
