"""Adopted machines are reported when they have been observed, and restarted when they ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from datum_compute.api.compute.instance import ContainerPort, ExecAction, Probe, TcpSocket
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.drivers.containers.container_spec import (
    ContainerPlan,
    MachinePlan,
)
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.machine import MachineRecord
from datum_compute.drivers.driver import (
    NOT_OBSERVED,
    OBSERVATION_DEADLINE_S,
    MachineState,
)
from tests.drivers.containers.memory_engine import MemoryEngine
from tests.drivers.containers.test_driver import (
    HOST,
    ID,
    OWNER,
    PLAIN,
    UNIX_S,
    Clock,
    a_driver,
    run_driver,
)
from tests.stream_servers import close_at_once, serve_tcp


def plan_with_probe(probe: Probe) -> MachinePlan:
    container = ContainerPlan(name="app", image="web:1", readiness=probe)
    return MachinePlan(containers=[container], addresses=[HOST])


async def first_report(driver: ContainersDriver) -> MachineState:
    """Return the first observation that is not NOT_OBSERVED."""
    async with asyncio.timeout(20):
        while not isinstance(state := await driver.observe(ID), MachineState):
            assert state is NOT_OBSERVED
            await asyncio.sleep(0.01)
    return state


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
