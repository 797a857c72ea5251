"""Usage is computed from two samples of the engine's counters."""

from __future__ import annotations

from typing import cast

from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.machine import (
    Machine,
    record_sleep,
)
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.usage import compute_usage, parse_sample, read_usage
from datum_compute.drivers.queries import Usage

PLAN = MachinePlan(
    containers=[ContainerPlan(name="app", image="web:1", memory_mebibytes=64, digest="sha256:d")],
    addresses=["10.0.0.2"],
)


def test_usage_is_computed_from_two_samples() -> None:
    stats = {
        "read": "2026-01-01T00:00:00.5Z",
        "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000_000}},
        "memory_stats": {"usage": 3 * 1024 * 1024, "limit": 64 * 1024 * 1024},
    }
    before = parse_sample(stats)
    later = {**stats, "read": "2026-01-01T00:00:01.0Z"}
    after = parse_sample({**later, "cpu_stats": {"cpu_usage": {"total_usage": 5_125_000_000}}})
    usage = compute_usage([before, before], [after, None])
    assert (usage.cpu_millicores, usage.memory_mebibytes) == (250, 3)
    assert compute_usage([before], [before]).cpu_millicores == 0, "no time has passed"
    assert parse_sample(None) is None


async def test_a_machine_that_does_not_run_has_no_usage() -> None:
    unused = cast(ContainerOperations, None)
    machine = Machine("ns/web/uid", PLAN)
    assert await read_usage(unused, machine) is None
    machine.record = record_sleep(machine.record, "stop")
    assert await read_usage(unused, machine) == Usage(asleep=True)
