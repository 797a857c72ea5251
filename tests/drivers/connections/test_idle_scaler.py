"""Idle scaler: idle machines sleep, connections wake them, and no connection is lost."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.drivers.driver import MachineState
from datum_compute.ingress.balancer import BUSY_CONNECTIONS
from tests.ingress.simulated_world import BOOT_S, CELL, IDLE_S, STOP_S, World, run_in_world

MODES: tuple[SleepMode, ...] = ("pause", "stop")
EACH_MODE = pytest.mark.parametrize("mode", MODES)


@EACH_MODE
def test_an_idle_machine_sleeps_and_the_next_connection_wakes_it(mode: SleepMode) -> None:
    async def story(world: World) -> tuple[list[bool], list[bool], str, list[bool]]:
        await asyncio.sleep(IDLE_S - 1)
        early = await world.which_sleep()
        await asyncio.sleep(2)
        late = await world.which_sleep()
        return early, late, await world.visit(), await world.which_sleep()

    assert run_in_world(story, mode) == ([False], [True], "ns/web-0/1", [False])


def test_the_idle_timer_starts_when_the_last_connection_ends() -> None:
    async def story(world: World) -> list[list[bool]]:
        await world.visit(stays_s=3 * IDLE_S)
        await asyncio.sleep(IDLE_S - 1)
        before = await world.which_sleep()
        await asyncio.sleep(2)
        return [before, await world.which_sleep()]

    assert run_in_world(story) == [[False], [True]]


@EACH_MODE
def test_many_connections_at_once_wake_a_machine_once(mode: SleepMode) -> None:
    async def story(world: World) -> tuple[set[str], list[str]]:
        await asyncio.sleep(IDLE_S + 1)
        world.calls.clear()
        served = await asyncio.gather(*(world.visit(1.0) for _ in range(BUSY_CONNECTIONS)))
        return set(served), world.calls

    assert run_in_world(story, mode, machines=2) == ({"ns/web-0/1"}, ["called"])


@pytest.mark.parametrize("late_s", [0.0, STOP_S / 2, STOP_S, STOP_S + BOOT_S / 2])
def test_a_connection_is_served_that_arrives_while_its_machine_is_put_to_sleep(
    late_s: float,
) -> None:
    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + late_s)
        return await world.visit()

    assert run_in_world(story) == "ns/web-0/1"


@pytest.mark.parametrize("seed", range(20))
def test_no_connection_is_lost_at_any_time_of_arrival(seed: int) -> None:
    async def story(world: World) -> set[str]:
        async def connect_later(number: int) -> str:
            await asyncio.sleep(IDLE_S * (number % 5) + 0.07 * number)
            return await world.visit(stays_s=0.3 * (number % 3))

        return set(await asyncio.gather(*(connect_later(number) for number in range(40))))

    assert "" not in run_in_world(story, MODES[seed % 2], machines=2, seed=seed)


def test_a_machine_that_recovers_from_a_crash_is_ready_for_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def observe(_machine_id: str) -> MachineState:
        return MachineState("Failed", "InstanceCrashing", is_recovering=True)

    async def story(world: World) -> bool:
        monkeypatch.setattr(world.driver, "observe", observe)
        return await world.idle_scaler.is_ready(CELL, world.ids[0])

    assert run_in_world(story)


@EACH_MODE
def test_a_restarted_process_lets_machines_sleep_and_wakes_them_on_demand(
    mode: SleepMode,
) -> None:
    async def story(world: World) -> tuple[list[bool], str]:
        await asyncio.sleep(IDLE_S + 1)
        world.start_process()
        await world.publish()
        await asyncio.sleep(2 * IDLE_S)
        return await world.which_sleep(), await world.visit()

    assert run_in_world(story, mode) == ([True], "ns/web-0/1")


def test_an_open_connection_keeps_a_machine_awake_that_is_temporarily_no_backend() -> None:
    async def story(world: World) -> bool:
        visiting = asyncio.create_task(world.visit(stays_s=4 * IDLE_S))
        await asyncio.sleep(1)
        world.balancer.set_backends(world.port, ())
        world.balancer.keep_only([world.port])
        await asyncio.sleep(1)
        await world.publish()
        return bool(await visiting)  # visit() asserts that the machine is awake

    assert run_in_world(story)
