"""Leader election: at most one leader despite network faults, clock skew and suspensions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from datum_compute.api.core import Lease
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import LEASE, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, path_prefix
from datum_compute.client.client import Client
from datum_compute.runtime.leader_election import (
    REMINDER_INTERVAL_S,
    Election,
    FencedTransport,
    LeadershipLost,
    LeaseConfig,
    NotLeading,
    check_all,
    lead_all,
)
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace

REF = Ref("default", "compute-manager")
MARGIN_S = 2.0


@dataclass(frozen=True)
class Faults:
    """Faults of one request."""

    lost_before: bool = False
    lost_after: bool = False
    there_s: float = 0.0
    back_s: float = 0.0


@dataclass
class Process:
    """A candidate with its own clock and network. ``running`` is cleared to suspend it."""

    loop: VirtualLoop
    planes: InProcessPlanes
    name: str
    rate: float = 1.0
    offset_s: float = 0.0
    ref: Ref = REF
    retry_s: float = 2.0
    running: asyncio.Event = field(default_factory=asyncio.Event)
    faults: Callable[[], Faults] = Faults
    writes: list[float] = field(default_factory=list)
    led: int = 0

    def __post_init__(self) -> None:
        self.running.set()
        config = LeaseConfig(self.ref, self.name, retry_s=self.retry_s, margin_s=MARGIN_S)
        self.election = Election(
            Client(self, prefix=path_prefix(HUB), token="token", agent=self.name),
            config,
            clock=self.clock,
            unix_s=self.clock,
            random=Random(self.name),
        )

    def clock(self) -> float:
        return self.loop.time() * self.rate + self.offset_s

    async def send(self, request: Request) -> Response:
        faults = self.faults()
        await self.running.wait()
        if faults.lost_before:
            raise Unreachable("the request was lost")
        await asyncio.sleep(faults.there_s)
        response = await self.planes._dispatch(request)
        await asyncio.sleep(faults.back_s)
        await self.running.wait()
        if faults.lost_after:
            raise Unreachable("the response was lost")
        return response

    async def work(self) -> None:
        """Write whenever the fence allows it, until cancelled."""
        self.led += 1
        while True:
            await self.running.wait()
            try:
                self.election.fence.check()
            except NotLeading:
                pass
            else:
                self.writes.append(self.loop.time())
            await asyncio.sleep(0.1)

    async def lead_repeatedly(self) -> None:
        while True:
            try:
                await self.election.lead(self.work)
            except LeadershipLost:
                continue


Test = Callable[[VirtualLoop, InProcessPlanes], Coroutine[Any, Any, None]]


def run_election(test: Test, seed: int = 1) -> None:
    async def main(loop: VirtualLoop) -> None:
        planes = InProcessPlanes(loop)
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("default"))
        await test(loop, planes)

    run_virtual(Random(seed), main)


def test_a_candidate_without_responses_logs_it_and_is_not_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one", faults=lambda: Faults(lost_before=True))
        task = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(REMINDER_INTERVAL_S * 2.5)
        assert (
            one.election.not_ready_reason == "lease default/compute-manager has not been read yet"
        )
        warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert len(warnings) == 3, "at the start and every minute"
        assert "default/compute-manager" in warnings[0]
        assert "the request was lost" in warnings[0]
        one.faults = Faults
        await asyncio.sleep(5)
        assert one.election.not_ready_reason == ""
        assert one.led == 1
        task.cancel()

    run_election(test)


async def get_lease(planes: InProcessPlanes, ref: Ref = REF) -> Lease:
    return await planes.client().get(LEASE, ref)


def test_the_first_candidate_leads_and_is_the_holder_in_the_lease() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        for process in (one, two):
            loop.create_task(process.election.lead(process.work))
        await asyncio.sleep(60)
        leaders = [p for p in (one, two) if p.election.fence.is_up]
        assert len(leaders) == 1
        assert [p.led for p in (one, two) if p not in leaders] == [0]
        spec = (await get_lease(planes)).spec
        assert spec.holder_identity == leaders[0].name
        assert (spec.lease_duration_seconds, spec.lease_transitions) == (15, 0)
        assert spec.renew_time is not None
        assert spec.acquire_time is not None
        assert spec.renew_time > spec.acquire_time

    run_election(test)


def test_a_leader_that_stops_releases_the_lease_after_its_work_ended() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        first = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(30)
        first.cancel()
        await asyncio.wait([first])
        stopped_s = loop.time()
        assert not one.election.fence.is_up
        assert (await get_lease(planes)).spec.holder_identity == ""
        await asyncio.sleep(5)
        assert two.election.fence.is_up
        assert two.writes[0] >= stopped_s >= one.writes[-1]
        assert (await get_lease(planes)).spec.lease_transitions == 1

    run_election(test)


def test_another_holder_in_the_lease_takes_the_fence_down_before_the_work_ends() -> None:
    """An operator changed the holder. Work that does not end at once must not write."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one")
        fence_at_end: list[bool] = []

        async def work() -> None:
            try:
                await one.work()
            finally:
                fence_at_end.append(one.election.fence.is_up)

        leading = loop.create_task(one.election.lead(work))
        await asyncio.sleep(5)
        await planes.client().patch(LEASE, REF, {"spec": {"holderIdentity": "another"}})
        await asyncio.wait([leading], timeout=10)
        assert isinstance(leading.exception(), LeadershipLost)
        assert fence_at_end == [False]

    run_election(test)


def test_a_leader_without_network_stops_before_another_starts() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        first = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(30)
        one.faults = lambda: Faults(lost_before=True)
        await asyncio.wait([first])
        assert isinstance(first.exception(), LeadershipLost)
        assert two.writes == []
        await asyncio.sleep(30)
        assert two.writes[0] > one.writes[-1]

    run_election(test)


