"""A store that runs, and plain things to put into it: what every test of the store begins with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from datum_compute.api.codec import encode
from datum_compute.api.errors import ApiError
from datum_compute.store.journal import Journal, ObjectKey
from datum_compute.store.record import Record
from datum_compute.store.store import Encode, Store
from datum_compute.store.watchlog import StoreEvent, Watch

# Opens a journal over the same durable content each time.
Disk = Callable[[], Journal]
Check = Callable[[Disk], Awaitable[None]]

PLANE = "hub"
THINGS = "things.example.com"
ENOUGH_S = 30.0  # only a broken store lets a wait for news take this long


@asynccontextmanager
async def running(journal: Journal, *, watch_window: int = 5000) -> AsyncIterator[Store]:
    """A store over a journal, with the plane of the checks in it; closed at the end."""
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


def thing(name: str, namespace: str = "default") -> ObjectKey:
    return ObjectKey(THINGS, namespace, name)


def body(name: str, content: object = None) -> Encode:
    """The encoder of an object that says its own version."""

    def encoded(version: int) -> bytes:
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
        return encode({"metadata": metadata, "content": content})

    return encoded


async def put(store: Store, name: str, expected: int = 0, content: object = None) -> Record:
    return await store.put(PLANE, thing(name), expected, body(name, content))


async def delete(store: Store, name: str, expected: int) -> Record:
    return await store.delete(PLANE, thing(name), expected, body(name))


async def refusal(call: Awaitable[object]) -> type[ApiError] | None:
    """The class of the error a call ends in, or None when it succeeds."""
    try:
        await call
    except ApiError as error:
        return type(error)
    return None


async def read(watch: Watch, count: int) -> list[StoreEvent]:
    """The next ``count`` events, however they arrive."""
    events: list[StoreEvent] = []
    while len(events) < count:
        news = await watch.next_events(ENOUGH_S)
        assert news, f"the watch went silent after {len(events)} of {count} events"
        events += news
    return events


def contents(store: Store, plane: str = PLANE) -> dict[str, tuple[int, bytes]]:
    return {r.key.name: (r.version, r.body) for r in store.snapshot(plane, THINGS).records}


def watch_refusal(store: Store, since: int) -> type[ApiError] | None:
    try:
        store.watch(PLANE, THINGS, since)
    except ApiError as error:
        return type(error)
    return None
