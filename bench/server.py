"""Throughput, latency, memory and start of the server: over TLS, durable, with watches.

Each figure is compared in the same run with a peer or a lower bound: requests with a kube-apiserver
and etcd where they are built (``make kube-assets``), GETs also with a uvicorn that only answers,
and a start with SQLite reading all rows. Two more figures show what remains without the work of a
request: our HTTP server answering the same bytes, and the store writing the same bytes.

Creates are measured twice: replicas of one template, as controllers write them, and objects with
different specs.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import ssl
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench.latencies import PAUSE_S, create_to_event_ms, fan_out_ms
from bench.load import Target, Throughput, load_connections, throughput
from bench.measurement import RESULTS, Measurement, rate_async
from bench.objects import BODY_BYTES, NAMESPACE, fill, instance, instances_path, new_platform
from bench.processes import Running, echo, platform
from bench.store import bare_sqlite, stored_alone, sync_latencies, synced_appends
from datum_compute.api.compute.instance import INSTANCE, Instance
from datum_compute.api.meta.codec import decode, encode, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.app.process import run_loop
from hack.kube_assets import found_assets
from testkit.processes.api_servers import ADMIN_TOKEN, RealServers
from testkit.processes.single_cluster import install_crds

CONNECTIONS = 32
SECONDS = 5.0
LISTED = 10_000
STORED = 100_000
WATCHERS = 1000
CELL = "cell/dfw"


def measure() -> list[Measurement]:
    # In the folder of the results: on the disk of the checkout, not a memory file system.
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        root = Path(folder)
        return [
            Measurement("load of the machine at the start", os.getloadavg()[0], "processes"),
            *idle(root / "idle"),
            *in_process(root / "in-process.db"),
            *over_tls(root / "served"),
            *beside_kube_apiserver(root),
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
            Measurement("idle: memory", running.rss_mb(), "MB", at_most=100),
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

    per_second, cpu_us, body = run_loop(creates(False))
    different, different_us, _ = run_loop(creates(True))
    alone, alone_us = stored_alone(database.parent, body, writers=CONNECTIONS * 2)
    disk, store = f"bare SQLite, {CONNECTIONS} rows a commit", "the store alone, same bytes"
    return [
        Measurement("bare disk", synced_appends(database.parent), "syncs/s"),
        Measurement(disk, bare_sqlite(database.parent, rows=CONNECTIONS), "rows/s"),
        Measurement(store, alone, "creates/s", disk),
        Measurement("creates in process", per_second, "creates/s", store, at_least=5000),
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
    async with load_connections(target, 1) as (connection,):
        body = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"}}'
        namespaces = f"{running.prefix}/api/v1/namespaces"
        await connection.send(target.request("POST", namespaces, body % NAMESPACE.encode()))
        await connection.send(target.request("POST", path, instance_bytes("read")))
        read = await connection.send(target.request("GET", f"{path}/read"))
    stored = read.partition(b"\r\n\r\n")[2]
    numbers = count()

    def next_create(template: bytes) -> bytes:
        return target.request("POST", path, instance_bytes(f"n-{next(numbers)}", template))

    creates = await _throughput(running, lambda: next_create(_REPLICA))
    different = await _throughput(running, lambda: next_create(_DIFFERENT))
    get_request = target.request("GET", f"{path}/read")
    gets = await _throughput(running, lambda: get_request)
    measured = _ServerThroughput(creates, different, gets)
    return _echo_comparison(
        measured,
        await _measure_echo(state, stored, "uvicorn"),
        await _measure_echo(state, stored, "http"),
    )


async def _measure_echo(state: Path, stored: bytes, peer: str) -> _EchoThroughput:
    with echo(state, stored, peer) as running:
        get = running.target.request("GET", "/")
        post = running.target.request("POST", "/", instance_bytes("n"))
        return _EchoThroughput(
            gets=await _throughput(running, lambda: get),
            posts=await _throughput(running, lambda: post),
        )


async def _throughput(running: Running, next_request: Callable[[], bytes]) -> Throughput:
    return await throughput(
        running.target, running.cpu_s, next_request, connections=CONNECTIONS, seconds=SECONDS
    )


@dataclass(frozen=True, slots=True)
class _ServerThroughput:
    creates: Throughput
    different: Throughput
    gets: Throughput


@dataclass(frozen=True, slots=True)
class _EchoThroughput:
    gets: Throughput
    posts: Throughput


def _echo_comparison(
    measured: _ServerThroughput, uvicorn: _EchoThroughput, own: _EchoThroughput
) -> list[Measurement]:
    creates, different, gets = measured.creates, measured.different, measured.gets
    echo_post, echo_get = "our HTTP server, echo of a POST", "our HTTP server, echo of a GET"
    return [
        Measurement(echo_post, own.posts.per_second, "posts/s"),
        Measurement("durable creates", creates.per_second, "creates/s", echo_post),
        Measurement("durable creates, all different", different.per_second, "creates/s", echo_post),
        Measurement(f"{echo_post}: CPU", own.posts.cpu_us, "us"),
        Measurement("durable creates: CPU", creates.cpu_us, "us", f"{echo_post}: CPU"),
        Measurement(
            "durable creates, all different: CPU", different.cpu_us, "us", f"{echo_post}: CPU"
        ),
        Measurement("uvicorn, echo of a GET", uvicorn.gets.per_second, "gets/s"),
        Measurement(echo_get, own.gets.per_second, "gets/s", "uvicorn, echo of a GET"),
        Measurement(
            "GET",
            gets.per_second,
            "gets/s",
            "uvicorn, echo of a GET",
            at_least=uvicorn.gets.per_second / 2,
        ),
        Measurement("uvicorn, echo of a GET: CPU", uvicorn.gets.cpu_us, "us"),
        Measurement(f"{echo_get}: CPU", own.gets.cpu_us, "us", "uvicorn, echo of a GET: CPU"),
        Measurement("GET: CPU", gets.cpu_us, "us", "uvicorn, echo of a GET: CPU"),
    ]


def beside_kube_apiserver(root: Path) -> list[Measurement]:
    """The same requests to our server and to a kube-apiserver; nothing if that is not built."""
    if not is_built():
        return []
    with platform(root / "ours", CELL, "--no-controllers") as running:
        ours = run_loop(_requests_of_both(running))
    with kube_apiserver(root / "kube-apiserver") as running:
        theirs = run_loop(_requests_of_both(running))
    found = []
    for name, per_second in theirs.items():
        peer = f"{name}, kube-apiserver and etcd"
        found.append(Measurement(peer, per_second, "per second"))
        found.append(Measurement(f"{name}, our server", ours[name], "per second", peer))
    return found


async def _requests_of_both(running: Running) -> dict[str, float]:
    """Requests per second: durable creates of two kinds, and GETs of one object."""
    target, path = running.target, instances_path(running.prefix)
    config_maps = f"{running.prefix}/api/v1/namespaces/{NAMESPACE}/configmaps"
    numbers = count()
    async with load_connections(target, 1) as (connection,):
        body = encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await connection.send(target.request("POST", f"{running.prefix}/api/v1/namespaces", body))
        await connection.send(target.request("POST", path, instance_bytes("read")))
    get = target.request("GET", f"{path}/read")

    def create_instance() -> bytes:
        return target.request("POST", path, instance_bytes(f"n-{next(numbers)}", _DIFFERENT))

    def create_config_map() -> bytes:
        metadata = {"name": f"n-{next(numbers)}", "namespace": NAMESPACE}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        data = {"text": "x" * BODY_BYTES}
        return target.request("POST", config_maps, encode({**obj, "data": data}))

    requests: dict[str, Callable[[], bytes]] = {
        "creates of Instances": create_instance,
        "creates of ConfigMaps": create_config_map,
        "GETs": lambda: get,
    }
    return {
        name: (await _throughput(running, next_request)).per_second
        for name, next_request in requests.items()
    }


async def _list(running: Running, state: Path) -> list[Measurement]:
    target, path = running.target, instances_path(running.prefix, namespace="listed")
    await fill(running, "listed", LISTED)
    async with load_connections(target, 1) as (connection,):
        list_ms, answer = await _median_ms(connection.send, target.request("GET", path))
    items = decode(answer.partition(b"\r\n\r\n")[2])["items"]
    assert len(items) == LISTED, len(items)
    with echo(state, answer.partition(b"\r\n\r\n")[2]) as floor:
        async with load_connections(floor.target, 1) as (connection,):
            bare_ms, _ = await _median_ms(connection.send, floor.target.request("GET", "/"))
    bare = f"bare echo of {len(answer) // 1_000_000} MB"
    return [
        Measurement(bare, bare_ms, "ms"),
        Measurement(f"list of {LISTED:,}", list_ms, "ms", bare, at_most=300),
    ]


async def _median_ms(
    send: Callable[[bytes], Coroutine[Any, Any, bytes]], request: bytes
) -> tuple[float, bytes]:
    """Return the median of five requests, and the last response."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        answer = await send(request)
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


# --- kube-apiserver with etcd. Writes are durable: etcd syncs each to the disk of the checkout, as
# our store does. The load is the same for both servers.


def is_built() -> bool:
    """Return True if a kube-apiserver and an etcd exist on this machine."""
    return found_assets(os.environ) is not None


@contextmanager
def kube_apiserver(folder: Path) -> Iterator[Running]:
    """Run a kube-apiserver that serves our kinds, with an etcd that syncs its writes.

    ``Running.pid`` is the process of the kube-apiserver; etcd is a process beside it.
    """
    assets = found_assets(os.environ)
    assert assets is not None, "build the servers with make kube-assets"
    folder.mkdir(parents=True, exist_ok=True)
    servers = RealServers(assets, folder, syncs_writes=True)
    try:
        servers.start_etcd()
        plane = servers.start_plane("bench")
        install_crds(plane.admin)
        tls = ssl.create_default_context(cafile=str(plane.authority))
        target = Target(plane.port, tls, ADMIN_TOKEN)
        yield Running(plane.running.processes[0].pid, target, "", 0.0)
    finally:
        servers.stop()
