"""One leader at a time: by lease, by fence, whatever network, clocks and pauses do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import LEASE, NAMESPACE
from datum_compute.api.lease import Lease
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, path_prefix
from datum_compute.client.client import Client
from datum_compute.runtime.leader_election import (
    REMIND_S,
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
    """What befalls one request."""

    lost_before: bool = False
    lost_after: bool = False
    there_s: float = 0.0
    back_s: float = 0.0


@dataclass
class Process:
    """A candidate on a machine of its own: its clock, its network, and whether it runs at all."""

    loop: VirtualLoop
    planes: InProcessPlanes
    name: str
    rate: float = 1.0
    offset_s: float = 0.0
    ref: Ref = REF
    every_s: float = 2.0
    running: asyncio.Event = field(default_factory=asyncio.Event)
    faults: Callable[[], Faults] = Faults
    writes: list[float] = field(default_factory=list)
    led: int = 0

    def __post_init__(self) -> None:
        self.running.set()
        terms = LeaseConfig(self.ref, self.name, every_s=self.every_s, margin_s=MARGIN_S)
        self.election = Election(
            Client(self, prefix=path_prefix(HUB), token="token", agent=self.name),
            terms,
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
            raise Unreachable("the answer was lost")
        return response

    async def work(self) -> None:
        """Writes as often as the fence lets it; ends only when told to."""
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

    async def lead_again_and_again(self) -> None:
        while True:
            try:
                await self.election.lead(self.work)
            except LeadershipLost:
                continue


Story = Callable[[VirtualLoop, InProcessPlanes], Coroutine[Any, Any, None]]


def tell(story: Story, seed: int = 1) -> None:
    async def main(loop: VirtualLoop) -> None:
        planes = InProcessPlanes(loop)
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("default"))
        await story(loop, planes)

    run_virtual(Random(seed), main)


def test_a_candidate_that_is_not_answered_says_so_and_is_not_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one", faults=lambda: Faults(lost_before=True))
        task = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(REMIND_S * 2.5)
        assert (
            one.election.not_ready_reason == "lease default/compute-manager has not been read yet"
        )
        told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert len(told) == 3, "when it begins, and every minute"
        assert "default/compute-manager" in told[0]
        assert "the request was lost" in told[0]
        one.faults = Faults
        await asyncio.sleep(5)
        assert one.election.not_ready_reason == ""
        assert one.led == 1
        task.cancel()

    tell(story)


async def the_lease(planes: InProcessPlanes, ref: Ref = REF) -> Lease:
    return await planes.client().get(LEASE, ref)


def test_the_first_candidate_leads_and_says_so_in_the_lease() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        for process in (one, two):
            loop.create_task(process.election.lead(process.work))
        await asyncio.sleep(60)
        leaders = [p for p in (one, two) if p.election.fence.is_up]
        assert len(leaders) == 1
        assert [p.led for p in (one, two) if p not in leaders] == [0]
        spec = (await the_lease(planes)).spec
        assert spec.holder_identity == leaders[0].name
        assert (spec.lease_duration_seconds, spec.lease_transitions) == (15, 0)
        assert spec.renew_time is not None
        assert spec.acquire_time is not None
        assert spec.renew_time > spec.acquire_time

    tell(story)


def test_a_leader_that_stops_ends_its_work_gives_the_lease_back_and_another_follows_soon() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        first = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(30)
        first.cancel()
        await asyncio.wait([first])
        stopped_s = loop.time()
        assert not one.election.fence.is_up
        assert (await the_lease(planes)).spec.holder_identity == ""
        await asyncio.sleep(5)
        assert two.election.fence.is_up
        assert two.writes[0] >= stopped_s >= one.writes[-1]
        assert (await the_lease(planes)).spec.lease_transitions == 1

    tell(story)


def test_a_leader_that_sees_another_in_its_lease_has_its_fence_down_before_its_work_ends() -> None:
    """Somebody gave the lease away by hand; work that does not end at once must not write on."""

    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one")
        fence_at_the_end: list[bool] = []

        async def work() -> None:
            try:
                await one.work()
            finally:
                fence_at_the_end.append(one.election.fence.is_up)

        leading = loop.create_task(one.election.lead(work))
        await asyncio.sleep(5)
        await planes.client().patch(LEASE, REF, {"spec": {"holderIdentity": "another"}})
        await asyncio.wait([leading], timeout=10)
        assert isinstance(leading.exception(), LeadershipLost)
        assert fence_at_the_end == [False]

    tell(story)


def test_a_leader_without_network_stops_working_before_another_begins() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
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

    tell(story)


def test_a_leader_that_was_paused_past_its_lease_writes_nothing_when_it_wakes() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        first = loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(20)
        one.running.clear()
        paused_s = loop.time()
        await asyncio.sleep(120)
        one.running.set()
        await asyncio.wait([first])
        assert isinstance(first.exception(), LeadershipLost)
        assert one.writes[-1] <= paused_s
        assert two.writes[0] > paused_s + 10
        assert (await the_lease(planes)).spec.holder_identity == "two", "one took nothing back"

    tell(story)


def test_the_fence_is_checked_for_writes_and_not_for_reads() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
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
        await fenced.create(NAMESPACE, a_namespace("timely"))
        one.running.clear()
        await asyncio.sleep(15)
        one.running.set()
        with pytest.raises(NotLeading):
            await fenced.delete(NAMESPACE, Ref("", "timely"))
        leading.cancel()

    tell(story)


def test_clocks_that_are_hours_apart_change_nothing() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one", offset_s=-7200.0)
        two = Process(loop, planes, "two", offset_s=7200.0)
        loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(600)
        assert two.led == 0

    tell(story)


@pytest.mark.parametrize("back_s", [0.0, 2.0])
def test_the_fence_of_a_frozen_leader_is_down_before_another_is_up(back_s: float) -> None:
    """The worst that clocks may do: the old leader's is slow, the new one's fast. Nothing runs in
    the old one after its answer came, not even what would notice that the lease is lost."""

    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        slow = Process(loop, planes, "slow", rate=0.95)
        fast = Process(loop, planes, "fast", rate=1.05, every_s=0.1)
        slow.faults = lambda: Faults(back_s=back_s)
        taking = loop.create_task(slow.election._attempt())
        await asyncio.sleep(1.5 * back_s + 0.01)  # it is written, and not yet answered
        loop.create_task(fast.election.lead(fast.work))
        assert await taking
        assert slow.election.fence.is_up
        for _ in range(400):
            await asyncio.sleep(0.05)
            assert not (slow.election.fence.is_up and fast.election.fence.is_up)
        assert fast.election.fence.is_up

    tell(story)


def test_a_lease_that_nobody_renews_is_taken_over_after_its_whole_duration() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one, two = (Process(loop, planes, name) for name in ("one", "two"))
        loop.create_task(one.election.lead(one.work))
        await asyncio.sleep(1)
        one.running.clear()  # killed: it never wakes
        began_s = loop.time()
        loop.create_task(two.election.lead(two.work))
        await asyncio.sleep(60)
        assert 15 <= two.writes[0] - began_s <= 15 + 2 * 2.4

    tell(story)


def test_a_process_that_needs_several_leases_works_only_while_it_holds_all() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        a, b = Ref("default", "a"), Ref("default", "b")
        other = Process(loop, planes, "other", ref=b)
        busy = loop.create_task(other.election.lead(other.work))
        await asyncio.sleep(1)
        parts = [Process(loop, planes, "one", ref=ref) for ref in (a, b)]
        elections = [part.election for part in parts]
        check = check_all(e.fence for e in elections)
        leading = loop.create_task(lead_all(elections, parts[0].work))
        await asyncio.sleep(60)
        assert parts[0].led == 0
        with pytest.raises(NotLeading):
            check()
        busy.cancel()
        await asyncio.sleep(5)
        assert parts[0].led == 1
        check()
        leading.cancel()
        await asyncio.wait([leading])
        for ref in (a, b):
            assert (await the_lease(planes, ref)).spec.holder_identity == ""

    tell(story)


def test_work_that_fails_ends_the_leadership_with_its_own_error() -> None:
    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        one = Process(loop, planes, "one")

        async def broken() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await one.election.lead(broken)
        assert (await the_lease(planes)).spec.holder_identity == ""

    tell(story)


@pytest.mark.parametrize("seed", range(12))
def test_never_two_behind_the_fence_at_once_and_somebody_leads_in_calm(seed: int) -> None:
    random = Random(f"leaders-{seed}")
    chaos = True

    def faults() -> Faults:
        if not chaos:
            return Faults()
        draw = random.random()
        there_s, back_s = (random.choice((0.0, 0.0, 0.05, 1.0, 3.0)) for _ in range(2))
        return Faults(draw < 0.1, draw > 0.9, there_s, back_s)

    async def story(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        nonlocal chaos
        processes = [
            Process(
                loop,
                planes,
                f"p{number}",
                rate=random.uniform(0.95, 1.05),
                offset_s=random.uniform(-1e5, 1e5),
                every_s=random.choice((0.2, 2.0)),
                faults=faults,
            )
            for number in range(4)
        ]
        for process in processes:
            loop.create_task(process.lead_again_and_again())
        for _ in range(2000):
            await asyncio.sleep(0.1)
            up = [p.name for p in processes if p.election.fence.is_up]
            assert len(up) <= 1, f"two lead at {loop.time():.1f} s: {up}"
            if random.random() < 0.02:
                paused = random.choice(processes)
                paused.running.clear()
                loop.call_later(random.uniform(1, 40), paused.running.set)
        chaos = False
        await asyncio.sleep(90)
        leaders = [p for p in processes if p.election.fence.is_up]
        assert len(leaders) == 1
        await asyncio.sleep(60)
        assert leaders[0].election.fence.is_up, "in calm nobody changes"
        moments = [(at, p.name) for p in processes for at in p.writes]
        assert len(moments) > 100

    tell(story, seed)
