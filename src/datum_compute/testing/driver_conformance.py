"""What every driver must do. A driver's test hands over the driver and a way to let time pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from datum_compute.api.instance import Container
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.driver import Driver, MachineState

SPEC = ServerSpec(
    instance_type="datumcloud/d1-standard-2",
    template_hash="abc",
    containers=[Container(name="app", image="web:1")],
)

Settle = Callable[[], Awaitable[None]]


async def check_a_machine_starts_once(driver: Driver, settle: Settle) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    first = await driver.observe("ns/web-0/1")
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    assert await driver.machines() == ["ns/web-0/1"]
    assert await driver.observe("ns/web-0/1") == first, "starting again changed a running machine"
    assert isinstance(first, MachineState)
    assert first.phase == "Running"
    assert first.started_at
    assert first.addresses


async def check_a_machine_goes_and_stays_gone(driver: Driver, settle: Settle) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    await driver.remove("ns/web-0/1")
    await settle()
    assert await driver.observe("ns/web-0/1") is None
    await driver.remove("ns/web-0/1")
    assert await driver.machines() == []


async def check_machines_do_not_share_addresses(driver: Driver, settle: Settle) -> None:
    for number in range(3):
        await driver.start(f"ns/web-{number}/1", SPEC)
    await settle()
    states = [await driver.observe(f"ns/web-{n}/1") for n in range(3)]
    addresses = [state.addresses for state in states if state is not None]
    assert len(set(addresses)) == 3


async def check_changes_are_announced(driver: Driver, settle: Settle) -> None:
    news = driver.changes()
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    assert await anext(aiter(news)) == "ns/web-0/1"


CHECKS = (
    check_a_machine_starts_once,
    check_a_machine_goes_and_stays_gone,
    check_machines_do_not_share_addresses,
    check_changes_are_announced,
)
