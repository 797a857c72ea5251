"""Who is idle sleeps, who is asked for wakes, and no connection is lost in between."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.ingress.balancer import BUSY_AT, HOLD_S
from tests.ingress.sleeping_world import BOOT_S, IDLE_S, STOP_S, World, in_world

MODES: tuple[SleepMode, ...] = ("pause", "stop")
EACH_MODE = pytest.mark.parametrize("mode", MODES)


@EACH_MODE
def test_a_machine_without_connections_sleeps_and_the_next_one_wakes_it(mode: SleepMode) -> None:
    async def story(world: World) -> tuple[list[bool], list[bool], str, list[bool]]:
        await asyncio.sleep(IDLE_S - 1)
        early = await world.asleep()
        await asyncio.sleep(2)
        late = await world.asleep()
        return early, late, await world.visit(), await world.asleep()

    assert in_world(story, mode) == ([False], [True], "ns/web-0/1", [False])


def test_a_connection_keeps_its_machine_awake_and_the_clock_begins_when_it_ends() -> None:
    async def story(world: World) -> list[list[bool]]:
        await world.visit(stays_s=3 * IDLE_S)
        await asyncio.sleep(IDLE_S - 1)
        before = await world.asleep()
        await asyncio.sleep(2)
        return [before, await world.asleep()]

    assert in_world(story) == [[False], [True]]


@EACH_MODE
def test_many_first_connections_wake_a_machine_once(mode: SleepMode) -> None:
    async def story(world: World) -> tuple[set[str], list[str]]:
        await asyncio.sleep(IDLE_S + 1)
        world.calls.clear()
        served = await asyncio.gather(*(world.visit(1.0) for _ in range(BUSY_AT)))
        return set(served), world.calls

    assert in_world(story, mode, machines=2) == ({"ns/web-0/1"}, ["asked"])


@pytest.mark.parametrize("late_s", [0.0, STOP_S / 2, STOP_S, STOP_S + BOOT_S / 2])
def test_a_connection_that_comes_as_its_machine_falls_asleep_is_served(late_s: float) -> None:
    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + late_s)
        return await world.visit()

    assert in_world(story) == "ns/web-0/1"


@pytest.mark.parametrize("seed", range(20))
def test_no_connection_is_lost_whenever_it_comes(seed: int) -> None:
    async def story(world: World) -> set[str]:
        async def visitor(number: int) -> str:
            await asyncio.sleep(IDLE_S * (number % 5) + 0.07 * number)
            return await world.visit(stays_s=0.3 * (number % 3))

        return set(await asyncio.gather(*(visitor(number) for number in range(40))))

    assert "" not in in_world(story, MODES[seed % 2], machines=2, seed=seed)


def test_one_that_is_awake_is_asked_before_one_that_sleeps() -> None:
    async def story(world: World) -> tuple[list[str], list[bool]]:
        await asyncio.sleep(IDLE_S + 1)
        served = [await world.visit() for _ in range(5)]
        return sorted(set(served)), await world.asleep()

    assert in_world(story, machines=3) == (["ns/web-0/1"], [False, True, True])


def test_when_all_that_are_awake_are_busy_one_more_is_woken() -> None:
    async def story(world: World) -> tuple[list[bool], list[bool]]:
        await asyncio.sleep(IDLE_S + 1)
        few = [asyncio.create_task(world.visit(5.0)) for _ in range(BUSY_AT)]
        await asyncio.sleep(1)
        busy = await world.asleep()
        await world.visit()
        await asyncio.sleep(1)
        more = await world.asleep()
        await asyncio.gather(*few)
        return busy, more

    assert in_world(story, machines=3) == ([False, True, True], [False, False, True])


@EACH_MODE
def test_a_process_that_starts_anew_leaves_sleepers_asleep_and_wakes_them(mode: SleepMode) -> None:
    async def story(world: World) -> tuple[list[bool], str]:
        await asyncio.sleep(IDLE_S + 1)
        world.begin()
        await world.publish()
        await asyncio.sleep(2 * IDLE_S)
        return await world.asleep(), await world.visit()

    assert in_world(story, mode) == ([True], "ns/web-0/1")


def test_a_connection_does_not_wait_for_the_first_observation_of_an_adopted_machine() -> None:
    async def story(world: World) -> tuple[str, float]:
        world.adopt(adoption_s=2 * HOLD_S)
        await world.publish()
        arrived_s = world.loop.time()
        return await world.visit(), world.loop.time() - arrived_s

    served_by, took_s = in_world(story)
    assert served_by == "ns/web-0/1"
    assert took_s < 1.0  # virtual time


def test_a_connection_outlives_that_its_machine_was_not_ready_for_a_while() -> None:
    async def story(world: World) -> bool:
        visiting = asyncio.create_task(world.visit(stays_s=4 * IDLE_S))
        await asyncio.sleep(1)
        world.balance.set_backends(world.port, ())
        world.balance.keep_only([world.port])
        await asyncio.sleep(1)
        await world.publish()
        return bool(await visiting)  # it complains if its machine sleeps

    assert in_world(story)


def test_one_that_does_not_serve_is_given_up_in_time_and_that_is_on_record() -> None:
    async def story(world: World) -> tuple[str, bool, str]:
        await asyncio.sleep(IDLE_S + 1)
        world.answers, began_s = False, world.loop.time()
        served = await world.visit()
        (wake,) = world.wakes
        return served, world.loop.time() - began_s <= HOLD_S + 0.01, wake.failure

    served, in_time, failure = in_world(story)
    assert (served, in_time) == ("", True)
    assert failure == "it did not accept connections on port 80"


def test_one_that_fails_after_it_was_woken_is_told_by_its_own_end() -> None:
    """By then it is nobody's backend any more."""

    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + 1)
        world.answers = False
        visiting = asyncio.create_task(world.visit())
        await asyncio.sleep(BOOT_S + 1)
        world.balance.set_backends(world.port, ())
        world.balance.keep_only([world.port])
        await world.driver.remove(world.ids[0])
        await visiting
        (wake,) = world.wakes
        return wake.failure

    assert in_world(story) == "its machine is gone"


def test_a_machine_that_goes_instead_of_waking_costs_nobody_his_connection() -> None:
    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + 1)
        await world.driver.remove(world.ids[0])
        await asyncio.sleep(STOP_S)
        return await world.visit()

    assert in_world(story, machines=2) == "ns/web-1/1"


def test_where_the_time_went_is_on_record() -> None:
    async def story(world: World) -> tuple[int, ...]:
        await asyncio.sleep(IDLE_S + STOP_S / 2)  # it is just being stopped
        await world.visit()
        (wake,) = world.wakes
        return (wake.queue_milliseconds, wake.engine_milliseconds, wake.first_byte_milliseconds)

    assert in_world(story) == (round(1000 * STOP_S / 2), round(1000 * BOOT_S), 0)
