"""The registry of a process: what every process tells, to which its parts add their own.

Parts take the registry as an argument (``ServerMetrics(registry)``, ``EventRecorder(registry=)``,
``RuntimeMetrics(registry)``); each family is registered once for each process.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute import __version__
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.drivers.containers.usage import MachineUsage
from datum_compute.drivers.driver import DriverError

_HEAD_BYTES_MAX = 16 * 1024
_PATIENCE_S = 10.0
_TEXT = "text/plain; charset=utf-8"

Page = tuple[str, str, bytes]  # status, content type, body
Pages = Mapping[bytes, Callable[[], Page]]


def process_registry() -> CollectorRegistry:
    """CPU, memory, file descriptors, garbage collection, and which release this is."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Info("datum_build", "The release of datum-compute.", registry=registry).info(
        {"version": __version__}
    )
    return registry


def read_token(file: Path) -> bytes:
    """Read at every request: tokens are renewed. Without one nobody is let in."""
    try:
        return file.read_bytes().strip()
    except OSError:
        return b""


def metrics_pages(registry: CollectorRegistry) -> Pages:
    def metrics() -> Page:
        return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)

    return {b"/metrics": metrics, b"/healthz": _ok}


def health_pages(what_is_missing: Callable[[], str]) -> Pages:
    """Alive as long as it answers; ready when nothing is missing."""

    def ready() -> Page:
        missing = what_is_missing()
        return ("503 Service Unavailable", _TEXT, f"{missing}\n".encode()) if missing else _ok()

    return {b"/healthz": _ok, b"/livez": _ok, b"/readyz": ready}


@asynccontextmanager
async def pages_port(
    address: tuple[str, int] | None, pages: Pages, token: Path | None = None
) -> AsyncIterator[int]:
    """Serve the pages while the block runs; the port it listens on, 0 for none at all. With the
    file of a token only for those who know what it holds."""
    if address is None:
        yield 0
        return
    try:
        server = await asyncio.start_server(
            _answering(pages, token), *address, limit=_HEAD_BYTES_MAX
        )
    except OSError as error:
        what = " and ".join(path.decode() for path in pages)
        raise OSError(
            f"{what}: cannot listen on {address[0]}:{address[1]}: {_why(error)}"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _why(error: OSError) -> str:
    """asyncio puts an address and an errno around it."""
    return os.strerror(error.errno) if error.errno else str(error)


def _ok() -> Page:
    return "200 OK", _TEXT, b"ok"


def _answering(
    pages: Pages, token: Path | None
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A few pages and one request for each connection: no more HTTP than a scraper needs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                if token is not None and not _is_let_in(head, read_token(token)):
                    writer.write(_refusal())
                else:
                    writer.write(_response(head.partition(b"\r\n")[0], pages))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever that was is gone, or was no scraper
        finally:
            writer.close()

    return answer


def _is_let_in(head: bytes, token: bytes) -> bool:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            scheme, _, told = value.strip().partition(b" ")
            is_token = hmac.compare_digest(told.strip(), token)
            return bool(token) and scheme.lower() == b"bearer" and is_token
    return False


def _refusal() -> bytes:
    body = b"a bearer token is needed\n"
    head = f"HTTP/1.1 401 Unauthorized\r\ncontent-type: {_TEXT}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _response(request_line: bytes, pages: Pages) -> bytes:
    method, _, rest = request_line.partition(b" ")
    page = pages.get(rest.partition(b" ")[0].partition(b"?")[0])
    if method not in (b"GET", b"HEAD"):
        status, content_type, body = "405 Method Not Allowed", _TEXT, b"only GET\n"
    elif page is not None:
        status, content_type, body = page()
    else:
        there = " and ".join(path.decode() for path in pages)
        status, content_type, body = "404 Not Found", _TEXT, f"there is {there}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)


# --- Processor and memory of instances as metrics: looked at while somebody collects them
# The engine is asked about one container at a time and that costs it milliseconds, so nobody is
# asked as long as nobody looks. A series is there as long as its instance; there are at most
# ``INSTANCES_MAX`` instances of a cell in them, and a gauge says how many are left out.


EVERY_S = 15.0
# After the last time that somebody looked.
WATCHED_S = 120.0
INSTANCES_MAX = 1000
_LABELS = ("cell", "namespace", "instance")

Read = Callable[[], Awaitable[Mapping[str, MachineUsage]]]

_log = logging.getLogger(__name__)


class UsageMetrics(Collector):
    """``cells`` are asked for the readings of their machines, by id."""

    def __init__(self, cells: Mapping[PlaneName, Read], elapsed_s: Callable[[], float]) -> None:
        self._cells = cells
        self._elapsed_s = elapsed_s
        self._readings: dict[PlaneName, Mapping[str, MachineUsage]] = {}
        self._watched_s = -WATCHED_S
        self._asked = asyncio.Event()

    async def run(self) -> None:
        while True:
            if self._elapsed_s() - self._watched_s >= WATCHED_S:
                self._readings.clear()  # old numbers are no numbers
                self._asked.clear()
                await self._asked.wait()
            for cell, read in self._cells.items():
                await self._look(cell, read)
            await asyncio.sleep(EVERY_S)

    async def _look(self, cell: PlaneName, read: Read) -> None:
        try:
            self._readings[cell] = await read()
        except DriverError as error:
            self._readings.pop(cell, None)
            _log.info("what instances of %s use is not known: %s", cell, error)

    def collect(self) -> Iterator[Metric]:
        self._watched_s = self._elapsed_s()
        self._asked.set()
        return self._families()

    def describe(self) -> Iterator[Metric]:
        return iter(_empty())

    def _families(self) -> Iterator[Metric]:
        cpu, memory, limit, left_out = _empty()
        for cell, readings in sorted(self._readings.items()):
            name = member_name(cell)
            for machine_id, reading in sorted(readings.items())[:INSTANCES_MAX]:
                labels = (name, *machine_id.split("/")[:2])
                memory.add_metric(labels, reading.memory_bytes)
                if reading.limit_bytes:
                    limit.add_metric(labels, reading.limit_bytes)
                if reading.cpu_cores is not None:
                    cpu.add_metric(labels, reading.cpu_cores)
            left_out.add_metric((name,), max(0, len(readings) - INSTANCES_MAX))
        yield from (cpu, memory, limit, left_out)


def _empty() -> tuple[GaugeMetricFamily, ...]:
    return (
        GaugeMetricFamily(
            "compute_instance_cpu_cores",
            "Processors that an instance uses, between the last two looks.",
            labels=_LABELS,
        ),
        GaugeMetricFamily(
            "compute_instance_memory_bytes", "Memory that an instance uses.", labels=_LABELS
        ),
        GaugeMetricFamily(
            "compute_instance_memory_limit_bytes", "The most it may use.", labels=_LABELS
        ),
        GaugeMetricFamily(
            "compute_instances_unmeasured",
            "Instances of a cell that are too many to be in the metrics.",
            labels=("cell",),
        ),
    )
