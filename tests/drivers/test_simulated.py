"""The simulated driver keeps the protocol, and its machines outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from datum_compute.app.machines import simulated_driver
from datum_compute.drivers.driver import Driver
from datum_compute.drivers.simulated import Machine, SimulatedDriver
from datum_compute.testing.driver_conformance import CHECKS, SPEC, Settle
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Driver, Settle], Awaitable[None]]) -> None:
    table: dict[str, Machine] = {}

    async def main(loop: VirtualLoop) -> bool:
        driver = SimulatedDriver(table, now=loop.time)
        await check(driver, lambda: asyncio.sleep(1))
        return True

    assert run_virtual(Random(1), main)


def test_a_machine_that_is_starting_says_so() -> None:
    async def main(loop: VirtualLoop) -> str:
        driver = SimulatedDriver({}, now=loop.time)
        await driver.start("ns/web-0/1", SPEC)
        state = await driver.observe("ns/web-0/1")
        return state.phase if state else "none"

    assert run_virtual(Random(1), main) == "Pending"


async def test_machines_in_a_file_outlive_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "machines.json"
    await simulated_driver(file, lambda: 1000.0).start("ns/web-0/1", SPEC)
    again = simulated_driver(file, lambda: 2000.0)
    state = await again.observe("ns/web-0/1")
    assert state is not None
    assert (state.phase, state.started_at) == ("Running", "1970-01-01T00:16:40Z")
