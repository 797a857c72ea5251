"""WorkQueue: deduplication, lanes, flows and delays."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.controller import Key
from datum_compute.runtime.queue import SHORT_DELAY_S, TICK_S, DelayTimers, WorkQueue
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.runtime.queue_taker import Taker


def a_key(name: str) -> Key:
    return Key(HUB, Ref("default", name))


def a_queue() -> WorkQueue:
    return WorkQueue(Random(1), Backoff(first_s=1, most_s=60))


def test_a_key_added_twice_is_queued_once() -> None:
    async def main(loop: VirtualLoop) -> int:
        queue = a_queue()
        queue.add(a_key("a"))
        queue.add(a_key("a"))
        return len(queue)

    assert run_virtual(Random(1), main) == 1


def test_a_key_added_while_in_flight_is_queued_again_when_it_is_done() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        queue = a_queue()
        queue.add(a_key("a"))
        key = queue.pop()
        assert key is not None
        queue.add(key)
        during = len(queue)
        queue.done(key)
        return during, len(queue)

    assert run_virtual(Random(1), main) == (0, 1)


def test_a_key_is_never_in_flight_twice() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        queue = a_queue()
        taker = Taker(queue)
        held: set[Key] = set()
        overlaps = worked = 0

        async def worker() -> None:
            nonlocal overlaps, worked
            while True:
                key = await taker.take()
                overlaps += key in held
                held.add(key)
                await asyncio.sleep(0.01)
                worked += 1
                held.discard(key)
                queue.done(key)

        workers = [loop.create_task(worker()) for _ in range(3)]
        for number in range(300):
            queue.add(a_key(str(number % 5)))
            await asyncio.sleep(0.003)
        await asyncio.sleep(5)
        for task in workers:
            task.cancel()
        return overlaps, worked

    overlaps, worked = run_virtual(Random(1), main)
    assert overlaps == 0
    assert worked > 100


def test_the_earliest_of_several_delays_applies() -> None:
    async def main(loop: VirtualLoop) -> float:
        queue = a_queue()
        queue.add_after(a_key("a"), 30)
        queue.add_after(a_key("a"), 5)
        queue.add_after(a_key("a"), 60)
        await Taker(queue).take()
        return loop.time()

    assert run_virtual(Random(1), main) == 5


def test_the_backoff_grows_and_is_reset_by_success() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        queue = a_queue()
        delays = [queue.retry(a_key("a")) for _ in range(4)]
        queue.forget(a_key("a"))
        return [*delays, queue.retry(a_key("a"))]

    first, second, third, fourth, again = run_virtual(Random(1), main)
    assert 0.5 <= first <= 1 <= second <= 2 <= third <= 4 <= fourth <= 8
    assert again <= 1


# --- lanes

ONE, TWO = cell_plane("one"), cell_plane("two")


def on(plane: PlaneName, name: str) -> Key:
    return Key(plane, Ref("", name))


def test_lanes_take_turns_independently_of_their_length() -> None:
    async def main(loop: VirtualLoop) -> list[PlaneName]:
        queue = a_queue()
        for number in range(100):
            queue.add(on(ONE, f"flood-{number}"))
        for number in range(3):
            queue.add(on(TWO, f"other-{number}"))
        popped = []
        for _ in range(8):
            key = queue.pop()
            assert key is not None
            popped.append(key.plane)
            queue.done(key)
        return popped

    assert run_virtual(Random(1), main) == [ONE, TWO, ONE, TWO, ONE, TWO, ONE, ONE]


def test_a_lane_has_at_most_lane_concurrency_keys_in_flight() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[Key | None], Key | None]:
        queue = WorkQueue(Random(1), Backoff(), lane_concurrency=2)
        for number in range(5):
            queue.add(on(ONE, str(number)))
        first = [queue.pop() for _ in range(3)]
        assert first[0] is not None
        queue.done(first[0])
        return first, queue.pop()

    (zero, one, none), two = run_virtual(Random(1), main)
    assert (zero, one, none, two) == (on(ONE, "0"), on(ONE, "1"), None, on(ONE, "2"))


def test_a_full_lane_rejects_offers_only() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[bool], int, float]:
        queue = WorkQueue(Random(1), Backoff(), lane_max=4)
        offered = [queue.offer(on(ONE, str(number))) for number in range(6)]
        offered.append(queue.offer(on(ONE, "0")))  # it is queued already
        offered.append(queue.offer(on(TWO, "0")))
        queue.add(on(ONE, "deleted"))
        depth = len(queue)

        def pop_all() -> None:
            while key := queue.pop():
                queue.done(key)

        loop.call_later(7, pop_all)
        await queue.wait_for_room(on(ONE, "5"))
        return offered, depth, loop.time()

    offered, depth, waited_s = run_virtual(Random(1), main)
    assert offered == [True] * 4 + [False] * 2 + [True, True]
    assert depth == 6
    assert waited_s == 7


def test_dropping_a_plane_removes_all_its_keys() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int, Key | None, Key | None]:
        queue = a_queue()
        held = on(ONE, "held")
        queue.add(held)
        assert queue.pop() == held
        for name in ("ready", "held"):
            queue.add(on(ONE, name))
        queue.add_after(on(ONE, "later"), 5)
        queue.retry(on(ONE, "failed"))
        queue.add(on(TWO, "other"))
        queue.drop_plane(ONE)
        queue.done(held)
        depth, delayed = len(queue), queue.delayed_count
        return depth, delayed, queue.pop(), queue.pop()

    assert run_virtual(Random(1), main) == (1, 0, on(TWO, "other"), None)


def test_oldest_s_is_the_age_of_the_oldest_ready_key() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        queue = a_queue()
        waits: list[float] = []
        queue.on_pop = waits.append
        ages = [queue.oldest_s()]
        queue.add(a_key("a"))
        await asyncio.sleep(3)
        queue.add(a_key("b"))
        queue.add(a_key("a"))
        ages.append(queue.oldest_s())
        queue.pop()
        ages.append(queue.oldest_s())
        return [*ages, *waits]

    assert run_virtual(Random(1), main) == [0, 3, 0, 3]


def test_a_key_without_a_plane_is_rejected() -> None:
    with pytest.raises(AssertionError, match="names no plane"):
        WorkQueue(Random(1), Backoff()).add(Key(PlaneName(""), Ref("default", "a")))


def of_project(namespace: str, name: str) -> Key:
    return Key(HUB, Ref(namespace, name))


def test_namespaces_of_a_lane_take_turns() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        queue = a_queue()
        for number in range(6):
            queue.add(of_project("ns-a", str(number)))
        for number in range(3):
            queue.add(of_project("ns-b", str(number)))
        popped = []
        while key := queue.pop():
            popped.append(f"{key.ref.namespace}/{key.ref.name}")
            queue.done(key)
        return popped

    popped = run_virtual(Random(1), main)
    assert popped[:6] == ["ns-a/0", "ns-b/0", "ns-a/1", "ns-b/1", "ns-a/2", "ns-b/2"]
    assert popped[6:] == ["ns-a/3", "ns-a/4", "ns-a/5"]


def test_a_key_that_is_added_repeatedly_does_not_delay_other_flows() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        queue = a_queue()
        for number in range(10):
            queue.add(of_project("ns-a", str(number)))
        hot, popped = of_project("ns-hot", "hot"), []
        for _ in range(10):
            queue.add(hot)
            key = queue.pop()
            assert key is not None
            popped.append(key.ref.namespace)
            queue.done(key)
        return popped

    popped = run_virtual(Random(1), main)
    assert popped.count("ns-hot") == popped.count("ns-a") == 5


def test_a_full_lane_accepts_keys_of_flows_below_their_share() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[bool], list[bool]]:
        queue = WorkQueue(Random(1), Backoff(), lane_max=10)
        flood = [queue.offer(of_project("ns-a", str(number))) for number in range(12)]
        return flood, [queue.offer(of_project("ns-b", str(number))) for number in range(7)]

    flood, others = run_virtual(Random(1), main)
    assert flood == [True] * 10 + [False] * 2
    assert others == [True] * 5 + [False] * 2


def test_keys_of_a_dropped_plane_leave_their_flows() -> None:
    async def main(loop: VirtualLoop) -> list[Key | None]:
        queue = WorkQueue(Random(1), Backoff(), lane_of=lambda _key: "one lane")
        gone, stays = on(ONE, "gone"), on(TWO, "stays")
        queue.add(gone)
        queue.add(stays)
        queue.drop_plane(ONE)
        queue.add(gone)
        first = queue.pop()
        return [first, queue.pop(), queue.pop()]

    assert run_virtual(Random(1), main) == [on(TWO, "stays"), on(ONE, "gone"), None]


def numbered_key(number: int) -> Key:
    return Key(HUB, Ref("default", f"k{number}"))


@given(st.lists(st.floats(0, 20), max_size=20))
def test_timers_enqueue_on_time(delays: list[float]) -> None:
    async def main(loop: VirtualLoop) -> dict[Key, float]:
        enqueued: dict[Key, float] = {}

        def enqueue(key: Key) -> None:
            enqueued[key] = loop.time()

        timers = DelayTimers(enqueue)
        for number, delay in enumerate(delays):
            timers.set(numbered_key(number), delay)
        await asyncio.sleep(30)
        assert len(timers) == 0
        return enqueued

    enqueued = run_virtual(Random(1), main)
    for number, delay in enumerate(delays):
        late_s = enqueued[numbered_key(number)] - delay
        assert -1e-6 <= late_s <= (TICK_S + 1e-6 if delay >= SHORT_DELAY_S else 1e-6)


def test_thousands_of_keys_in_one_second_need_few_timers() -> None:
    async def main(loop: VirtualLoop) -> int:
        timers = DelayTimers(lambda _key: None)
        for number in range(5000):
            timers.set(numbered_key(number), 300 + number / 5000)
        return len(timers._handles)

    assert run_virtual(Random(1), main) <= 12


def test_cancelled_timers_enqueue_nothing() -> None:
    async def main(loop: VirtualLoop) -> list[Key]:
        enqueued: list[Key] = []
        timers = DelayTimers(enqueued.append)
        other = Key(cell_plane("dfw"), Ref("default", "k"))
        for key in (numbered_key(1), numbered_key(2), other):
            timers.set(key, 5)
        timers.cancel(numbered_key(1))
        timers.cancel_plane(other.plane)
        await asyncio.sleep(10)
        return enqueued

    assert run_virtual(Random(1), main) == [numbered_key(2)]
