"""The loss of the engine is reported for each machine, and its machines are adopted again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import pytest

from datum_compute.api.compute.instance import ExecAction, Probe
from datum_compute.app.container_host import CrashReportFiles, LogFiles, VolumeDirectories
from datum_compute.drivers.containers.container_spec import (
    ContainerOwner,
    ContainerPlan,
    MachinePlan,
)
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.machine import MachineRecord
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.driver import (
    NOT_OBSERVED,
    OBSERVATION_DEADLINE_S,
    MachineState,
    Observation,
)
from testkit.conformance.driver import SPEC
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.drivers.containers.memory_engine import MemoryEngine

OWNER = ContainerOwner("platform", "dfw")
ID = "ns/web-0/1"
HOST = "127.0.0.1"
UNIX_S = 2e9
PLAIN = MachinePlan(containers=[ContainerPlan(name="app", image="web:1")], addresses=[HOST])
T = TypeVar("T")


class Clock:
    """A monotonic clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def a_driver(
    engine: MemoryEngine,
    state: Path,
    elapsed_s: Callable[[], float],
    records: dict[str, MachineRecord] | None = None,
) -> ContainersDriver:
    archive = LogFiles(state / "logs", lambda: 2e9)
    return ContainersDriver(
        ContainerOperations(engine, OWNER, VolumeDirectories(state / "data"), archive),
        OWNER,
        {} if records is None else records,
        unix_s=lambda: UNIX_S,
        elapsed_s=elapsed_s,
        save=lambda: None,
        save_now=lambda: None,
        log_archive=archive,
        crash_reports=CrashReportFiles(state / "crashes", lambda: 2e9),
    )


@asynccontextmanager
async def run_driver(driver: ContainersDriver) -> AsyncIterator[ContainersDriver]:
    task = asyncio.create_task(driver.run())
    try:
        yield driver
    finally:
        task.cancel()
        await asyncio.wait([task])


def in_virtual_time(
    tmp_path: Path, story: Callable[[ContainersDriver, MemoryEngine], Awaitable[T]]
) -> T:
    """Run the story with a driver that has adopted one machine without a probe."""

    async def main(loop: VirtualLoop) -> T:
        engine = MemoryEngine(OWNER)
        engine.add(ID, PLAIN)
        async with run_driver(a_driver(engine, tmp_path, loop.time)) as driver:
            return await story(driver, engine)

    return run_virtual(Random(1), main)


def test_nothing_is_reported_before_the_first_list(tmp_path: Path) -> None:
    """Not even that a machine does not exist."""

    async def main(loop: VirtualLoop) -> list[Observation]:
        engine = MemoryEngine(OWNER)
        engine.add(ID, PLAIN)
        engine.set_away(is_away=True)
        async with run_driver(a_driver(engine, tmp_path, loop.time)) as driver:
            reports = [await driver.observe(ID) for _ in range(8)]
            engine.set_away(is_away=False)
            await asyncio.sleep(3)
            reports.append(await driver.observe(ID))
            reports.append(await driver.observe("ns/absent/1"))
        return reports

    reports = run_virtual(Random(1), main)
    phases = [state.phase if isinstance(state, MachineState) else state for state in reports]
    assert phases == [*[NOT_OBSERVED] * 5, *["Unknown"] * 3, "Running", None]


