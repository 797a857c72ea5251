"""Keys that wait for long share timers, and none of them comes up too early."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, cell_plane
from datum_compute.runtime.key import Key
from datum_compute.runtime.timers import SHORT_S, TICK_S, DelayTimers
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual


def a_key(number: int) -> Key:
    return Key(HUB, Ref("default", f"k{number}"))


@given(st.lists(st.floats(0, 20), max_size=20))
def test_everybody_comes_up_in_time(delays: list[float]) -> None:
    async def main(loop: VirtualLoop) -> dict[Key, float]:
        woken: dict[Key, float] = {}

        def wake(key: Key) -> None:
            woken[key] = loop.time()

        timers = DelayTimers(wake)
        for number, delay in enumerate(delays):
            timers.set(a_key(number), delay)
        await asyncio.sleep(30)
        assert len(timers) == 0
        return woken

    woken = run_virtual(Random(1), main)
    for number, delay in enumerate(delays):
        late_s = woken[a_key(number)] - delay
        assert -1e-6 <= late_s <= (TICK_S + 1e-6 if delay >= SHORT_S else 1e-6)


def test_thousands_that_wait_for_the_same_second_need_few_timers() -> None:
    async def main(loop: VirtualLoop) -> int:
        timers = DelayTimers(lambda _key: None)
        for number in range(5000):
            timers.set(a_key(number), 300 + number / 5000)
        return len(timers._handles)

    assert run_virtual(Random(1), main) <= 12


def test_what_is_cancelled_or_dropped_does_not_come_up() -> None:
    async def main(loop: VirtualLoop) -> list[Key]:
        woken: list[Key] = []
        timers = DelayTimers(woken.append)
        other = Key(cell_plane("dfw"), Ref("default", "k"))
        for key in (a_key(1), a_key(2), other):
            timers.set(key, 5)
        timers.cancel(a_key(1))
        timers.drop(other.plane)
        await asyncio.sleep(10)
        return woken

    assert run_virtual(Random(1), main) == [a_key(2)]
