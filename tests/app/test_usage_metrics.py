"""What instances use, as metrics: only while somebody looks, and only of those that are there."""

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


class Measured:
    """A cell whose readings a test sets, and its metrics."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.readings: dict[str, MachineUsage] | None = {}
        self.looks = 0
        self.metrics = UsageMetrics({cell_plane("dfw"): self.read}, loop.time)
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)

    async def read(self) -> dict[str, MachineUsage]:
        self.looks += 1
        if self.readings is None:
            raise TransientError("the engine is away")
        return self.readings

    def page(self) -> list[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if not line.startswith("#")]


def measured(scenario: Callable[[Measured], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        cell = Measured(loop)
        running = asyncio.create_task(cell.metrics.run())
        await scenario(cell)
        running.cancel()

    run_virtual(Random(2), main)


WEB = 'cell="dfw",instance="web-0",namespace="ns-1"'


def test_a_series_is_there_as_long_as_its_instance() -> None:
    async def scenario(cell: Measured) -> None:
        cell.readings = {"ns-1/web-0/uid": MachineUsage(2048, 4096, 0.25)}
        cell.page()
        await asyncio.sleep(1)
        assert cell.page() == [
            f"compute_instance_cpu_cores{{{WEB}}} 0.25",
            f"compute_instance_memory_bytes{{{WEB}}} 2048.0",
            f"compute_instance_memory_limit_bytes{{{WEB}}} 4096.0",
            'compute_instances_unmeasured{cell="dfw"} 0.0',
        ]
        cell.readings = {}
        await asyncio.sleep(READ_INTERVAL_S)
        assert cell.page() == ['compute_instances_unmeasured{cell="dfw"} 0.0']
        cell.readings = None
        await asyncio.sleep(READ_INTERVAL_S)
        assert cell.page() == [], "nobody knows"

    measured(scenario)


def test_the_engine_is_left_alone_while_nobody_looks() -> None:
    async def scenario(cell: Measured) -> None:
        await asyncio.sleep(10 * IDLE_AFTER_S)
        assert cell.looks == 0
        cell.page()
        await asyncio.sleep(10 * IDLE_AFTER_S)
        looks = cell.looks
        assert 0 < looks <= IDLE_AFTER_S / READ_INTERVAL_S + 2
        cell.page()
        await asyncio.sleep(1)
        assert cell.looks == looks + 1, "at once when somebody looks again"

    measured(scenario)


def test_too_many_instances_are_counted_and_left_out() -> None:
    async def scenario(cell: Measured) -> None:
        cell.readings = {f"ns-1/web-{n}/uid": MachineUsage(1, 0) for n in range(INSTANCES_MAX + 7)}
        cell.page()
        await asyncio.sleep(1)
        lines = cell.page()
        assert len(lines) == INSTANCES_MAX + 1
        assert 'compute_instances_unmeasured{cell="dfw"} 7.0' in lines

    measured(scenario)


def test_the_processor_is_known_from_the_second_look_on() -> None:
    one, two = ("ns/web/1", "app"), ("ns/web/1", "side")
    first = {one: UsageSample(10.0, 1_000_000_000, 5, 8)}
    assert machine_usage(first, {}) == MachineUsage(5, 8, None)
    second = {one: UsageSample(12.0, 2_000_000_000, 6, 8)}
    assert machine_usage(second, first) == MachineUsage(6, 8, 0.5)
    anew = {one: UsageSample(12.0, 0, 6, 8)}
    assert machine_usage(anew, first) == MachineUsage(6, 8, 0.0)
    assert machine_usage({**second, two: UsageSample(12.0, 1, 1, 1)}, first) == MachineUsage(
        7, 9, None
    )
