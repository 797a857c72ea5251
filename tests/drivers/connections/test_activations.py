"""Activations: the recorded duration or failure of a wake."""

from __future__ import annotations

import asyncio

from datum_compute.ingress.balancer import HOLD_S
from tests.ingress.simulated_world import BOOT_S, IDLE_S, STOP_S, World, run_in_world


def test_a_wake_is_recorded_as_failed_when_the_machine_does_not_accept_in_time() -> None:
    async def story(world: World) -> tuple[str, bool, str]:
        await asyncio.sleep(IDLE_S + 1)
        world.accepts, started_s = False, world.loop.time()
        served = await world.visit()
        (wake,) = world.wakes
        return served, world.loop.time() - started_s <= HOLD_S + 0.01, wake.failure

    served, in_time, failure = run_in_world(story)
    assert (served, in_time) == ("", True)
    assert failure == "it did not accept connections on port 80"


def test_the_recorded_failure_of_a_wake_names_that_the_machine_is_gone() -> None:
    """The machine is no backend of a port when it is removed."""

    async def story(world: World) -> str:
        await asyncio.sleep(IDLE_S + 1)
        world.accepts = False
        visiting = asyncio.create_task(world.visit())
        await asyncio.sleep(BOOT_S + 1)
        world.balancer.set_backends(world.port, ())
        world.balancer.keep_only([world.port])
        await world.driver.remove(world.ids[0])
        await visiting
        (wake,) = world.wakes
        return wake.failure

    assert run_in_world(story) == "its machine is gone"


def test_a_recorded_wake_contains_the_duration_of_each_part() -> None:
    async def story(world: World) -> tuple[int, ...]:
        await asyncio.sleep(IDLE_S + STOP_S / 2)  # it is being stopped
        await world.visit()
        (wake,) = world.wakes
        return (wake.queue_milliseconds, wake.engine_milliseconds, wake.first_byte_milliseconds)

    assert run_in_world(story) == (round(1000 * STOP_S / 2), round(1000 * BOOT_S), 0)
