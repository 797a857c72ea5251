"""Processor and memory of instances as metrics: looked at while somebody collects them.

The engine is asked about one container at a time and that costs it milliseconds, so nobody is asked
as long as nobody looks. A series is there as long as its instance; there are at most
``INSTANCES_MAX`` instances of a cell in them, and a gauge says how many are left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute.api.planes import PlaneName, member_name
from datum_compute.drivers.containers.usage import MachineUsage
from datum_compute.drivers.driver import DriverError

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
