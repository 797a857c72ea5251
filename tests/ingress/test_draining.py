"""A machine is stopped when nobody is connected to it any more, or has had its time."""

from __future__ import annotations

from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.ingress.drivers import DRAIN_S, DrainingDriver
from testkit.conformance.driver import SPEC


async def test_a_machine_is_taken_out_at_once_and_stopped_when_its_connections_have_ended() -> None:
    now_s, left = 0.0, {"ns/web/1": 2}
    taken: list[str] = []

    def take_out(machine_id: str) -> int:
        taken.append(machine_id)
        return left.get(machine_id, 0)

    inner = SimulatedDriver(MachineTable(), now=lambda: now_s)
    driver = DrainingDriver(inner, take_out, lambda: now_s)
    await driver.start("ns/web/1", SPEC)
    await driver.remove("ns/web/1")
    assert taken == ["ns/web/1"]
    assert await driver.observe("ns/web/1") is not None, "somebody is connected"
    left.clear()
    await driver.remove("ns/web/1")
    assert await driver.observe("ns/web/1") is None


async def test_connections_that_never_end_hold_nothing_up_for_ever() -> None:
    now_s = 0.0
    inner = SimulatedDriver(MachineTable(), now=lambda: now_s)
    driver = DrainingDriver(inner, lambda _machine: 1, lambda: now_s)
    await driver.start("ns/web/1", SPEC)
    await driver.remove("ns/web/1")
    now_s = DRAIN_S
    await driver.remove("ns/web/1")
    assert await driver.observe("ns/web/1") is None
