"""Time from a change to its watch events."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.load import LoadConnection, Target, Watcher, load_connections
from bench.objects import instance, instances_path
from bench.processes import Running
from datum_compute.api.meta.codec import encode

_NAME = re.compile(rb'"name":"(sent-\d+-\d+)"')
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Latencies:
    p50: float
    p99: float


def latencies_of(taken_s: list[float]) -> Latencies:
    ordered = sorted(taken_s)
    assert len(ordered) >= 100, f"only {len(ordered)} events arrived"
    return Latencies(
        ordered[len(ordered) // 2] * 1000,
        ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] * 1000,
    )


class Arrivals:
    """Records the time from sending each object to its arrival. The name identifies the request."""

    def __init__(self) -> None:
        self.sent_s: dict[bytes, float] = {}
        self.taken_s: list[float] = []

    def note(self, lines: bytes) -> None:
        now = time.perf_counter()
        for name in _NAME.findall(lines):
            self.taken_s.append(now - self.sent_s[name])


async def create_to_event_ms(running: Running) -> Latencies:
    """Return the time from a create to its event, with one watcher and one writer that pauses."""
    arrivals = Arrivals()
    async with (
        _watching(running, 1, arrivals.note),
        load_connections(running.target, 1) as (connection,),
    ):
        for number in range(300):
            await _create(running, connection, arrivals, f"sent-1-{number}")
            await asyncio.sleep(PAUSE_S)
    return latencies_of(arrivals.taken_s)


async def fan_out_ms(
    running: Running, *, watchers: int, events_a_second: int, seconds: int
) -> Latencies:
    """Return the same with many watchers of all objects."""
    arrivals = Arrivals()
    async with (
        _watching(running, watchers, arrivals.note),
        load_connections(running.target, 1) as (connection,),
    ):
        start = time.perf_counter()
        for number in range(events_a_second * seconds):
            await asyncio.sleep(max(0.0, start + number / events_a_second - time.perf_counter()))
            await _create(running, connection, arrivals, f"sent-{watchers}-{number}")
        await asyncio.sleep(1)
    expected = watchers * events_a_second * seconds
    assert len(arrivals.taken_s) == expected, f"{len(arrivals.taken_s)} of {expected} arrived"
    return latencies_of(arrivals.taken_s)


async def _create(
    running: Running, connection: LoadConnection, arrivals: Arrivals, name: str
) -> None:
    body = encode(instance(name))
    request = running.target.request("POST", instances_path(running.prefix), body)
    arrivals.sent_s[name.encode()] = time.perf_counter()
    answer = await connection.send(request)
    assert answer[9:12] == b"201", answer[:300]


@asynccontextmanager
async def _watching(
    running: Running, watchers: int, on_lines: Callable[[bytes], None]
) -> AsyncIterator[None]:
    target = running.target
    async with load_connections(target, 1) as (connection,):
        listed = await connection.send(
            target.request("GET", f"{instances_path(running.prefix)}?limit=1")
        )
    found = re.search(rb'"resourceVersion":"(\d+)"', listed.partition(b"\r\n\r\n")[2])
    assert found is not None
    version = found[1].decode()
    path = f"{instances_path(running.prefix)}?watch=1&resourceVersion={version}"
    opened = [
        await _watcher(target, target.request("GET", path), on_lines) for _ in range(watchers)
    ]
    try:
        async with asyncio.timeout(60):
            for watcher in opened:
                await watcher.opened.wait()
        yield
    finally:
        for watcher in opened:
            if watcher.transport is not None:
                watcher.transport.close()


async def _watcher(target: Target, request: bytes, on_lines: Callable[[bytes], None]) -> Watcher:
    _, watcher = await asyncio.get_running_loop().create_connection(
        lambda: Watcher(request, on_lines),
        "127.0.0.1",
        target.port,
        ssl=target.tls,
        server_hostname="127.0.0.1",
    )
    return watcher
