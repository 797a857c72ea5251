"""Sends each hostile request to a new server and measures its cost."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.http import Response
from datum_compute.api.planes import PlaneName
from datum_compute.drivers.logs import PAGE_BYTES_MAX
from datum_compute.planes.roles import admin_user
from datum_compute.server.access.authentication import User
from testkit.api_server.granting import ensure_first_roles
from testkit.api_server.running_server import InProcessServer, running_server
from testkit.hostile.logs import HostileLog, read_hostile_log
from testkit.hostile.request import PROJECT_TOKEN, HostileRequest

BLOCKED_MAX_MS = 100.0
GROWTH_MAX_MB = 64.0

_PLANE = "project/demo"
_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets the peak resident size to the current one


@dataclass(frozen=True, slots=True)
class Cost:
    """``blocked_ms`` is the longest time for which the loop ran nothing else. It is processor time
    of the thread, so that other programs on the machine do not count. ``growth_mb`` is the peak
    memory of the process minus its memory before the request."""

    responses: tuple[Response, ...]
    blocked_ms: float
    growth_mb: float


async def measure_cost(hostile: HostileRequest) -> Cost:
    async with _project_server() as server:
        for request in hostile.setup():
            response = await server.api.dispatch(request)
            assert response.status < 300, (hostile.name, response.status, response.body[:500])
        requests = hostile.requests()
        before_mb = _reset_peak_mb()
        async with _watched_loop() as gaps_s:
            responses = [await server.api.dispatch(request) for request in requests]
        growth_mb = _memory_mb("VmHWM") - before_mb
        for response in responses:
            if response.stream is not None:
                await response.stream.aclose()
        return Cost(tuple(responses), max(gaps_s) * 1000, growth_mb)


async def measure_log_cost(hostile: HostileLog) -> Cost:
    content = hostile.content()
    before_mb = _reset_peak_mb()
    async with _watched_loop() as gaps_s:
        page = await read_hostile_log(content, hostile.query)
    growth_mb = _memory_mb("VmHWM") - before_mb
    assert sum(len(line.text) for line in page.lines) <= PAGE_BYTES_MAX
    return Cost((), max(gaps_s) * 1000, growth_mb)


@asynccontextmanager
async def _project_server() -> AsyncIterator[InProcessServer]:
    user = User(admin_user(PlaneName(_PLANE)), (), frozenset({_PLANE}))
    async with running_server(users={PROJECT_TOKEN: user}, work_clock=time.thread_time) as server:
        await ensure_first_roles(server, _PLANE)
        yield server


@asynccontextmanager
async def _watched_loop() -> AsyncIterator[list[float]]:
    """Record the processor time between two runs of a task that runs in every pass of the loop."""
    gaps_s = [0.0]

    async def record_gaps() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps_s.append(now - last)
            last = now

    task = asyncio.create_task(record_gaps())
    await asyncio.sleep(0)
    try:
        yield gaps_s
        await asyncio.sleep(0)  # lets the task record the last gap
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _reset_peak_mb() -> float:
    """Return free memory to the system, reset the peak, and return the current memory."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    _CLEAR_REFS.write_text(_RESET_PEAK)
    return _memory_mb("VmRSS")


def _memory_mb(field: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {field} in {_STATUS}")
