"""The loss of the engine is detected in time, and proves nothing about its containers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import ExecAction, Probe
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.engine import (
    CONCURRENT_REQUESTS_MAX,
    PING_TIMEOUT_S,
    Engine,
    EngineTimeout,
)
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.probes import ProbeRunner, run_command
from datum_compute.drivers.driver import NOT_OBSERVED, OBSERVATION_DEADLINE_S, MachineState
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.drivers.containers.memory_engine import MemoryEngine
from tests.drivers.containers.test_driver import (
    HOST,
    ID,
    OWNER,
    PLAIN,
    a_driver,
    announcements,
    run_driver,
)

EXEC = Probe(exec_=ExecAction(command=["true"]), period_seconds=2)
KINDS = pytest.mark.parametrize("kind", ["readiness", "liveness"])


def in_virtual_time(
    tmp_path: Path,
    plan: MachinePlan,
    story: Callable[[ContainersDriver, MemoryEngine], Awaitable[None]],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        engine = MemoryEngine(OWNER)
        engine.add(ID, plan)
        async with run_driver(a_driver(engine, tmp_path, loop.time)) as driver:
            await asyncio.sleep(5)
            await story(driver, engine)

    run_virtual(Random(1), main)


def with_probe(kind: str, probe: Probe = EXEC) -> MachinePlan:
    container = ContainerPlan(name="app", image="web:1")
    container = msgspec.structs.replace(container, **{kind: probe})
    return MachinePlan(containers=[container], addresses=[HOST])


def stops(engine: MemoryEngine) -> list[str]:
    return [request for request in engine.requests if request.endswith("/stop")]


def test_drivers_that_share_an_engine_do_not_ping_it_while_it_answers(tmp_path: Path) -> None:
    """A response counts for every driver; a driver that missed it would ping all the time."""

    async def main(loop: VirtualLoop) -> None:
        engine = MemoryEngine(OWNER)
        folders = [tmp_path / "dfw", tmp_path / "iad"]
        drivers = [a_driver(engine, folder, loop.time) for folder in folders]
        async with run_driver(drivers[0]), run_driver(drivers[1]):
            await asyncio.sleep(5)
            engine.pings = 0
            await asyncio.sleep(120)
        assert engine.pings == 0

    run_virtual(Random(1), main)


@KINDS
@pytest.mark.parametrize("failure_threshold", [1, 3])
@pytest.mark.parametrize("hang_s", [1.5, 4.0, 12.0, 25.0])
@pytest.mark.parametrize("is_command_started", [False, True])
def test_an_engine_that_hangs_for_a_while_fails_no_probe(
    tmp_path: Path, kind: str, failure_threshold: int, hang_s: float, is_command_started: bool
) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        before = await driver.observe(ID)
        assert isinstance(before, MachineState)
        assert (before.phase, before.reason) == ("Running", "")
        if is_command_started:
            engine.hang_at_command = True
            while engine.hang_at_command:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        else:
            engine.set_hung(is_hung=True)
        reports = []
        for _ in range(round(hang_s / 0.5)):
            await asyncio.sleep(0.5)
            reports.append(await driver.observe(ID))
        engine.set_hung(is_hung=False)
        for _ in range(40):
            await asyncio.sleep(0.5)
            reports.append(await driver.observe(ID))
        assert all(report in (before, NOT_OBSERVED) for report in reports)
        assert reports[-1] == before
        assert stops(engine) == []

    probe = msgspec.structs.replace(EXEC, failure_threshold=failure_threshold)
    in_virtual_time(tmp_path, with_probe(kind, probe), story)


def test_a_command_that_hangs_while_the_engine_answers_fails_its_readiness(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        engine.hangs_commands = True
        await asyncio.sleep(20)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert (state.phase, state.reason) == ("Running", "NotReady")

    in_virtual_time(tmp_path, with_probe("readiness"), story)


def test_a_command_that_hangs_while_the_engine_answers_stops_its_container(tmp_path: Path) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        engine.hangs_commands = True
        await asyncio.sleep(20)
        assert len(stops(engine)) == 1

    in_virtual_time(tmp_path, with_probe("liveness"), story)


@pytest.mark.parametrize("after_s", [0.5, 10.0, 24.0])
def test_a_machine_is_unknown_30_s_after_the_last_answer_of_an_engine_that_hangs(
    tmp_path: Path, after_s: float
) -> None:
    """Not 30 s after a list failed: lists are rare, and take long to fail."""

    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        await asyncio.sleep(after_s)
        await engine.ping()
        engine.set_hung(is_hung=True)
        async with announcements(driver) as announced:
            await asyncio.sleep(OBSERVATION_DEADLINE_S - 1)
            state = await driver.observe(ID)
            assert state is NOT_OBSERVED
            assert announced == []
            await asyncio.sleep(3)
            state = await driver.observe(ID)
            assert isinstance(state, MachineState)
            assert state.phase == "Unknown"
            assert announced == [ID], "the machine is announced when the deadline passes"
            engine.set_hung(is_hung=False)
            await asyncio.sleep(5)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert state.phase == "Running"

    in_virtual_time(tmp_path, PLAIN, story)


class CrowdedEngine(Engine):
    """Answers every request ``delay_s`` after it got a slot."""

    def __init__(self, delay_s: float) -> None:
        super().__init__("unused")
        self.delay_s = delay_s

    @asynccontextmanager
    async def _request(self, *args: Any, timeout_s: float | None, **_: Any) -> AsyncIterator[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(self.delay_s)
        except TimeoutError:
            raise EngineTimeout("no response in time") from None
        yield args[1]

    async def _read_body(self, answer: Any) -> bytes:
        return b'{"Id": "command", "ExitCode": 0}'

    async def _chunks(self, answer: Any) -> AsyncGenerator[bytes, None]:
        yield await self._read_body(answer)


def test_the_timeout_of_a_command_does_not_include_the_wait_for_a_request_slot() -> None:
    async def main(_loop: VirtualLoop) -> None:
        engine = CrowdedEngine(delay_s=0.5)
        commands = (
            run_command(engine, "id", ["true"], 1.0) for _ in range(20 * CONCURRENT_REQUESTS_MAX)
        )
        codes = [code for code, _ in await asyncio.gather(*commands)]
        assert codes == [0] * 20 * CONCURRENT_REQUESTS_MAX

    run_virtual(Random(1), main)


async def test_a_ping_needs_no_request_slot() -> None:
    engine = CrowdedEngine(delay_s=0.0)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CONCURRENT_REQUESTS_MAX):
            await stack.enter_async_context(engine._request_slots)
        async with asyncio.timeout(20):
            await engine.ping()


class HalfHungEngine(MemoryEngine):
    """Accepts commands that never end, and answers no ping."""

    async def ping(self, timeout_s: float = PING_TIMEOUT_S) -> None:
        await asyncio.sleep(timeout_s)
        raise EngineTimeout("no response in time")


@KINDS
def test_a_timeout_does_not_count_if_the_engine_answers_no_ping_after_it(kind: str) -> None:
    verdicts: list[bool] = []

    async def receive(_machine: Machine, _name: str, is_good: bool, _failure: str) -> None:
        verdicts.append(is_good)

    async def main(_loop: VirtualLoop) -> None:
        engine = HalfHungEngine(OWNER)
        engine.hangs_commands = True
        inspected = {"app": InspectedContainer("app", "id", "running")}
        machine = Machine(ID, with_probe(kind), inspected=inspected)
        runner = ProbeRunner(engine, receive, receive, lambda: 2e9)
        async with asyncio.TaskGroup() as group:
            runner.begin(machine, group.create_task)
            await asyncio.sleep(100)
            runner.end(machine)
        assert machine.probe_results == {}

    run_virtual(Random(1), main)
    assert verdicts == []


@pytest.mark.parametrize("is_removed", [False, True])
def test_an_exit_without_an_event_is_detected_within_5_s(tmp_path: Path, is_removed: bool) -> None:
    async def story(driver: ContainersDriver, engine: MemoryEngine) -> None:
        for _ in range(5):
            assert isinstance(before := await driver.observe(ID), MachineState)
            assert before.phase == "Running"
            await asyncio.sleep(1.1)
        if is_removed:
            engine.containers.clear()
        else:
            engine.set_status(ID, "exited", exit_code=1)
        await asyncio.sleep(5)
        after = await driver.observe(ID)
        if is_removed:
            assert after is None
        else:
            assert isinstance(after, MachineState)
            assert after.phase == "Failed"

    in_virtual_time(tmp_path, PLAIN, story)


def test_machines_that_have_not_changed_are_not_inspected_every_time(tmp_path: Path) -> None:
    async def story(_driver: ContainersDriver, engine: MemoryEngine) -> None:
        engine.requests.clear()
        await asyncio.sleep(20)
        assert set(engine.requests) == {"GET /containers/json"}

    in_virtual_time(tmp_path, PLAIN, story)
