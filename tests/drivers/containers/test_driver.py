"""Adopted machines are reported when they have been observed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import pytest

from datum_compute.api.compute.instance import ContainerPort, ExecAction, Probe, TcpSocket
from datum_compute.api.meta.timestamps import timestamp
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
from tests.stream_servers import close_at_once, serve_tcp

OWNER = ContainerOwner("platform", "dfw")
ID = "ns/web-0/1"
HOST = "127.0.0.1"
UNIX_S = 2e9
PLAIN = MachinePlan(containers=[ContainerPlan(name="app", image="web:1")], addresses=[HOST])
T = TypeVar("T")


def plan_with_probe(probe: Probe) -> MachinePlan:
    container = ContainerPlan(name="app", image="web:1", readiness=probe)
    return MachinePlan(containers=[container], addresses=[HOST])


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


async def first_report(driver: ContainersDriver) -> MachineState:
    """Return the first observation that is not NOT_OBSERVED."""
    async with asyncio.timeout(20):
        while not isinstance(state := await driver.observe(ID), MachineState):
            assert state is NOT_OBSERVED
            await asyncio.sleep(0.01)
    return state


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


async def test_an_adopted_machine_waits_for_its_inspection(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    engine.add(ID, PLAIN)
    async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
        assert await driver.machines() == [ID]
        assert (await first_report(driver)).phase == "Running"
        assert engine.changed() == [], "nothing was started or removed"


async def test_an_adopted_machine_waits_for_its_first_readiness_probe(tmp_path: Path) -> None:
    """The initial delay has passed long ago."""
    engine, clock = MemoryEngine(OWNER), Clock()
    is_probed = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        is_probed.set()

    async with serve_tcp(serve) as port:
        probe = Probe(tcp_socket=TcpSocket(port=port), initial_delay_seconds=3600)
        engine.add(ID, plan_with_probe(probe))
        async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
            state = await first_report(driver)
            assert (state.phase, state.reason) == ("Running", "")
            assert is_probed.is_set()


async def test_a_probe_that_fails_is_an_observation(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    async with serve_tcp(close_at_once) as port:
        pass
    probe = Probe(tcp_socket=TcpSocket(port=port), failure_threshold=1)
    engine.add(ID, plan_with_probe(probe))
    async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
        state = await first_report(driver)
        assert (state.phase, state.reason) == ("Running", "NotReady")
        assert engine.changed() == []


async def test_a_first_probe_that_never_ends_makes_the_machine_unknown(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    probe = Probe(exec_=ExecAction(command=["true"]), timeout_seconds=3600)
    engine.add(ID, plan_with_probe(probe))
    async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
        await driver.machines()
        engine.is_away = True  # the probe cannot be run
        clock.now_s += OBSERVATION_DEADLINE_S - 1
        assert await driver.observe(ID) is NOT_OBSERVED
        clock.now_s += 1
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert (state.phase, state.reason) == ("Unknown", "NotObserved")
        engine.is_away = False


async def test_an_adopted_machine_that_has_ended_is_observed_and_restarted(tmp_path: Path) -> None:
    """A restart of the engine may have ended it."""
    engine, clock = MemoryEngine(OWNER), Clock()
    engine.add(ID, plan_with_probe(Probe(tcp_socket=TcpSocket(port=1))))
    engine.set_status(ID, "exited", exit_code=137)
    async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
        state = await first_report(driver)
        assert state.phase in ("Pending", "Failed")
        async with asyncio.timeout(20):
            while (state := await first_report(driver)).phase != "Failed":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (state.reason, state.exit_code) == ("InstanceCrashing", 137)


async def test_a_machine_that_crashed_recovers_when_its_port_accepts_connections(
    tmp_path: Path,
) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    record = MachineRecord(is_down=True, container="app", exit_code=1, ended_s=UNIX_S - 11)
    engine.starts_at = timestamp(UNIX_S - 1)
    async with serve_tcp(close_at_once) as number:
        port = ContainerPort(name="http", port=number)
        container = ContainerPlan(name="app", image="web:1", ports=[port])
        engine.add(ID, MachinePlan(containers=[container], addresses=[HOST]), status="exited")
        async with run_driver(a_driver(engine, tmp_path, clock, {ID: record})) as driver:
            async with asyncio.timeout(20):
                async for machine_id in driver.changes():
                    state = await driver.observe(machine_id)
                    if isinstance(state, MachineState) and state.is_recovering:
                        break
            assert isinstance(state, MachineState)
            assert (state.phase, state.restarts, state.addresses) == ("Failed", 1, (HOST,))


async def test_an_adopted_machine_that_sleeps_needs_no_probe(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    engine.add(ID, plan_with_probe(Probe(tcp_socket=TcpSocket(port=1))), status="paused")
    records = {ID: MachineRecord(sleep_mode="pause")}
    async with run_driver(a_driver(engine, tmp_path, clock, records)) as driver:
        assert (await first_report(driver)).phase == "Sleeping"


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
