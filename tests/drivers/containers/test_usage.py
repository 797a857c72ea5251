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


def test_use_is_what_was_counted_between_two_moments() -> None:
    told = {
        "read": "2026-01-01T00:00:00.5Z",
        "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000_000}},
        "memory_stats": {"usage": 3 * 1024 * 1024, "limit": 64 * 1024 * 1024},
    }
    before = parse_sample(told)
    later = {**told, "read": "2026-01-01T00:00:01.0Z"}
    after = parse_sample({**later, "cpu_stats": {"cpu_usage": {"total_usage": 5_125_000_000}}})
    used = compute_usage([before, before], [after, None])
    assert (used.cpu_millicores, used.memory_mebibytes) == (250, 3)
    assert compute_usage([before], [before]).cpu_millicores == 0, "no time has passed"
    assert parse_sample(None) is None


async def test_one_that_does_not_run_uses_nothing_that_can_be_told() -> None:
    nobody = cast(ContainerOperations, None)  # nobody is asked
    machine = Machine("ns/web/uid", PLAN)
    assert await read_usage(nobody, machine) is None
    machine.record = record_sleep(machine.record, "stop")
    assert await read_usage(nobody, machine) == Usage(asleep=True)