def test_a_leader_suspended_beyond_its_lease_writes_nothing_when_it_resumes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        first = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(20)
        one.running.clear()
        suspended_s = loop.time()
        await asyncio.sleep(120)
        one.running.set()
        await asyncio.wait([first])
        assert isinstance(first.exception(), LeadershipLost)
        assert one.writes[-1] <= suspended_s
        assert two.writes[0] > suspended_s + 10
        assert (await get_lease(planes)).spec.holder_identity == "two", "the lease stays with two"

    run_election(test)


def test_the_fence_is_checked_for_writes_and_not_for_reads() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one")
        fenced = Client(
            FencedTransport(one, one.election.fence.check),
            prefix=path_prefix(HUB),
            token="token",
            agent="work",
        )
        assert [n.metadata.name for n in (await fenced.list(NAMESPACE)).items] == ["default"]
        with pytest.raises(NotLeading):
            await fenced.create(NAMESPACE, a_namespace("early"))
        leading = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        await fenced.create(NAMESPACE, a_namespace("allowed"))
        one.running.clear()
        await asyncio.sleep(15)
        one.running.set()
        with pytest.raises(NotLeading):
            await fenced.delete(NAMESPACE, Ref("", "allowed"))
        leading.cancel()

    run_election(test)


def test_clocks_may_be_hours_apart() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one", offset_s=-7200.0)
        two = Process(loop, planes, "two", offset_s=7200.0)
        loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(600)
        assert two.led == 0

    run_election(test)


@pytest.mark.parametrize("back_s", [0.0, 2.0])
def test_the_fence_of_a_suspended_leader_is_down_before_another_is_up(back_s: float) -> None:
    """Worst case: the clock of the old leader is slow, that of the new one fast.

    The old leader does not run after its response arrived, so it cannot detect the loss itself.
    """

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        slow = Process(loop, planes, "slow", rate=0.95)
        fast = Process(loop, planes, "fast", rate=1.05, retry_s=0.1)
        slow.faults = lambda: Faults(back_s=back_s)
        taking = loop.create_task(slow.election._take_or_renew())
        await asyncio.sleep(1.5 * back_s + 0.01)  # the write is done, the response is in flight
        loop.create_task(fast.election.lead(fast.work))
        assert await taking
        assert slow.election.fence.is_up
        for _ in range(400):
            await asyncio.sleep(0.05)
            assert not (slow.election.fence.is_up and fast.election.fence.is_up)
        assert fast.election.fence.is_up

    run_election(test)


def test_a_lease_that_is_not_renewed_is_taken_over_after_its_duration() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        one.running.clear()  # killed
        killed_s = loop.time()
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(60)
        assert 15 <= two.writes[0] - killed_s <= 15 + 2 * 2.4

    run_election(test)


def test_lead_all_works_only_while_it_holds_all_leases() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        a, b = Ref("default", "a"), Ref("default", "b")
        other = Process(loop, planes, "other", ref=b)
        other_task = loop.create_task(other.election.lead(other.work))
        await asyncio.sleep(1)
        processes = [Process(loop, planes, "one", ref=ref) for ref in (a, b)]
        elections = [process.election for process in processes]
        check = check_all(e.fence for e in elections)
        leading = loop.create_task(lead_all(elections, processes[0].work))
        await asyncio.sleep(60)
        assert processes[0].led == 0
        with pytest.raises(NotLeading):
            check()
        other_task.cancel()
        await asyncio.sleep(5)
        assert processes[0].led == 1
        check()
        leading.cancel()
        await asyncio.wait([leading])
        for ref in (a, b):
            assert (await get_lease(planes, ref)).spec.holder_identity == ""

    run_election(test)


def test_work_that_fails_ends_the_leadership_with_its_own_error() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one")

        async def fail() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await one.election.lead(fail)
        assert (await get_lease(planes)).spec.holder_identity == ""

    run_election(test)


@pytest.mark.parametrize("seed", range(12))
def test_two_fences_are_never_up_and_one_process_leads_without_faults(seed: int) -> None:
    random = Random(f"leaders-{seed}")
    has_faults = True

    def faults() -> Faults:
        if not has_faults:
            return Faults()
        draw = random.random()
        there_s, back_s = (random.choice((0.0, 0.0, 0.05, 1.0, 3.0)) for _ in range(2))
        return Faults(draw < 0.1, draw > 0.9, there_s, back_s)

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        nonlocal has_faults
        processes = [
            Process(
                loop,
                planes,
                f"p{number}",
                rate=random.uniform(0.95, 1.05),
                offset_s=random.uniform(-1e5, 1e5),
                retry_s=random.choice((0.2, 2.0)),
                faults=faults,
            )
            for number in range(4)
        ]
        for process in processes:
            loop.create_task(process.lead_repeatedly())
        for _ in range(2000):
            await asyncio.sleep(0.1)
            up = [p.name for p in processes if p.election.fence.is_up]
            assert len(up) <= 1, f"two lead at {loop.time():.1f} s: {up}"
            if random.random() < 0.02:
                suspended = random.choice(processes)
                suspended.running.clear()
                loop.call_later(random.uniform(1, 40), suspended.running.set)
        has_faults = False
        await asyncio.sleep(90)
        leaders = [p for p in processes if p.election.fence.is_up]
        assert len(leaders) == 1
        await asyncio.sleep(60)
        assert leaders[0].election.fence.is_up, "the leader stays"
        writes = [(at, p.name) for p in processes for at in p.writes]
        assert len(writes) > 100

    run_election(test, seed)
