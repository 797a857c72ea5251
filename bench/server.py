"""The server as clients meet it: over TLS, durable, with watchers; and its floor beside it.

Creates are compared with what a kube-apiserver over etcd did on such a machine (see PEER), reads
with a uvicorn that does nothing but answer, start with SQLite reading all rows. What remains when
one takes the work away is shown too: our front answering the same bytes without looking at the
request, the store writing the same bytes without a server.

Creates are measured twice: replicas of one template, as controllers write them, and objects of
which no two have the same spec.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.latencies import PAUSE_S, create_to_event_ms, fan_out_ms
from bench.load import Throughput, plugged, throughput
from bench.measurement import RESULTS, Measurement, rate_async
from bench.objects import BODY_BYTES, NAMESPACE, fill, instance, instances_path, new_platform
from bench.processes import Running, echo, platform
from bench.store import bare_sqlite, stored_alone, sync_latencies, synced_appends
from datum_compute.api.compute.instance import INSTANCE, Instance
from datum_compute.api.meta.codec import decode, encode, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.app.process import run_loop

# A kube-apiserver with etcd, measured once on a machine like this one; it is not at hand here.
PEER = {"creates": 280.0, "memory": 858.0}

CONNECTIONS = 32
SECONDS = 5.0
LISTED = 10_000
STORED = 100_000
WATCHERS = 1000
CELL = "cell/dfw"


def measure() -> list[Measurement]:
    # Beside the results: the disk of the checkout, not a memory file system.
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        root = Path(folder)
        return [
            Measurement("load of the machine at the start", os.getloadavg()[0], "processes"),
            *idle(root / "idle"),
            *in_process(root / "in-process.db"),
            *over_tls(root / "served"),
            *start(root / "start"),
            Measurement("load of the machine at the end", os.getloadavg()[0], "processes"),
        ]


def idle(state: Path) -> list[Measurement]:
    """The whole platform, controllers included, with nothing to do."""
    with platform(state, CELL) as running:
        time.sleep(2)
        busy = running.busy_share(10)
        return [
            Measurement("idle: share of a core", busy * 100, "%", at_most=1.0),
            Measurement("memory of the peer", PEER["memory"], "MB"),
            Measurement("idle: memory", running.rss_mb(), "MB", "memory of the peer", at_most=100),
        ]


def in_process(database: Path) -> list[Measurement]:
    async def creates(unlike_others: bool) -> tuple[float, float, bytes]:
        """Creates a second, what one costs in microseconds of CPU, client included, and the bytes
        that are stored of one."""
        async with new_platform(database) as client:
            numbers, kind = count(), "own" if unlike_others else "like"

            async def step(_worker: int) -> None:
                obj = instance(f"{kind}-{next(numbers)}", unlike_others=unlike_others)
                await client.create(INSTANCE, from_json(obj, Instance))

            before_s = time.process_time()
            found = await rate_async(step, workers=CONNECTIONS * 2, seconds=SECONDS)
            cpu_us = (time.process_time() - before_s) / next(numbers) * 1e6
            stored = await client.get_plain(INSTANCE, Ref(NAMESPACE, f"{kind}-0"))
            return found, cpu_us, encode(stored)

    a_second, cpu_us, body = run_loop(creates(False))
    different, different_us, _ = run_loop(creates(True))
    alone, alone_us = stored_alone(database.parent, body, writers=CONNECTIONS * 2)
    disk, store = f"bare SQLite, {CONNECTIONS} rows a commit", "the store alone, same bytes"
    return [
        Measurement("bare disk", synced_appends(database.parent), "syncs/s"),
        Measurement(disk, bare_sqlite(database.parent, rows=CONNECTIONS), "rows/s"),
        Measurement(store, alone, "creates/s", disk),
        Measurement("creates in process", a_second, "creates/s", store, at_least=5000),
        Measurement("creates in process, all different", different, "creates/s", store),
        Measurement(f"{store}: CPU", alone_us, "us"),
        Measurement("creates in process: CPU", cpu_us, "us", f"{store}: CPU"),
        Measurement("creates in process, all different: CPU", different_us, "us", f"{store}: CPU"),
    ]


def over_tls(state: Path) -> list[Measurement]:
    with platform(state, CELL, "--no-controllers") as running:
        measured = run_loop(_creates_and_gets(running, state))
        measured += run_loop(_list(running, state))
        return measured + run_loop(_watches(running, state))


async def _creates_and_gets(running: Running, state: Path) -> list[Measurement]:
    target, path = running.target, instances_path(running.prefix)
    async with plugged(target, 1) as (plug,):
        body = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}'
        namespaces = f"{running.prefix}/api/v1/namespaces"
        await plug.ask(target.request("POST", namespaces, body % NAMESPACE.encode()))
        await plug.ask(target.request("POST", path, instance_bytes("read")))
        read = await plug.ask(target.request("GET", f"{path}/read"))
    stored = read.partition(b"\r\n\r\n")[2]
    numbers = count()

    def next_create(template: bytes) -> bytes:
        return target.request("POST", path, instance_bytes(f"n-{next(numbers)}", template))

    creates = await _throughput(running, lambda: next_create(_REPLICA))
    different = await _throughput(running, lambda: next_create(_DIFFERENT))
    get_request = target.request("GET", f"{path}/read")
    gets = await _throughput(running, lambda: get_request)
    measured = _Requests(creates, different, gets)
    return _compared(
        measured, await _echoes(state, stored, "uvicorn"), await _echoes(state, stored, "front")
    )


async def _echoes(state: Path, stored: bytes, peer: str) -> _Echoes:
    with echo(state, stored, peer) as floor:
        bare_get = floor.target.request("GET", "/")
        bare_post = floor.target.request("POST", "/", instance_bytes("n"))
        return _Echoes(
            gets=await _throughput(floor, lambda: bare_get),
            posts=await _throughput(floor, lambda: bare_post),
        )


async def _throughput(running: Running, next_request: Callable[[], bytes]) -> Throughput:
    return await throughput(
        running.target, running.cpu_s, next_request, connections=CONNECTIONS, seconds=SECONDS
    )


@dataclass(frozen=True, slots=True)
class _Requests:
    creates: Throughput
    different: Throughput
    gets: Throughput


@dataclass(frozen=True, slots=True)
class _Echoes:
    gets: Throughput
    posts: Throughput


def _compared(found: _Requests, bare: _Echoes, own: _Echoes) -> list[Measurement]:
    peer, goal = "creates of the peer", 8 * PEER["creates"]
    creates, different, gets = found.creates, found.different, found.gets
    echo_post, echo_get = "our front, echo of a POST", "our front, echo of a GET"
    return [
        Measurement(peer, PEER["creates"], "creates/s"),
        Measurement(echo_post, own.posts.a_second, "posts/s"),
        Measurement("durable creates", creates.a_second, "creates/s", peer, at_least=goal),
        Measurement(
            "durable creates, all different", different.a_second, "creates/s", peer, at_least=goal
        ),
        Measurement(f"{echo_post}: CPU", own.posts.cpu_us, "us"),
        Measurement("durable creates: CPU", creates.cpu_us, "us", f"{echo_post}: CPU"),
        Measurement(
            "durable creates, all different: CPU", different.cpu_us, "us", f"{echo_post}: CPU"
        ),
        Measurement("uvicorn, echo of a GET", bare.gets.a_second, "gets/s"),
        Measurement(echo_get, own.gets.a_second, "gets/s", "uvicorn, echo of a GET"),
        Measurement(
            "GET",
            gets.a_second,
            "gets/s",
            "uvicorn, echo of a GET",
            at_least=bare.gets.a_second / 2,
        ),
        Measurement("uvicorn, echo of a GET: CPU", bare.gets.cpu_us, "us"),
        Measurement(f"{echo_get}: CPU", own.gets.cpu_us, "us", "uvicorn, echo of a GET: CPU"),
        Measurement("GET: CPU", gets.cpu_us, "us", "uvicorn, echo of a GET: CPU"),
    ]


async def _list(running: Running, state: Path) -> list[Measurement]:
    target, path = running.target, instances_path(running.prefix, namespace="listed")
    await fill(running, "listed", LISTED)
    async with plugged(target, 1) as (plug,):
        list_ms, answer = await _median_ms(plug.ask, target.request("GET", path))
    items = decode(answer.partition(b"\r\n\r\n")[2])["items"]
    assert len(items) == LISTED, len(items)
    with echo(state, answer.partition(b"\r\n\r\n")[2]) as floor:
        async with plugged(floor.target, 1) as (plug,):
            bare_ms, _ = await _median_ms(plug.ask, floor.target.request("GET", "/"))
    bare = f"bare echo of {len(answer) // 1_000_000} MB"
    return [
        Measurement(bare, bare_ms, "ms"),
        Measurement(f"list of {LISTED:,}", list_ms, "ms", bare, at_most=300),
    ]


async def _median_ms(
    ask: Callable[[bytes], Coroutine[Any, Any, bytes]], request: bytes
) -> tuple[float, bytes]:
    """The median of five, and the last answer."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        answer = await ask(request)
        taken.append((time.perf_counter() - start) * 1000)
    return sorted(taken)[2], answer


