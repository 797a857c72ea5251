"""The simulated driver follows the protocol, and its machines outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.instance import Container
from datum_compute.app.driver_selection import simulated_driver
from datum_compute.app.settings.settings import local_settings
from datum_compute.drivers.driver import (
    NOT_OBSERVED,
    OBSERVATION_DEADLINE_S,
    Driver,
    MachineState,
    Observation,
)
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from testkit.conformance.driver import ADOPTION, CHECKS, SPEC, Adopt, Settle
from testkit.sim.loop import VirtualLoop, run_virtual

T = TypeVar("T")
ID = "ns/web-0/1"


def run(
    story: Callable[[SimulatedDriver], Awaitable[T]], *, boot_s: float = 0.0, stop_s: float = 0.0
) -> T:
    async def main(loop: VirtualLoop) -> T:
        return await story(
            SimulatedDriver(MachineTable(), now=loop.time, boot_s=boot_s, stop_s=stop_s)
        )

    return run_virtual(Random(1), main)


@pytest.mark.parametrize("pace", [{}, {"boot_s": 0.2, "stop_s": 0.1}], ids=["at once", "slow"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(
    check: Callable[[Driver, Settle], Awaitable[None]], pace: dict[str, float]
) -> None:
    async def story(driver: SimulatedDriver) -> bool:
        await check(driver, lambda: asyncio.sleep(1))
        return True

    assert run(story, **pace)


@pytest.mark.parametrize("adoption_s", [0.0, 2.0])
@pytest.mark.parametrize("check", ADOPTION, ids=lambda check: check.__name__)
def test_adoption_conformance(
    check: Callable[[Driver, Settle, Adopt], Awaitable[None]], adoption_s: float
) -> None:
    async def main(loop: VirtualLoop) -> bool:
        table = MachineTable()

        async def adopt() -> Driver:
            return SimulatedDriver(table, now=loop.time, adoption_s=lambda: adoption_s)

        driver = SimulatedDriver(table, now=loop.time)
        await check(driver, lambda: asyncio.sleep(1), adopt)
        return True

    assert run_virtual(Random(1), main)


def observe_adopted_machine(after_s: float, adoption_s: float) -> Observation:
    """Observe a machine ``after_s`` after its adoption by a driver with this adoption delay."""

    async def main(loop: VirtualLoop) -> Observation:
        table = MachineTable()
        await SimulatedDriver(table, now=loop.time).start(ID, SPEC)
        driver = SimulatedDriver(table, now=loop.time, adoption_s=lambda: adoption_s)
        await asyncio.sleep(after_s)
        return await driver.observe(ID)

    return run_virtual(Random(1), main)


def test_an_adopted_machine_is_unknown_if_it_is_not_observed_before_the_deadline() -> None:
    assert observe_adopted_machine(OBSERVATION_DEADLINE_S - 1, adoption_s=100.0) is NOT_OBSERVED
    late = observe_adopted_machine(OBSERVATION_DEADLINE_S, adoption_s=100.0)
    assert isinstance(late, MachineState)
    assert (late.phase, late.reason) == ("Unknown", "NotObserved")
    observed = observe_adopted_machine(100.0, adoption_s=100.0)
    assert isinstance(observed, MachineState)
    assert observed.phase == "Running"


def test_the_first_observation_of_an_adopted_machine_is_announced() -> None:
    async def main(loop: VirtualLoop) -> float:
        table = MachineTable()
        await SimulatedDriver(table, now=loop.time).start(ID, SPEC)
        driver = SimulatedDriver(table, now=loop.time, adoption_s=lambda: 7.0)
        began_s = loop.time()
        assert await anext(aiter(driver.changes())) == ID
        assert isinstance(await driver.observe(ID), MachineState)
        return loop.time() - began_s

    assert run_virtual(Random(1), main) == pytest.approx(7.0, abs=0.01)


def state_after(image: str, after_s: float, **pace: float) -> MachineState:
    """Return the state of a machine ``after_s`` after its start."""

    async def story(driver: SimulatedDriver) -> Observation:
        container = Container(name="app", image=image)
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[container]))
        await asyncio.sleep(after_s)
        return await driver.observe(ID)

    state = run(story, **pace)
    assert isinstance(state, MachineState)
    return state


def test_a_booting_machine_is_pending() -> None:
    assert state_after("web:1", 0, boot_s=2.0).phase == "Pending"
    assert state_after("web:1", 3, boot_s=2.0).phase == "Running"


def test_a_machine_boots_at_once_by_default() -> None:
    assert state_after("web:1", 0).phase == "Running"


@pytest.mark.parametrize(
    ("image", "after_s", "phase", "reason"),
    [
        ("fail.example/web:1", 0, "Failed", "ImageUnavailable"),
        ("config.example/web:1", 0, "Failed", "ConfigurationError"),
        ("crash.example/web:1", 0, "Failed", "InstanceCrashing"),
        ("crash.example/web:1", 9000, "Failed", "InstanceCrashing"),
        ("flaky.example/web:1", 1, "Failed", "InstanceCrashing"),
        ("flaky.example/web:1", 60, "Running", ""),
        ("exit.example/web:1", 1, "Stopped", "Stopped"),
        ("slow.example/web:1", 29, "Pending", "Starting"),
        ("slow.example/web:1", 31, "Running", ""),
        ("stuck.example/web:1", 9000, "Pending", "Provisioning"),
        ("sleepy.example/web:1", 1, "Running", ""),
        ("sleepy.example/web:1", 6, "Sleeping", ""),
        ("dozing.example/web:1", 1, "Running", ""),
        ("dozing.example/web:1", 6, "Sleeping", ""),
        ("dozing.example/web:1", 11, "Running", ""),
        ("ghcr.io/fail.example/web:1", 0, "Running", ""),
    ],
)
def test_the_registry_of_an_image_determines_the_behavior(
    image: str, after_s: float, phase: str, reason: str
) -> None:
    state = state_after(image, after_s)
    assert (state.phase, state.reason) == (phase, reason)


def test_a_crash_loop_reports_restarts_exit_code_and_last_lines() -> None:
    state = state_after("crash.example/web:1", 0)
    assert (state.restarts, state.exit_code) == (0, 1)
    assert state.last_lines


def test_every_restart_of_a_crash_loop_is_announced() -> None:
    async def story(driver: SimulatedDriver) -> int:
        changes = aiter(driver.changes())
        container = Container(name="app", image="crash.example/web:1")
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[container]))
        restarts = 0
        for _ in range(3):
            await anext(changes)
            state = await driver.observe(ID)
            assert isinstance(state, MachineState)
            restarts = state.restarts
        return restarts

    assert run(story) == 3


def test_a_machine_sleeps_and_wakes() -> None:
    async def story(driver: SimulatedDriver) -> list[str]:
        await driver.start(ID, SPEC)
        phases: list[str] = []
        for step in (driver.sleep(ID, "pause"), driver.wake(ID)):
            await step
            state = await driver.observe(ID)
            assert isinstance(state, MachineState)
            phases.append(state.phase)
        return phases

    assert run(story) == ["Sleeping", "Running"]


async def test_machines_in_a_file_outlive_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "machines.json"
    await simulated_driver(file, lambda: 1000.0).start(ID, SPEC)
    again = simulated_driver(file, lambda: 2000.0)
    state = await again.observe(ID)
    assert isinstance(state, MachineState)
    assert (state.phase, state.started_at) == ("Running", "1970-01-01T00:16:40Z")


async def test_an_empty_file_contains_no_machines(
    tmp_path: Path,
) -> None:
    file = tmp_path / "machines.json"
    file.touch()
    assert await simulated_driver(file, lambda: 1000.0).observe(ID) is None


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "1e9"])
def test_an_invalid_boot_time_is_rejected(text: str) -> None:
    with pytest.raises(SystemExit):
        local_settings(["--state-dir", "s", f"--simulated-boot-seconds={text}"], {})


def test_the_flag_of_the_boot_time_overrides_the_environment() -> None:
    environment = {"DATUM_SIMULATED_BOOT_SECONDS": "3"}
    assert local_settings(["--state-dir", "s"], {}).driver.boot_s == 0
    assert local_settings(["--state-dir", "s"], environment).driver.boot_s == 3
    assert (
        local_settings(
            ["--state-dir", "s", "--simulated-boot-seconds=2"], environment
        ).driver.boot_s
        == 2
    )


MACHINE = SimulatedMachine(number=1, image="web:1", runs_from_s=0.0)
ids = st.builds(lambda name, uid: f"ns/{name}/{uid}", st.sampled_from("abc"), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(("set", "pop", "clear")), ids), max_size=40))
def test_the_index_by_server_equals_a_scan(steps: list[tuple[str, str]]) -> None:
    table = MachineTable()
    model: dict[str, SimulatedMachine] = {}
    for step, machine_id in steps:
        both: tuple[MutableMapping[str, SimulatedMachine], ...] = (table, model)
        for machines in both:
            if step == "set":
                machines[machine_id] = MACHINE
            elif step == "pop":
                machines.pop(machine_id, None)
            elif machine_id.endswith("0"):
                machines.clear()
        assert dict(table) == model
        for name in ("ns/a/", "ns/b/", "ns/c/"):
            assert table.list_ids(name) == sorted(m for m in model if m.startswith(name))


def test_a_machine_that_ignores_the_request_to_stop_is_removed_after_ten_seconds() -> None:
    async def story(driver: SimulatedDriver) -> list[bool]:
        container = Container(name="app", image="stubborn.example/web:1")
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[container]))
        await driver.remove(ID)
        await asyncio.sleep(9)
        runs = await driver.observe(ID) is not None
        await asyncio.sleep(2)
        return [runs, await driver.observe(ID) is not None]

    assert run(story, stop_s=0.1) == [True, False]
