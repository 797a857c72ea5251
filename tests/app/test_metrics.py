"""Usage of instances as metrics, which is read only while metrics are scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from datum_compute.api.planes import cell_plane
from datum_compute.app.metrics import IDLE_AFTER_S, INSTANCES_MAX, READ_INTERVAL_S, UsageMetrics
from datum_compute.drivers.containers.usage import MachineUsage, UsageSample, machine_usage
from datum_compute.drivers.driver import TransientError
from testkit.sim.loop import VirtualLoop, run_virtual


class MeasuredCell:
    """A cell with metrics whose readings a test sets."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.readings: dict[str, MachineUsage] | None = {}
        self.reads = 0
        self.metrics = UsageMetrics({cell_plane("dfw"): self.read}, loop.time)
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)

    async def read(self) -> dict[str, MachineUsage]:
        self.reads += 1
        if self.readings is None:
            raise TransientError("the engine is away")
        return self.readings

    def scrape(self) -> list[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if not line.startswith("#")]


def run_with_cell(scenario: Callable[[MeasuredCell], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        cell = MeasuredCell(loop)
        running = asyncio.create_task(cell.metrics.run())
        await scenario(cell)
        running.cancel()

    run_virtual(Random(2), main)


WEB = 'cell="dfw",instance="web-0",namespace="ns-1"'


def test_a_series_exists_as_long_as_its_instance() -> None:
    async def scenario(cell: MeasuredCell) -> None:
        cell.readings = {"ns-1/web-0/uid": MachineUsage(2048, 4096, 0.25)}
        cell.scrape()
        await asyncio.sleep(1)
        assert cell.scrape() == [
            f"compute_instance_cpu_cores{{{WEB}}} 0.25",
            f"compute_instance_memory_bytes{{{WEB}}} 2048.0",
            f"compute_instance_memory_limit_bytes{{{WEB}}} 4096.0",
            'compute_instances_unmeasured{cell="dfw"} 0.0',
        ]
        cell.readings = {}
        await asyncio.sleep(READ_INTERVAL_S)
        assert cell.scrape() == ['compute_instances_unmeasured{cell="dfw"} 0.0']
        cell.readings = None
        await asyncio.sleep(READ_INTERVAL_S)
        assert cell.scrape() == [], "usage is unknown"

    run_with_cell(scenario)


def test_usage_is_not_read_while_metrics_are_not_scraped() -> None:
    async def scenario(cell: MeasuredCell) -> None:
        await asyncio.sleep(10 * IDLE_AFTER_S)
        assert cell.reads == 0
        cell.scrape()
        await asyncio.sleep(10 * IDLE_AFTER_S)
        reads = cell.reads
        assert 0 < reads <= IDLE_AFTER_S / READ_INTERVAL_S + 2
        cell.scrape()
        await asyncio.sleep(1)
        assert cell.reads == reads + 1, "usage is read at once after the next scrape"

    run_with_cell(scenario)


def test_instances_beyond_the_limit_are_counted_and_omitted() -> None:
    async def scenario(cell: MeasuredCell) -> None:
        cell.readings = {f"ns-1/web-{n}/uid": MachineUsage(1, 0) for n in range(INSTANCES_MAX + 7)}
        cell.scrape()
        await asyncio.sleep(1)
        lines = cell.scrape()
        assert len(lines) == INSTANCES_MAX + 1
        assert 'compute_instances_unmeasured{cell="dfw"} 7.0' in lines

    run_with_cell(scenario)


def test_processor_usage_is_computed_from_the_second_sample_on() -> None:
    one, two = ("ns/web/1", "app"), ("ns/web/1", "side")
    first = {one: UsageSample(10.0, 1_000_000_000, 5, 8)}
    assert machine_usage(first, {}) == MachineUsage(5, 8, None)
    second = {one: UsageSample(12.0, 2_000_000_000, 6, 8)}
    assert machine_usage(second, first) == MachineUsage(6, 8, 0.5)
    restarted = {one: UsageSample(12.0, 0, 6, 8)}
    assert machine_usage(restarted, first) == MachineUsage(6, 8, 0.0)
    assert machine_usage({**second, two: UsageSample(12.0, 1, 1, 1)}, first) == MachineUsage(
        7, 9, None
    )