async def _watches(running: Running, state: Path) -> list[Measurement]:
    alone = await create_to_event_ms(running)
    bare = await asyncio.to_thread(sync_latencies, state, pause_s=PAUSE_S)
    many = await fan_out_ms(running, watchers=WATCHERS, events_a_second=5, seconds=10)
    syncs = "bare sync, p50", "bare sync, p99"
    return [
        Measurement(syncs[0], bare.p50, "ms"),
        Measurement(syncs[1], bare.p99, "ms"),
        Measurement("create to event, idle, p50", alone.p50, "ms", syncs[0]),
        Measurement("create to event, idle, p99", alone.p99, "ms", syncs[1], at_most=5),
        Measurement(f"{WATCHERS} watchers at 5 events/s, p50", many.p50, "ms"),
        Measurement(f"{WATCHERS} watchers at 5 events/s, p99", many.p99, "ms", at_most=250),
    ]


def start(state: Path) -> list[Measurement]:
    """A platform that finds many objects on its disk."""
    with platform(state, CELL, "--no-controllers"):
        pass  # makes the directory

    async def fill_database() -> None:
        async with new_platform(state / "store.db") as client:
            for first in range(0, STORED, 1000):
                names = (f"stored-{number}" for number in range(first, first + 1000))
                objects = [from_json(instance(name), Instance) for name in names]
                await asyncio.gather(*(client.create(INSTANCE, obj) for obj in objects))

    run_loop(fill_database())
    bare_s = _read_all_s(state / "store.db")
    with platform(state, CELL, "--no-controllers") as running:
        started_s, memory = running.started_s, running.rss_mb()
    floor = f"bare SQLite reads {STORED:,} rows"
    return [
        Measurement(floor, bare_s, "s"),
        Measurement(f"start with {STORED:,} objects", started_s, "s", floor, at_most=5),
        Measurement(f"memory with {STORED:,} objects", memory, "MB"),
    ]


def _read_all_s(database: Path) -> float:
    start = time.perf_counter()
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute("SELECT name, version, body FROM objects").fetchall()
    finally:
        connection.close()
    assert len(rows) >= STORED
    return time.perf_counter() - start


_REPLICA = encode(instance("THE-NAME"))
_DIFFERENT = encode(instance("THE-NAME", unlike_others=True))
assert BODY_BYTES * 0.9 < len(_REPLICA) < BODY_BYTES * 1.1, len(_REPLICA)


def instance_bytes(name: str, template: bytes = _REPLICA) -> bytes:
    return template.replace(b"THE-NAME", name.encode())
