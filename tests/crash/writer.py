"""A process to be killed: it writes without pause and prints each acknowledged write.

``python -m tests.crash.writer DATABASE`` prints one JSON line for every acknowledged write
(``ack``), every watch event (``seen``), and each turn of a plane that is filled and deleted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from datum_compute.store.sqlite import SqliteJournal
from datum_compute.store.store import Store
from testkit.conformance.plane import PLANE, THINGS, body, object_key, open_store

WRITERS = 8
PASSING_PLANE = "cell/passing"
PASSING_THINGS = 20


def print_fact(**fact: object) -> None:
    os.write(1, json.dumps(fact).encode() + b"\n")


async def write_until_killed(store: Store, name: str, life: int) -> None:
    """Create, change and delete an object in a loop."""
    key = object_key(name)
    record = store.get(PLANE, key)
    version = record.version if record else 0
    turn = 0
    while True:
        turn += 1
        remove = version != 0 and turn % 5 == 0
        content = f"life {life} turn {turn}"
        change = store.delete if remove else store.put
        written = await change(PLANE, key, version, body(name, content))
        version = 0 if remove else written.version
        print_fact(fact="ack", name=name, version=written.version, removed=remove, content=content)


async def watch_until_killed(store: Store) -> None:
    watch = store.watch(PLANE, THINGS, store.version(PLANE))
    while True:
        for event in await watch.next_events(60):
            print_fact(fact="seen", name=event.record.key.name, version=event.version)


async def fill_and_delete_until_killed(store: Store) -> None:
    while True:
        await store.create_plane(PASSING_PLANE)
        missing = [
            object_key(str(number))
            for number in range(PASSING_THINGS)
            if store.get(PASSING_PLANE, object_key(str(number))) is None
        ]
        await asyncio.gather(*(store.put(PASSING_PLANE, key, 0, body(key.name)) for key in missing))
        print_fact(fact="full", version=store.version(PASSING_PLANE))
        await store.delete_plane(PASSING_PLANE)
        print_fact(fact="gone")


async def main(path: Path) -> None:
    async with open_store(SqliteJournal(path)) as store, asyncio.TaskGroup() as group:
        life = store.version(PLANE)
        print_fact(fact="loaded", version=life)
        group.create_task(watch_until_killed(store))
        group.create_task(fill_and_delete_until_killed(store))
        for number in range(WRITERS):
            group.create_task(write_until_killed(store, f"thing-{number}", life))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
