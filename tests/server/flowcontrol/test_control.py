"""Turns on an event loop. Only the work of a test advances the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from datum_compute.api.errors import TooManyRequests
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol.control import (
    BYPASS_S,
    RESUME_S,
    SLICE_S,
    TURN_S,
    FlowControl,
    FlowLimits,
    LoopWork,
    filter_in_turns,
    map_in_turns,
    run_measured,
    stopped_clock,
)
from datum_compute.server.flowcontrol.fair_queue import ANONYMOUS, SYSTEM, USERS

ANN, BOB = User("ann"), User("bob")
ROOT = User("root", ("system:masters",))
MANAGER = User("system:compute-manager")
PROJECT = PlaneName("project/a")
WRITE_S = 0.0003


@dataclass
class Loop:
    """A control, its clock, and who has ended when."""

    limits: FlowLimits = field(default_factory=lambda: FlowLimits(rejection_delay_s=0))
    now_s: float = 0.0
    ended: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.control = FlowControl(lambda: self.now_s, self.limits)

    def start(
        self, user: User | None, plane: str, cost_s: float = WRITE_S, *, size_bytes: int = 0
    ) -> asyncio.Task[None]:
        async def request(work: LoopWork) -> None:
            work.flow = self.control.flow_of(user, PlaneName(plane))
            await self.control.admit(work, size_bytes)
            self.now_s += cost_s
            self.ended.append((user.name if user else "", self.now_s))

        return asyncio.create_task(self.run(request))

    async def run(self, request: Callable[[LoopWork], Coroutine[Any, Any, None]]) -> None:
        work = LoopWork(self.control)
        await run_measured(work, request(work))

    def place(self, name: str) -> int:
        """How many requests had ended before the last one of a user."""
        return max(n for n, (user, _) in enumerate(self.ended) if user == name)


async def outcomes(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def runs_at_once(coroutine: Coroutine[Any, Any, None]) -> bool:
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


async def test_a_request_runs_at_once_while_nothing_waits() -> None:
    control = FlowControl(stopped_clock)
    work = LoopWork(control, control.flow_of(ANN, PROJECT))
    assert runs_at_once(control.admit(work))


async def test_a_clock_that_stands_still_turns_waiting_off() -> None:
    control = FlowControl(stopped_clock)
    work = LoopWork(control, control.flow_of(ANN, PROJECT))
    for _ in range(1000):
        work.start()
        work.stop()
        assert runs_at_once(control.admit(work))


async def test_ten_thousand_requests_of_a_project_delay_another_by_a_turn() -> None:
    loop = Loop(FlowLimits(flow_requests_max=20_000, level_requests_max=20_000))
    flood = [loop.start(ANN, "project/a") for _ in range(10_000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    before = len(loop.ended)
    await loop.start(BOB, "project/b")
    # Only the work that the current turn had admitted has ended.
    assert loop.place("bob") - before <= TURN_S / WRITE_S + 1
    assert len(loop.control) > 9000
    await outcomes(flood)
    assert len(loop.ended) == 10_001


async def test_each_of_many_requests_of_a_quiet_project_overtakes_the_flood() -> None:
    loop = Loop(FlowLimits(flow_requests_max=5000))
    flood = [loop.start(ANN, "project/a") for _ in range(3000)]
    await asyncio.sleep(0)
    for _ in range(50):
        before = len(loop.ended)
        await loop.start(BOB, "project/b")
        assert loop.place("bob") - before <= 2 * TURN_S / WRITE_S + 2
    await outcomes(flood)


async def test_an_earlier_request_of_a_quiet_user_does_not_delay_the_next_one() -> None:
    """Most of the work of the flood is not charged, because nothing waits while it runs."""
    loop = Loop()
    for _ in range(10):
        flood = [loop.start(ANN, "project/a", TURN_S * share) for share in (0.95, 0.05)]
        quiet = loop.start(BOB, "project/b", TURN_S * 0.1)
        await asyncio.sleep(0)
        assert quiet.done()
        await outcomes(flood)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_the_controllers_come_before_a_crowd_of_users() -> None:
    loop = Loop()
    crowd = [loop.start(User(f"user-{n}"), f"project/{n}") for n in range(500)]
    await asyncio.sleep(0)
    manager = [loop.start(MANAGER, "hub") for _ in range(50)]
    await outcomes(manager)
    # Weights of 60 to 30: while all 50 are served, about 25 users are.
    assert loop.place("system:compute-manager") < 50 + 25 + BYPASS_S / WRITE_S + 10
    await outcomes(crowd)


async def test_masters_never_wait() -> None:
    loop = Loop()
    flood = [loop.start(ANN, "project/a") for _ in range(200)]
    await asyncio.sleep(0)
    assert loop.control.flow_of(ROOT, PROJECT) is None
    work = LoopWork(loop.control)
    assert runs_at_once(loop.control.admit(work))
    await outcomes(flood)


async def test_a_turn_ends_after_a_limited_time() -> None:
    """Between two turns the loop handles what else is ready; here a probe that counts them."""
    loop = Loop()
    flood = [loop.start(ANN, "project/a") for _ in range(200)]
    passes: list[float] = []
    while not all(task.done() for task in flood):
        passes.append(loop.now_s)
        await asyncio.sleep(0)
    used = [after - before for before, after in pairwise(passes)]
    # In the first pass the flow has used nothing yet, so it may bypass the queue.
    assert max(used[2:]) <= TURN_S + 2 * WRITE_S


@pytest.mark.parametrize("cost_s", [0.0001, 0.0002, SLICE_S])
async def test_a_turn_admits_no_work_that_would_exceed_its_time(cost_s: float) -> None:
    loop = Loop()
    flood = [loop.start(ANN, "project/a", cost_s) for _ in range(200)]
    used: list[float] = []
    while not all(task.done() for task in flood):
        before_s = loop.now_s
        await asyncio.sleep(0)
        used.append(loop.now_s - before_s)
    # In the first turns the estimate is not yet the cost.
    assert max(used[20:]) <= TURN_S
    assert sum(used) == pytest.approx(200 * cost_s)


async def test_long_work_yields_after_a_slice() -> None:
    loop = Loop()
    item_s = 0.0001

    def convert(item: int) -> int:
        loop.now_s += item_s
        return item

    async def long_list(work: LoopWork) -> None:
        work.flow = loop.control.flow_of(ANN, PROJECT)
        assert await map_in_turns(work, convert, range(200)) == list(range(200))
        assert await filter_in_turns(work, convert, range(200)) == list(range(1, 200))
        loop.ended.append(("ann", loop.now_s))

    listing = asyncio.create_task(loop.run(long_list))
    passes: list[float] = []
    while not listing.done():
        passes.append(loop.now_s)
        await asyncio.sleep(0)
    used = [after - before for before, after in pairwise([*passes, loop.now_s])]
    assert max(used) <= SLICE_S + item_s
    assert sum(used) == pytest.approx(0.04)


async def test_long_work_of_an_exempt_user_yields_too() -> None:
    loop = Loop()

    def convert(item: int) -> int:
        loop.now_s += SLICE_S
        return item

    async def long_list(work: LoopWork) -> None:
        await map_in_turns(work, convert, range(40))

    listing = asyncio.create_task(loop.run(long_list))
    passes = 0
    while not listing.done():
        passes += 1
        await asyncio.sleep(0)
    assert passes > 4


async def test_parts_of_a_request_take_turns_with_others() -> None:
    loop = Loop()

    async def part() -> None:
        loop.now_s += WRITE_S

    async def collection(work: LoopWork) -> None:
        work.flow = loop.control.flow_of(ANN, PROJECT)
        await asyncio.gather(*(work.run_part(part()) for _ in range(500)))
        loop.ended.append(("ann", loop.now_s))

    deletion = asyncio.create_task(loop.run(collection))
    for _ in range(3):
        await asyncio.sleep(0)
    await loop.start(BOB, "project/b")
    assert loop.place("bob") == 0
    await deletion
    assert loop.control.counts[USERS].work_s == pytest.approx(501 * WRITE_S)


async def test_too_many_waiting_requests_of_a_flow_are_rejected() -> None:
    loop = Loop(FlowLimits(flow_requests_max=10, retry_after_s=3, rejection_delay_s=0))
    flood = [loop.start(ANN, "project/a", cost_s=BYPASS_S) for _ in range(30)]
    other = loop.start(BOB, "project/a")
    found = await outcomes(flood)
    rejected = [error for error in found if error is not None]
    assert 15 <= len(rejected) <= 20
    for error in rejected:
        assert isinstance(error, TooManyRequests)
        assert error.retry_after_s == 3
        assert 'user "ann" already has 10 requests waiting on plane "project/a"' in str(error)
    await other
    assert loop.control.counts[USERS].rejected["queue-full"] == len(rejected)


async def test_the_bodies_of_waiting_requests_are_limited() -> None:
    loop = Loop(FlowLimits(flow_bytes_max=1000, rejection_delay_s=0))
    flood = [loop.start(ANN, "project/a", BYPASS_S, size_bytes=400) for _ in range(10)]
    found = await outcomes(flood)
    rejected = [error for error in found if error is not None]
    assert len(rejected) >= 6
    assert 'the requests of user "ann" that wait on plane "project/a"' in str(rejected[0])
    assert await outcomes([loop.start(ANN, "project/a", BYPASS_S, size_bytes=900)]) == [None]


async def test_a_full_level_rejects_the_newest_request_of_the_flow_with_most_waiting() -> None:
    loop = Loop(FlowLimits(level_requests_max=20, rejection_delay_s=0))
    flood = [loop.start(ANN, "project/a", cost_s=BYPASS_S) for _ in range(40)]
    crowd = [loop.start(User(f"u{n}"), f"project/{n}", cost_s=BYPASS_S) for n in range(10)]
    assert await outcomes(crowd) == [None] * 10
    rejected = [error for error in await outcomes(flood) if error is not None]
    assert len(rejected) >= 20
    assert loop.control.counts[USERS].rejected["level-full"] == len(rejected)
    assert len(loop.control) == 0


async def test_a_request_that_waited_too_long_is_rejected() -> None:
    loop = Loop(FlowLimits(wait_max_s=-1.0, rejection_delay_s=0))
    found = await outcomes([loop.start(ANN, "project/a", cost_s=BYPASS_S) for _ in range(5)])
    assert sum(isinstance(error, TooManyRequests) for error in found) >= 3
    assert loop.control.counts[USERS].rejected["time-out"] >= 3


async def test_a_rejection_is_held_back() -> None:
    """A client that ignores Retry-After cannot make the server reject all the time."""
    loop = Loop(FlowLimits(flow_requests_max=0, rejection_delay_s=0.01))
    first = loop.start(ANN, "project/a", cost_s=BYPASS_S)
    second = loop.start(ANN, "project/a")
    await first
    for _ in range(3):
        await asyncio.sleep(0)
        assert not second.done()
    assert isinstance((await outcomes([second]))[0], TooManyRequests)


async def test_a_cancelled_request_leaves_the_queue_without_charge() -> None:
    loop = Loop()
    flood = [loop.start(ANN, "project/a", cost_s=BYPASS_S) for _ in range(20)]
    await asyncio.sleep(0)
    for task in flood[5:]:
        task.cancel()
    found = await outcomes(flood)
    assert [isinstance(error, asyncio.CancelledError) for error in found[5:]] == [True] * 15
    assert len(loop.ended) == 5
    await asyncio.sleep(0)
    assert len(loop.control) == 0


async def test_requests_without_credentials_share_the_smallest_part() -> None:
    loop = Loop()
    anonymous = [loop.start(None, "platform") for _ in range(200)]
    await asyncio.sleep(0)
    users = [loop.start(User(f"u{n}"), f"project/{n}") for n in range(100)]
    await outcomes(users)
    assert loop.control.waiting(ANONYMOUS) > 100
    await outcomes(anonymous)
    assert loop.control.counts[ANONYMOUS].work_s == pytest.approx(200 * WRITE_S)


async def test_only_time_on_the_loop_is_charged() -> None:
    loop = Loop()
    commit = asyncio.Event()

    async def write(work: LoopWork) -> None:
        work.flow = loop.control.flow_of(ANN, PROJECT)
        loop.now_s += 0.002
        await commit.wait()
        loop.now_s += 0.001

    writing = asyncio.create_task(loop.run(write))
    await asyncio.sleep(0)
    loop.now_s += 100.0
    commit.set()
    await writing
    assert loop.control.counts[USERS].work_s == pytest.approx(0.003)


async def test_an_error_or_a_cancellation_passes_through_measured_work() -> None:
    control = FlowControl(stopped_clock)
    cleaned = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    with pytest.raises(ValueError, match="broken"):
        await run_measured(LoopWork(control), failing())

    async def measured() -> None:
        await run_measured(LoopWork(control), waiting())

    task = asyncio.create_task(measured())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closed = measured()
    closed.send(None)
    closed.close()
    assert cleaned == ["up", "up"]


async def test_requests_that_a_commit_wakes_together_continue_in_turns() -> None:
    loop, commit = Loop(), asyncio.get_running_loop().create_future()
    continued_s: list[float] = []  # work done in each pass of the event loop

    async def request(work: LoopWork, user: User) -> None:
        work.flow = loop.control.flow_of(user, PROJECT)
        await commit
        loop.now_s += WRITE_S
        continued_s[-1] += WRITE_S

    async def count_passes() -> None:
        while True:
            continued_s.append(0.0)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_passes())
    requests = [asyncio.create_task(loop.run(partial(request, user=ANN))) for _ in range(200)]
    manager = asyncio.create_task(loop.run(partial(request, user=MANAGER)))
    await asyncio.sleep(0)
    commit.set_result(None)
    await manager
    assert sum(continued_s) <= RESUME_S + 2 * WRITE_S, "the platform does not wait"
    await asyncio.gather(*requests)
    counting.cancel()
    assert max(continued_s) <= RESUME_S + TURN_S + WRITE_S
    assert sum(continued_s) == pytest.approx(201 * WRITE_S)


async def test_every_estimate_that_is_charged_is_replaced_with_the_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second request waits twice: to begin, and because the first one used up the turn."""
    loop = Loop()
    queue = loop.control._queue
    charged_s, replaced_s = dict.fromkeys(("ann", "bob"), 0.0), dict.fromkeys(("ann", "bob"), 0.0)
    pop, settle = queue.pop, queue.settle

    def record_pop() -> Any:
        found = pop()
        if found is not None:
            charged_s[found[0].user] += found[0].estimate_s
        return found

    def record_settle(flow: Any, estimate_s: float, cost_s: float) -> None:
        replaced_s[flow.user] += estimate_s
        settle(flow, estimate_s, cost_s)

    monkeypatch.setattr(queue, "pop", record_pop)
    monkeypatch.setattr(queue, "settle", record_settle)
    requests = [loop.start(ANN, PROJECT, BYPASS_S), loop.start(ANN, PROJECT, RESUME_S)]
    requests += [loop.start(BOB, PROJECT, BYPASS_S), loop.start(BOB, PROJECT)]
    await asyncio.gather(*requests)
    assert charged_s["bob"] > 2 * WRITE_S, "nothing waited twice"
    assert replaced_s == pytest.approx(charged_s)


