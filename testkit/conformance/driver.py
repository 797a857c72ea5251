"""Conformance checks for drivers.

The tests of a driver pass the driver and a function that lets time pass. A driver that adopts
machines also passes a function that starts its next process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec, machine_fingerprint
from datum_compute.drivers.driver import NOT_OBSERVED, Driver, DriverError, MachineState

SPEC = ServerSpec(
    instance_type="datumcloud/d1-standard-2",
    template_hash="abc",
    containers=[Container(name="app", image="web:1")],
)

MODES: tuple[SleepMode, ...] = ("pause", "stop")
Settle = Callable[[], Awaitable[None]]
# Ends the driver's process and returns the driver of the next process, for the same machines.
Adopt = Callable[[], Awaitable[Driver]]
ADOPTION_S = 20.0


async def check_a_machine_starts_once(driver: Driver, settle: Settle) -> None:
    """A second start of the same machine changes nothing."""
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


async def check_a_machine_reports_the_fingerprint_of_its_spec(
    driver: Driver, settle: Settle
) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    other = [Container(name="app", image="web:2")]
    await driver.start("ns/web-0/1", msgspec.structs.replace(SPEC, containers=other))
    await settle()
    state = await driver.observe("ns/web-0/1")
    assert isinstance(state, MachineState)
    assert state.spec_fingerprint == machine_fingerprint(SPEC)


async def check_a_removed_machine_stays_absent(driver: Driver, settle: Settle) -> None:
    """A removed machine is reported as absent, and a second removal succeeds."""
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
    addresses = [state.addresses for state in states if isinstance(state, MachineState)]
    assert len(set(addresses)) == 3


async def check_changes_are_announced(driver: Driver, settle: Settle) -> None:
    """``changes`` yields the id of a machine that started and stopped."""
    changes = driver.changes()
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    await driver.remove("ns/web-0/1")
    await settle()
    assert await anext(aiter(changes)) == "ns/web-0/1"


async def check_a_machine_sleeps_until_it_is_woken(driver: Driver, settle: Settle) -> None:
    """Neither a start nor a second sleep wakes a machine; a wake keeps its restart count."""
    async for machine_id, mode, restarts in _sleeping_machines(driver, settle):
        assert await _phase(driver, machine_id) == "Sleeping"
        await driver.sleep(machine_id, mode)
        await driver.start(machine_id, SPEC)
        await settle()
        assert await _phase(driver, machine_id) == "Sleeping", "a start or a sleep has woken it"
        assert await driver.wake(machine_id) >= 0
        await settle()
        after = await driver.observe(machine_id)
        assert isinstance(after, MachineState)
        assert (after.phase, after.reason, after.restarts) == ("Running", "", restarts)
        assert await driver.wake(machine_id) == 0, "the machine was awake already"


async def check_concurrent_wakes_wake_a_machine_once(driver: Driver, settle: Settle) -> None:
    """At most one call wakes the machine; the others find it awake or wait until it is."""
    async for machine_id, _, _ in _sleeping_machines(driver, settle):
        await asyncio.gather(*(driver.wake(machine_id) for _ in range(5)))
        await settle()
        assert await _phase(driver, machine_id) == "Running"


async def check_a_wake_is_not_lost_while_falling_asleep(driver: Driver, settle: Settle) -> None:
    async for machine_id, mode, _ in _sleeping_machines(driver, settle):
        await asyncio.gather(driver.wake(machine_id), driver.sleep(machine_id, mode))
        await driver.wake(machine_id)
        await settle()
        assert await _phase(driver, machine_id) == "Running"


async def check_a_sleeping_machine_can_be_removed(driver: Driver, settle: Settle) -> None:
    async for machine_id, _, _ in _sleeping_machines(driver, settle):
        await driver.remove(machine_id)
        await settle()
        assert await driver.observe(machine_id) is None


async def check_a_missing_machine_cannot_be_woken(driver: Driver, settle: Settle) -> None:
    await driver.sleep("ns/missing/1", "pause")
    try:
        await driver.wake("ns/missing/1")
    except DriverError:
        return
    raise AssertionError("a missing machine was woken")


async def check_a_suspended_machine_is_stopped_until_it_is_resumed(
    driver: Driver, settle: Settle
) -> None:
    """Its end is no crash, neither a start nor a second suspension changes it, and it returns.

    A driver that cannot keep a stopped machine reports it as absent. The caller then starts it.
    """
    machine_id = "ns/web-0/1"
    await driver.start(machine_id, SPEC)
    await settle()
    before = await driver.observe(machine_id)
    assert isinstance(before, MachineState)
    for _ in range(2):
        await driver.suspend(machine_id)
        await settle()
        await _expect_stopped(driver, machine_id, before)
    if await driver.observe(machine_id) is not None:
        await driver.start(machine_id, SPEC)
        await settle()
        await _expect_stopped(driver, machine_id, before)
        assert await driver.machines() == [machine_id]
    for _ in range(2):
        await driver.resume(machine_id)
        if await driver.observe(machine_id) is None:
            await driver.start(machine_id, SPEC)
        await settle()
    after = await driver.observe(machine_id)
    assert isinstance(after, MachineState)
    assert (after.phase, after.reason, after.is_suspended) == ("Running", "", False)
    assert after.restarts == before.restarts, "a suspension counts as a restart"
    assert await driver.machines() == [machine_id]


async def _expect_stopped(driver: Driver, machine_id: str, before: MachineState) -> None:
    state = await driver.observe(machine_id)
    if state is None:
        return
    assert isinstance(state, MachineState)
    assert (state.phase, state.reason, state.is_suspended) == ("Stopped", "Stopped", True)
    assert state.restarts == before.restarts
    # An engine reports no address of a stopped machine if it chose the address itself. The status
    # of the Server keeps it.
    assert state.addresses in (before.addresses, ())


async def check_a_suspended_machine_can_be_removed(driver: Driver, settle: Settle) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    await driver.suspend("ns/web-0/1")
    await driver.remove("ns/web-0/1")
    await settle()
    assert await driver.observe("ns/web-0/1") is None
    await driver.suspend("ns/web-0/1")
    await driver.resume("ns/web-0/1")
    assert await driver.machines() == []


async def check_a_suspended_machine_refuses_to_wake(driver: Driver, settle: Settle) -> None:
    """Neither a machine that slept nor one that was awake wakes. After that it runs as before."""
    async for machine_id, mode, restarts in _sleeping_machines(driver, settle):
        await driver.suspend(machine_id)
        await settle()
        try:
            await driver.wake(machine_id)
        except DriverError:
            pass
        else:
            raise AssertionError("a suspended machine was woken")
        await driver.sleep(machine_id, mode)
        assert await _phase(driver, machine_id) == "Stopped"
        await driver.resume(machine_id)
        await settle()
        state = await driver.observe(machine_id)
        assert isinstance(state, MachineState)
        assert (state.phase, state.reason, state.restarts) == ("Running", "", restarts)


async def check_an_adopted_machine_stays_suspended(
    driver: Driver, settle: Settle, adopt: Adopt
) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    before = await driver.observe("ns/web-0/1")
    assert isinstance(before, MachineState)
    await driver.suspend("ns/web-0/1")
    await settle()
    adopted = await adopt()
    async with asyncio.timeout(ADOPTION_S):
        while await adopted.observe("ns/web-0/1") is NOT_OBSERVED:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await settle()
    await _expect_stopped(adopted, "ns/web-0/1", before)


async def _sleeping_machines(
    driver: Driver, settle: Settle
) -> AsyncIterator[tuple[str, SleepMode, int]]:
    """Yield one sleeping machine for each sleep mode, with its restart count before it slept."""
    for mode in MODES:
        machine_id = f"ns/web-{mode}/1"
        await driver.start(machine_id, SPEC)
        await settle()
        running = await driver.observe(machine_id)
        assert isinstance(running, MachineState)
        await driver.sleep(machine_id, mode)
        yield machine_id, mode, running.restarts


async def _phase(driver: Driver, machine_id: str) -> str:
    state = await driver.observe(machine_id)
    if state is None:
        return "gone"
    return state.phase if isinstance(state, MachineState) else state.value


async def check_an_adopted_machine_reports_nothing_until_it_was_observed(
    driver: Driver, settle: Settle, adopt: Adopt
) -> None:
    """An adopted machine is NOT_OBSERVED until it is observed; its state is then as before."""
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    before = await driver.observe("ns/web-0/1")
    assert isinstance(before, MachineState)
    adopted = await adopt()
    assert await adopted.machines() == ["ns/web-0/1"]
    async with asyncio.timeout(ADOPTION_S):
        while (after := await adopted.observe("ns/web-0/1")) is NOT_OBSERVED:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert after == before, "the first report after the adoption is no observation"


async def check_an_adopted_machine_can_be_removed_at_once(
    driver: Driver, settle: Settle, adopt: Adopt
) -> None:
    await driver.start("ns/web-0/1", SPEC)
    await settle()
    adopted = await adopt()
    await adopted.remove("ns/web-0/1")
    await settle()
    assert await adopted.observe("ns/web-0/1") is None


LIFE = (
    check_a_machine_starts_once,
    check_a_machine_reports_the_fingerprint_of_its_spec,
    check_a_removed_machine_stays_absent,
    check_machines_do_not_share_addresses,
    check_changes_are_announced,
    check_a_suspended_machine_is_stopped_until_it_is_resumed,
    check_a_suspended_machine_can_be_removed,
)
# Additional checks for drivers that can put machines to sleep.
SLEEP = (
    check_a_machine_sleeps_until_it_is_woken,
    check_concurrent_wakes_wake_a_machine_once,
    check_a_wake_is_not_lost_while_falling_asleep,
    check_a_sleeping_machine_can_be_removed,
    check_a_missing_machine_cannot_be_woken,
    check_a_suspended_machine_refuses_to_wake,
)
CHECKS = LIFE + SLEEP
ADOPTION = (
    check_an_adopted_machine_reports_nothing_until_it_was_observed,
    check_an_adopted_machine_can_be_removed_at_once,
    check_an_adopted_machine_stays_suspended,
)
