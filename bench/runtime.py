"""The controller runtime: reconciles a second, with and without a write, and memory of its caches.

In process, with the memory journal: what is measured is the runtime, and for writes the API server
under it, not a disk. Each number stands beside its floor, taken in the same run: the bare loop
that calls the same function, the bare client that makes the same writes.

Rates are per second of processor time of this process. Nothing here waits for anything else, so
that is what a clock shows on a machine that is not shared.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random

from bench.measurement import Measurement
from datum_compute.api.core import ConfigMap
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE
from datum_compute.api.meta.codec import decode, encode
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PlaneName, path_prefix
from datum_compute.app.process import run_loop
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.informer import Informer
from datum_compute.runtime.manager import Manager
from datum_compute.server.access.authentication import EVERY_PLANE, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.journal import MemoryJournal
from datum_compute.store.store import Store

OBJECTS = 1000
PASSES = 20
WRITERS = 16
CACHED = 100_000
CACHED_MB = 400
PAGE = 500

Act = Callable[[Client | CachedClient, Key], Awaitable[None]]
Engaged = Callable[[PlaneName], CachedClient | None]


def measure() -> list[Measurement]:
    noop, noop_floor = run_loop(compare_reconciles(_noop, passes=PASSES))
    write, write_floor = run_loop(compare_reconciles(_write, passes=5))
    return [
        Measurement("bare calls", noop_floor, "calls/s"),
        Measurement("no-op reconciles", noop, "/s", "bare calls", at_least=10_000),
        Measurement("bare writes", write_floor, "writes/s"),
        Measurement("reconciles with a write", write, "/s", "bare writes", at_least=2_000),
        Measurement(f"{CACHED} cached objects", _memory_mb("cache"), "MB", at_most=CACHED_MB),
        Measurement(f"{CACHED} decoded objects", _memory_mb("decoded"), "MB"),
    ]


# --- reconciles


async def _noop(_writer: Client | CachedClient, _key: Key) -> None:
    """Make no request, as for a settled object."""


async def _write(writer: Client | CachedClient, key: Key) -> None:
    patch = {"data": {"n": str(next(_numbers))}}
    await writer.patch(CONFIG_MAP, key.ref, patch)


_numbers = count()


async def compare_reconciles(act: Act, *, passes: int) -> tuple[float, float]:
    """Return reconciles per second of a manager, and calls of ``act`` per second without it."""
    async with _new_hub() as client:
        refs = [Ref("default", f"object-{number}") for number in range(OBJECTS)]
        await asyncio.gather(*(_create(client, ref) for ref in refs))
        keys = [Key(HUB, ref) for ref in refs] * passes
        floor = await _measure_direct_calls(act, client, keys)
        return await _measure_manager(act, client, keys), floor


async def _measure_direct_calls(act: Act, client: Client, keys: list[Key]) -> float:
    """Return calls of ``act`` per second of CPU time."""
    remaining = iter(keys)

    async def worker() -> None:
        for key in remaining:
            await act(client, key)

    started_s = time.process_time()
    await asyncio.gather(*(worker() for _ in range(WRITERS)))
    return len(keys) / (time.process_time() - started_s)


async def _measure_manager(act: Act, client: Client, keys: list[Key]) -> float:
    """Return reconciles per second of CPU time. A pass enqueues each object once."""
    left, finished = [OBJECTS], asyncio.Event()

    async def reconcile(engaged: Engaged, key: Key) -> Outcome:
        cached_client = engaged(key.plane)
        assert cached_client is not None
        assert cached_client.read(CONFIG_MAP).get(key.ref) is not None
        await act(cached_client, key)  # as controllers do: the next read waits for this write
        left[0] -= 1
        if not left[0]:
            finished.set()
        return Done()

    edges = (for_(CONFIG_MAP),)
    controller = Controller("bench", "hub", reconcile, edges, workers=WRITERS)
    manager: Manager[Engaged] = Manager([controller], lambda made: made.cached_client, Random(1))
    manager.engage(HUB, client)
    running = asyncio.get_running_loop().create_task(manager.run())
    await finished.wait()  # the first pass, which the caches cause, is not counted
    started_s = time.process_time()
    queue = manager._queues["bench"]
    for start in range(0, len(keys), OBJECTS):
        left[0] = OBJECTS
        finished.clear()
        for key in keys[start : start + OBJECTS]:
            queue.add(key)
        await finished.wait()
    rate = len(keys) / (time.process_time() - started_s)
    running.cancel()
    await asyncio.wait([running])
    return rate


async def _create(client: Client, ref: Ref) -> None:
    await client.create(
        CONFIG_MAP, ConfigMap(metadata=ObjectMeta(name=ref.name, namespace=ref.namespace))
    )


@asynccontextmanager
async def _new_hub() -> AsyncIterator[Client]:
    store = Store(MemoryJournal())
    numbers = count()
    server = ApiServer(
        store,
        ServerEnvironment(time.time, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers)}"),
        AuthenticationOptions(
            StaticTokens({"token": User("bench", ("system:masters",), frozenset({EVERY_PLANE}))})
        ),
    )
    running = asyncio.get_running_loop().create_task(store.run())
    await store.create_plane(HUB)
    client = Client(
        InProcessTransport(server.dispatch), prefix=path_prefix(HUB), token="token", agent="bench"
    )
    await ensure_plane(client, HUB)
    try:
        yield client
    finally:
        running.cancel()


# --- memory


def _memory_mb(what: str) -> float:
    """How much a fresh process grows by taking in all the objects."""
    answer = subprocess.run(
        [sys.executable, "-m", "bench.runtime", what],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return float(json.loads(answer.stdout))


def _instance(number: int) -> bytes:
    deployment, ordinal = divmod(number, 10)
    template = (Path(__file__).parent / "instance.json").read_text()
    values = {"NUMBER": f"{number:012d}", "DEPLOYMENT": str(deployment), "ORDINAL": str(ordinal)}
    for name, value in values.items():
        template = template.replace(name, value)
    return encode(decode(template.encode()))


class _Pages:
    """A plane that lists Instances page by page, made when they are asked for."""

    async def send(self, request: Request) -> Response:
        if request.query.get("watch"):
            await asyncio.Event().wait()
        start = int(request.query.get("continue", "0"))
        items = b",".join(_instance(number) for number in range(start, start + PAGE))
        following = str(start + PAGE) if start + PAGE < CACHED else ""
        metadata = encode({"resourceVersion": str(CACHED + 1), "continue": following})
        return Response(200, b'{"metadata":' + metadata + b',"items":[' + items + b"]}")


async def _cached_mb() -> float:
    client = Client(_Pages(), prefix="", token="", agent="bench")
    informer = Informer(client, INSTANCE, Random(1))
    before = _resident_mb()
    running = asyncio.get_running_loop().create_task(informer.run())
    await informer.first_sync.wait()
    assert len(informer.cache) == CACHED
    assert informer.cache.list_with_label("compute.datumapis.com/deployment-name", "web-dfw-7")
    grown = _resident_mb() - before
    running.cancel()
    return grown


async def _decoded_mb() -> float:
    client = Client(_Pages(), prefix="", token="", agent="bench")
    before = _resident_mb()
    listed = await client.list(INSTANCE, page_size=PAGE)
    assert len(listed.items) == CACHED
    return _resident_mb() - before


def _resident_mb() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


if __name__ == "__main__":
    taken = {"cache": _cached_mb, "decoded": _decoded_mb}[sys.argv[1]]
    print(json.dumps(run_loop(taken())))