def test_machines_of_a_lost_engine_become_unknown_after_the_deadline(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> list[str]:
        await asyncio.sleep(1)
        before = await driver.observe(ID)
        assert isinstance(before, MachineState)
        engine.set_away(is_away=True)
        await asyncio.sleep(OBSERVATION_DEADLINE_S - 2)
        assert await driver.observe(ID) in (before, NOT_OBSERVED)
        async with announcements(driver) as announced:
            await asyncio.sleep(5)
            lost = await driver.observe(ID)
            assert isinstance(lost, MachineState)
            assert announced == [ID], "the machine is announced when it becomes Unknown"
            engine.set_away(is_away=False)
            await asyncio.sleep(5)
            assert announced == [ID, ID], "and when it is observed again"
        assert await driver.observe(ID) == before
        assert engine.changed() == []
        return [lost.phase, lost.reason]

    assert in_virtual_time(tmp_path, story) == ["Unknown", "NotObserved"]


@asynccontextmanager
async def announcements(driver: ContainersDriver) -> AsyncIterator[list[str]]:
    """Collect the announcements from now on."""
    announced: list[str] = []

    async def collect() -> None:
        async for machine_id in driver.changes():
            announced.append(machine_id)  # noqa: PERF401 - read while it grows

    task = asyncio.create_task(collect())
    await asyncio.sleep(0.1)
    announced.clear()
    try:
        yield announced
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_an_engine_that_returns_before_the_deadline_changes_nothing(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        await asyncio.sleep(1)
        before = await driver.observe(ID)
        reports: set[object] = set()
        engine.set_away(is_away=True)
        for _ in range(20):
            await asyncio.sleep(1)
            reports.add(await driver.observe(ID))
        engine.set_away(is_away=False)
        await asyncio.sleep(3)
        assert await driver.observe(ID) == before
        assert reports <= {before, NOT_OBSERVED}

    in_virtual_time(tmp_path, story)


def test_exits_during_the_loss_of_the_engine_are_observed(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        await asyncio.sleep(1)
        engine.set_away(is_away=True)
        await asyncio.sleep(5)
        engine.set_status(ID, "exited", exit_code=137)
        engine.set_away(is_away=False)
        await asyncio.sleep(3)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert (state.phase, state.exit_code) == ("Failed", 137)

    in_virtual_time(tmp_path, story)


def test_a_container_that_cannot_be_inspected_makes_its_machine_unknown(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        await asyncio.sleep(1)
        engine.broken.add("app")
        await asyncio.sleep(OBSERVATION_DEADLINE_S)  # until the next list at the latest
        assert await driver.observe(ID) is not None
        await asyncio.sleep(OBSERVATION_DEADLINE_S + 2)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert state.phase == "Unknown"
        engine.broken.clear()
        await asyncio.sleep(2)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert state.phase == "Running"

    in_virtual_time(tmp_path, story)


def test_a_machine_that_is_being_created_stays_pending_without_the_engine(tmp_path: Path) -> None:
    """This process has not created the containers yet."""

    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        await driver.machines()
        engine.set_away(is_away=True)
        await driver.start("ns/web-1/1", SPEC)
        await asyncio.sleep(OBSERVATION_DEADLINE_S + 5)
        state = await driver.observe("ns/web-1/1")
        assert isinstance(state, MachineState)
        assert state.phase == "Pending"
        await driver.remove("ns/web-1/1")

    in_virtual_time(tmp_path, story)


@pytest.mark.parametrize("kind", ["readiness", "liveness"])
def test_a_command_that_the_engine_cannot_run_is_inconclusive(tmp_path: Path, kind: str) -> None:
    """A probe in the container fails with the engine, and proves nothing."""
    probe = Probe(exec_=ExecAction(command=["true"]), period_seconds=1)
    container = ContainerPlan(name="app", image="web:1")
    container = msgspec.structs.replace(container, **{kind: probe})

    async def main(loop: VirtualLoop) -> None:
        engine = MemoryEngine(OWNER)
        engine.add(ID, MachinePlan(containers=[container]))
        async with run_driver(a_driver(engine, tmp_path, loop.time)) as driver:
            await asyncio.sleep(5)
            before = await driver.observe(ID)
            assert isinstance(before, MachineState)
            assert (before.phase, before.reason) == ("Running", "")
            engine.set_away(is_away=True)
            await asyncio.sleep(20)
            engine.set_away(is_away=False)
            await asyncio.sleep(0.5)
            assert await driver.observe(ID) in (before, NOT_OBSERVED)
            await asyncio.sleep(5)
            assert await driver.observe(ID) == before
            assert [r for r in engine.changed() if r.endswith("/stop")] == []

    run_virtual(Random(1), main)