async def test_a_request_that_is_cancelled_while_it_waits_to_continue_ends() -> None:
    loop, commit = Loop(), asyncio.get_running_loop().create_future()
    ended: list[str] = []

    async def request(work: LoopWork) -> None:
        work.flow = loop.control.flow_of(ANN, PROJECT)
        try:
            await commit
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        loop.now_s += RESUME_S
        ended.append("continued")

    tasks = [asyncio.create_task(loop.run(request)) for _ in range(2)]
    await asyncio.sleep(0)
    commit.set_result(None)
    await asyncio.sleep(0)
    assert ended == ["continued"]
    tasks[1].cancel()
    await outcomes(tasks)
    assert ended == ["continued", "cancelled"]


async def test_watches_of_users_take_turns_and_those_of_the_platform_do_not_wait() -> None:
    loop = Loop()
    own = LoopWork(loop.control, loop.control.flow_of(ANN, PROJECT))
    manager = LoopWork(loop.control, loop.control.flow_of(MANAGER, PROJECT))
    assert own.can_stream()
    for work in (own, manager):
        work.start()
        loop.now_s += 2 * BYPASS_S
        work.stop()
    assert not own.can_stream()
    assert manager.can_stream()
    assert loop.control.counts[USERS].work_s == pytest.approx(2 * BYPASS_S)
    assert loop.control.counts[SYSTEM].work_s == pytest.approx(2 * BYPASS_S)
    await own.wait_to_stream()
    assert own.can_stream()


async def test_the_limits_of_one_user_do_not_apply_to_controllers() -> None:
    limits = FlowLimits(flow_requests_max=3, flow_bytes_max=10, wait_max_s=-1, rejection_delay_s=0)
    loop = Loop(limits)
    requests = [loop.start(MANAGER, "hub", BYPASS_S, size_bytes=100) for _ in range(20)]
    assert await outcomes(requests) == [None] * 20


async def test_watches_that_wait_for_a_turn_do_not_count_as_requests() -> None:
    loop = Loop(FlowLimits(flow_requests_max=5, level_requests_max=5, rejection_delay_s=0))
    works = [LoopWork(loop.control, loop.control.flow_of(ANN, PROJECT)) for _ in range(50)]

    async def stream(work: LoopWork) -> None:
        await work.wait_to_stream()
        work.start()
        loop.now_s += WRITE_S
        work.stop()

    streams = [asyncio.create_task(stream(work)) for work in works]
    await asyncio.sleep(0)
    request = loop.start(ANN, PROJECT)
    assert await outcomes([request]) == [None]
    await asyncio.gather(*streams)
    assert loop.control.waiting(USERS) == 0
