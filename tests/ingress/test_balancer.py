"""Load balancer: the order in which machines are chosen for a connection."""

from __future__ import annotations

import asyncio

from datum_compute.ingress.balancer import BUSY_CONNECTIONS, HOLD_S
from tests.ingress.simulated_world import IDLE_S, STOP_S, World, run_in_world


def test_an_awake_machine_is_chosen_before_a_sleeping_one() -> None:
    async def story(world: World) -> tuple[list[str], list[bool]]:
        await asyncio.sleep(IDLE_S + 1)
        served = [await world.visit() for _ in range(5)]
        return sorted(set(served)), await world.which_sleep()

    assert run_in_world(story, machines=3) == (["ns/web-0/1"], [False, True, True])


def test_a_further_machine_is_woken_when_all_awake_machines_are_busy() -> None:
    async def story(world: World) -> tuple[list[bool], list[bool]]:
        await asyncio.sleep(IDLE_S + 1)
        few = [asyncio.create_task(world.visit(5.0)) for _ in range(BUSY_CONNECTIONS)]
        await asyncio.sleep(1)
        busy = await world.which_sleep()
        await world.visit()
        await asyncio.sleep(1)
        more = await world.which_sleep()
        await asyncio.gather(*few)
        return busy, more

    assert run_in_world(story, machines=3) == ([False, True, True], [False, False, True])


def test_a_connection_does_not_wait_for_the_first_observation_of_an_adopted_machine() -> None:
    async def story(world: World) -> tuple[str, float]:
        world.adopt(adoption_s=2 * HOLD_S)
        await world.publish()
        arrived_s = world.loop.time()
        return await world.visit(), world.loop.time() - arrived_s

    served_by, took_s = run_in_world(story)
    assert served_by == "ns/web-0/1"
    assert took_s < 1.0  # virtual time


def test_a_connection_is_served_by_another_machine_when_its_own_is_removed() -> None:
    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + 1)
        await world.driver.remove(world.ids[0])
        await asyncio.sleep(STOP_S)
        return await world.visit()

    assert run_in_world(story, machines=2) == "ns/web-1/1"
