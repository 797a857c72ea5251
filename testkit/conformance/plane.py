"""Conformance checks for planes of a store, and helpers for all checks of the store.

The checks create and delete planes. ``store.py`` includes them in its list. The helpers open a
store over a journal, write simple objects to it, and return the errors of refused calls.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from datum_compute.api.errors import ApiError, Expired, NotFound, ServiceUnavailable
from datum_compute.api.meta.codec import encode
from datum_compute.store.journal import Journal, ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Encode, Store
from datum_compute.store.watch_log import StoreEvent, Watch
from testkit.fakes.journal import FaultyJournal

# Opens a journal. Every call opens the same durable content.
Disk = Callable[[], Journal]
Check = Callable[[Disk], Awaitable[None]]

PLANE = "hub"
THINGS = "things.example.com"
ENOUGH_S = 30.0  # maximum wait for events; a correct store takes far less


@asynccontextmanager
async def open_store(journal: Journal, *, watch_window: int = 5000) -> AsyncIterator[Store]:
    """Open a store over the journal and create the plane of the checks; close both at the end."""
    store = Store(journal, watch_window=watch_window)
    await store.load()
    runner = asyncio.create_task(store.run())
    try:
        await store.create_plane(PLANE)
        yield store
    finally:
        runner.cancel()
        await asyncio.wait([runner])
        await journal.close()


def object_key(name: str, namespace: str = "default") -> ObjectKey:
    return ObjectKey(THINGS, namespace, name)


def body(name: str, content: object = None) -> Encode:
    """Return an encoder of an object whose body contains the version that the store assigns."""

    def encoded(version: int) -> bytes:
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
        return encode({"metadata": metadata, "content": content})

    return encoded


async def put(store: Store, name: str, expected: int = 0, content: object = None) -> Record:
    return await store.put(PLANE, object_key(name), expected, body(name, content))


async def delete(store: Store, name: str, expected: int) -> Record:
    return await store.delete(PLANE, object_key(name), expected, body(name))


async def refusal(call: Awaitable[object]) -> type[ApiError] | None:
    """Return the class of the API error that the call raises, or None if it succeeds."""
    try:
        await call
    except ApiError as error:
        return type(error)
    return None


async def read(watch: Watch, count: int) -> list[StoreEvent]:
    """Return the next ``count`` events, whether they arrive one by one or together."""
    events: list[StoreEvent] = []
    while len(events) < count:
        new_events = await watch.next_events(ENOUGH_S)
        assert new_events, f"the watch went silent after {len(events)} of {count} events"
        events += new_events
    return events


def contents(store: Store, plane: str = PLANE) -> dict[str, tuple[int, bytes]]:
    """Return version and body of each object of the plane, by name."""
    return {r.key.name: (r.version, r.body) for r in store.snapshot(plane, THINGS).records}


def watch_refusal(store: Store, since: int) -> type[ApiError] | None:
    """Return the class of the error with which the store refuses the watch, or None."""
    try:
        store.watch(PLANE, THINGS, since)
    except ApiError as error:
        return type(error)
    return None


async def check_planes_are_apart(disk: Disk) -> None:
    """Objects, versions and watches of one plane are independent of those of another."""
    async with open_store(disk()) as store:
        await store.create_plane("cell/a")
        in_hub = await put(store, "thing", content="mine")
        await put(store, "second")
        in_cell = await store.put("cell/a", object_key("thing"), 0, body("thing", "theirs"))
        assert store.get(PLANE, object_key("thing")) == in_hub
        assert store.get("cell/a", object_key("thing")) == in_cell
        assert (store.version(PLANE), store.version("cell/a")) == (2, 1)
        assert len(await read(store.watch("cell/a", THINGS, 0), 1)) == 1
        assert await refusal(store.put("cell/b", object_key("thing"), 0, body("thing"))) is NotFound
    async with open_store(disk()) as store:
        assert store.planes() == ["cell/a", PLANE]
        assert list(contents(store, "cell/a")) == ["thing"]


async def check_making_a_plane_twice_changes_nothing(disk: Disk) -> None:
    """Creating a plane that exists is a no-op."""
    async with open_store(disk()) as store:
        await put(store, "thing")
        await asyncio.gather(*(store.create_plane(PLANE) for _ in range(3)))
        await asyncio.gather(*(store.create_plane("cell/a") for _ in range(3)))
        assert list(contents(store)) == ["thing"]
        assert store.planes() == ["cell/a", PLANE]


async def check_a_deleted_plane_leaves_nothing(disk: Disk) -> None:
    """Deleting a plane deletes its objects and ends its watches, also after a restart."""
    async with open_store(disk()) as store:
        await store.create_plane("cell/a")
        await store.put("cell/a", object_key("thing"), 0, body("thing"))
        await put(store, "kept")
        watch = store.watch("cell/a", THINGS, 1)
        reader = asyncio.create_task(watch.next_events(ENOUGH_S))
        await asyncio.sleep(0)
        await store.delete_plane("cell/a")
        assert await reader == []
        assert watch.is_closed
        assert store.planes() == [PLANE]
        assert await refusal(store.put("cell/a", object_key("x"), 0, body("x"))) is NotFound
        await store.delete_plane("cell/a")
    async with open_store(disk()) as store:
        assert store.planes() == [PLANE]
        assert list(contents(store)) == ["kept"]


async def check_a_recreated_plane_continues_its_versions(disk: Disk) -> None:
    """A plane that is deleted and created again is empty, and continues its versions. Otherwise a
    client could resume an old watch and miss the deletion."""
    async with open_store(disk()) as store:
        last = (await put(store, "thing")).version
        await store.delete_plane(PLANE)
        await store.create_plane(PLANE)
        assert contents(store) == {}
        assert watch_refusal(store, last) is Expired, "a watch continued over the deletion"
        again = (await put(store, "thing")).version
        assert again > last
        await store.delete_plane(PLANE)
    async with open_store(disk()) as store:
        assert contents(store) == {}
        assert (await put(store, "thing")).version > again


async def check_a_closing_plane_takes_no_writes(disk: Disk) -> None:
    """While the deletion of a plane is being committed, the plane refuses writes and serves reads.
    Further calls to delete or create it wait for that commit."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        first = await put(store, "thing")
        journal.hold()
        deleting = asyncio.create_task(store.delete_plane(PLANE))
        await journal.arrived.wait()
        assert await refusal(put(store, "new")) is NotFound
        assert store.get(PLANE, object_key("thing")) == first, "reads go on until it is gone"
        again = asyncio.create_task(store.delete_plane(PLANE))
        creating = asyncio.create_task(store.create_plane(PLANE))
        await asyncio.sleep(0)
        assert not again.done(), "a second deletion is not done before the first"
        journal.release()
        await asyncio.gather(deleting, again, creating)
        assert contents(store) == {}
        assert await refusal(put(store, "new")) is None


