"""Draining: a machine is removed or suspended when it has no connections, or after the timeout."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from datum_compute.drivers.connections.draining import DRAIN_TIMEOUT_S, DrainingDriver
from datum_compute.drivers.driver import MachineState, TransientError
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from testkit.conformance.driver import SPEC

MACHINE_ID = "ns/web/1"


@dataclass(slots=True)
class Connections:
    """The open connections of one machine, and a clock."""

    now_s: float = 0.0
    open: int = 2
    drained: set[str] = field(default_factory=set)

    async def drain(self, machine_id: str) -> int:
        self.drained.add(machine_id)
        return self.open

    def end_drain(self, machine_id: str) -> None:
        self.drained.discard(machine_id)


async def start_machine(connections: Connections) -> DrainingDriver:
    inner = SimulatedDriver(MachineTable(), now=lambda: connections.now_s)
    driver = DrainingDriver(
        inner, connections.drain, connections.end_drain, lambda: connections.now_s
    )
    await driver.start(MACHINE_ID, SPEC)
    return driver


async def reported(driver: DrainingDriver) -> tuple[str, str, bool]:
    state = await driver.observe(MACHINE_ID)
    assert isinstance(state, MachineState)
    return state.phase, state.reason, state.is_suspended


async def test_a_machine_is_drained_first_and_removed_after_its_last_connection() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.remove(MACHINE_ID)
    assert connections.drained == {MACHINE_ID}
    assert await driver.observe(MACHINE_ID) is not None, "it has connections"
    connections.open = 0
    await driver.remove(MACHINE_ID)
    assert await driver.observe(MACHINE_ID) is None


async def test_a_machine_with_open_connections_is_removed_after_the_drain_timeout() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.remove(MACHINE_ID)
    connections.now_s = DRAIN_TIMEOUT_S
    await driver.remove(MACHINE_ID)
    assert await driver.observe(MACHINE_ID) is None


async def test_a_machine_is_drained_first_and_suspended_after_its_last_connection() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.suspend(MACHINE_ID)
    assert connections.drained == {MACHINE_ID}
    assert await reported(driver) == ("Stopped", "Stopping", True)
    assert isinstance(running := await driver.inner.observe(MACHINE_ID), MachineState)
    assert running.phase == "Running", "it has connections"
    connections.open = 0
    await driver.suspend(MACHINE_ID)
    assert isinstance(stopped := await driver.inner.observe(MACHINE_ID), MachineState)
    assert stopped.is_suspended


async def test_a_machine_with_open_connections_is_suspended_after_the_drain_timeout() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.suspend(MACHINE_ID)
    connections.now_s = DRAIN_TIMEOUT_S
    await driver.suspend(MACHINE_ID)
    assert await reported(driver) == ("Stopped", "Stopped", True)


async def test_a_machine_accepts_connections_when_it_is_resumed_while_it_is_drained() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.suspend(MACHINE_ID)
    await driver.resume(MACHINE_ID)
    assert connections.drained == set()
    assert await reported(driver) == ("Running", "", False)


async def test_a_resumed_machine_is_drained_again_when_it_is_suspended_again() -> None:
    connections = Connections()
    driver = await start_machine(connections)
    await driver.suspend(MACHINE_ID)
    connections.now_s = DRAIN_TIMEOUT_S
    await driver.suspend(MACHINE_ID)
    await driver.resume(MACHINE_ID)
    connections.now_s += 1
    assert await reported(driver) == ("Running", "", False)
    await driver.suspend(MACHINE_ID)
    assert await reported(driver) == ("Stopped", "Stopping", True)


async def test_a_machine_that_the_engine_cannot_suspend_is_drained_until_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(open=0)
    driver = await start_machine(connections)

    async def fail(_driver: object, _machine_id: str) -> None:
        raise TransientError("the engine does not respond")

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "suspend", fail)
        with pytest.raises(TransientError):
            await driver.suspend(MACHINE_ID)
    assert await reported(driver) == ("Stopped", "Stopping", True)
    await driver.resume(MACHINE_ID)
    assert connections.drained == set()
    assert await reported(driver) == ("Running", "", False)
