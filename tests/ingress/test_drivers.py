"""Draining: a machine is removed when it has no connections, or after the drain timeout."""

from __future__ import annotations

from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.ingress.drivers import DRAIN_TIMEOUT_S, DrainingDriver
from testkit.conformance.driver import SPEC


async def test_a_machine_is_drained_first_and_removed_after_its_last_connection() -> None:
    now_s, open_connections = 0.0, {"ns/web/1": 2}
    drained: list[str] = []

    def drain(machine_id: str) -> int:
        drained.append(machine_id)
        return open_connections.get(machine_id, 0)

    inner = SimulatedDriver(MachineTable(), now=lambda: now_s)
    driver = DrainingDriver(inner, drain, lambda: now_s)
    await driver.start("ns/web/1", SPEC)
    await driver.remove("ns/web/1")
    assert drained == ["ns/web/1"]
    assert await driver.observe("ns/web/1") is not None, "it has connections"
    open_connections.clear()
    await driver.remove("ns/web/1")
    assert await driver.observe("ns/web/1") is None


async def test_a_machine_with_open_connections_is_removed_after_the_drain_timeout() -> None:
    now_s = 0.0
    inner = SimulatedDriver(MachineTable(), now=lambda: now_s)
    driver = DrainingDriver(inner, lambda _machine: 1, lambda: now_s)
    await driver.start("ns/web/1", SPEC)
    await driver.remove("ns/web/1")
    now_s = DRAIN_TIMEOUT_S
    await driver.remove("ns/web/1")
    assert await driver.observe("ns/web/1") is None
