"""The metrics registry of a process, the pages of the metrics and health ports, and usage metrics.

Components take the registry as an argument (``ServerMetrics(registry)``,
``EventRecorder(registry=)``, ``RuntimeMetrics(registry)``) and register each family once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.drivers.containers.usage import MachineUsage
from datum_compute.drivers.driver import DriverError
from datum_compute.server.encoding.responses import text_response
from datum_compute.server.http.connection import Dispatch


def process_registry() -> CollectorRegistry:
    """Return a registry with CPU, memory, file descriptors, garbage collection and the release."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Info("datum_build", "The release of datum-compute.", registry=registry).info(
        {"version": __version__}
    )
    return registry


def metrics_dispatch(registry: CollectorRegistry, token: Path | None = None) -> Dispatch:
    """Serve /metrics and /healthz; with a token file, only to clients that send the token."""

    def metrics() -> Response:
        return Response(200, generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    pages = _page_dispatch({"/metrics": metrics, "/healthz": _ok})

    async def dispatch(request: Request) -> Response:
        if token is not None and not _has_token(request, _read_bearer_token(token)):
            return text_response("send the bearer token\n", status=401)
        return await pages(request)

    return dispatch


def health_dispatch(not_ready_reason: Callable[[], str]) -> Dispatch:
    """Serve /healthz and /livez, and /readyz, which fails while there is a reason."""

    def ready() -> Response:
        reason = not_ready_reason()
        return text_response(f"{reason}\n", status=503) if reason else _ok()

    return _page_dispatch({"/healthz": _ok, "/livez": _ok, "/readyz": ready})


def _page_dispatch(pages: Mapping[str, Callable[[], Response]]) -> Dispatch:
    async def dispatch(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return text_response("only GET is supported\n", status=405)
        page = pages.get(request.path)
        if page is None:
            return text_response(f"not found; pages: {', '.join(pages)}\n", status=404)
        return page()

    return dispatch


def _ok() -> Response:
    return text_response("ok")


def _has_token(request: Request, token: bytes) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    matches = hmac.compare_digest(given.strip().encode(), token)
    return bool(token) and scheme.lower() == "bearer" and matches


def _read_bearer_token(file: Path) -> bytes:
    """Read the token for every request: it rotates. Without a file no client is admitted."""
    try:
        return file.read_bytes().strip()
    except OSError:
        return b""


# --- CPU and memory of instances
# The container engine needs milliseconds per container, so it is queried only while something
# collects the metrics. A series exists as long as its instance. At most ``INSTANCES_MAX`` instances
# per cell have series; a gauge counts the rest.


READ_INTERVAL_S = 15.0
IDLE_AFTER_S = 120.0  # after the last collection
INSTANCES_MAX = 1000
_LABELS = ("cell", "namespace", "instance")

ReadUsage = Callable[[], Awaitable[Mapping[str, MachineUsage]]]  # by machine id

_log = logging.getLogger(__name__)


class UsageMetrics(Collector):
    """CPU and memory of the machines of each cell."""

    def __init__(
        self, cells: Mapping[PlaneName, ReadUsage], elapsed_s: Callable[[], float]
    ) -> None:
        self._cells = cells
        self._elapsed_s = elapsed_s
        self._usage: dict[PlaneName, Mapping[str, MachineUsage]] = {}
        self._collected_s = -IDLE_AFTER_S
        self._collected = asyncio.Event()

    async def run(self) -> None:
        while True:
            if self._elapsed_s() - self._collected_s >= IDLE_AFTER_S:
                self._usage.clear()  # outdated
                self._collected.clear()
                await self._collected.wait()
            for cell, read in self._cells.items():
                await self._read(cell, read)
            await asyncio.sleep(READ_INTERVAL_S)

    async def _read(self, cell: PlaneName, read: ReadUsage) -> None:
        try:
            self._usage[cell] = await read()
        except DriverError as error:
            self._usage.pop(cell, None)
            _log.info("cannot read the usage of instances in %s: %s", cell, error)

    def collect(self) -> Iterator[Metric]:
        self._collected_s = self._elapsed_s()
        self._collected.set()
        return self._families()

    def describe(self) -> Iterator[Metric]:
        return iter(_empty())

    def _families(self) -> Iterator[Metric]:
        cpu, memory, limit, left_out = _empty()
        for cell, readings in sorted(self._usage.items()):
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
            "CPU cores that an instance used between the last two readings.",
            labels=_LABELS,
        ),
        GaugeMetricFamily(
            "compute_instance_memory_bytes", "Memory that an instance uses.", labels=_LABELS
        ),
        GaugeMetricFamily(
            "compute_instance_memory_limit_bytes", "Memory limit of an instance.", labels=_LABELS
        ),
        GaugeMetricFamily(
            "compute_instances_unmeasured",
            "Instances of a cell without usage metrics, above the limit of series.",
            labels=("cell",),
        ),
    )