async def check_a_deletion_completes_after_its_caller_is_canceled(disk: Disk) -> None:
    """The deletion of a plane completes although its caller was canceled. If the journal refuses
    it, the error does not end up in the event loop's exception handler."""
    journal = FaultyJournal(disk())
    violations: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: violations.append(context))
    async with open_store(journal) as store:
        for failing in (True, False):
            journal.hold()
            if failing:
                journal.fail_next()
            first = asyncio.create_task(store.delete_plane(PLANE))
            await journal.arrived.wait()
            second = asyncio.create_task(refusal(store.delete_plane(PLANE)))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            if failing:
                second.cancel()
            journal.release()
            await asyncio.wait([first, second])
            await store.create_plane("cell/a")  # this create is committed after the deletion
            assert store.planes() == (["cell/a", PLANE] if failing else ["cell/a"])
    assert second.result() is None
    gc.collect()
    assert violations == [], "an error was not handled"


async def check_a_plane_survives_its_refused_deletion(disk: Disk) -> None:
    """A plane whose deletion the journal refused keeps its objects and accepts writes."""
    journal = FaultyJournal(disk())
    async with open_store(journal) as store:
        await put(store, "thing")
        journal.fail_next()
        outcomes = await asyncio.gather(
            refusal(store.delete_plane(PLANE)), refusal(store.create_plane(PLANE))
        )
        assert list(outcomes) == [ServiceUnavailable, None]
        assert list(contents(store)) == ["thing"]
        assert await refusal(put(store, "new")) is None
        await store.delete_plane(PLANE)
        assert store.planes() == []


PLANE_CHECKS: tuple[Check, ...] = (
    check_planes_are_apart,
    check_making_a_plane_twice_changes_nothing,
    check_a_deleted_plane_leaves_nothing,
    check_a_recreated_plane_continues_its_versions,
    check_a_closing_plane_takes_no_writes,
    check_a_deletion_completes_after_its_caller_is_canceled,
    check_a_plane_survives_its_refused_deletion,
)
