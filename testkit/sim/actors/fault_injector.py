"""Makes the faults of a scenario happen, and heals what can be healed when the calm begins.

Each fault is a task of its own: it waits for its time, bends something, waits, and bends it back.
Faults that last for ever are left as they are; ``lost`` names the hosts that are outside the
healthy core because of that.

Makes the faults of ``composed_faults.py`` happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, assert_never

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import DEPLOYMENT, KINDS, NAMESPACE, WORK
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.store.journal import Change, Entry, LoadedPlane
from datum_compute.store.memory import MemoryJournal
from testkit.sim.disk import CrashPoint
from testkit.sim.host import SimulatedHost
from testkit.sim.loop import VirtualLoop, salted
from testkit.sim.network import Bends, Chance, Network
from testkit.sim.provider import Provider
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.faults import ComposedFault
from testkit.sim.scenario.scenario import WorldLayout, host_of_plane, links_of
from testkit.sim.single_host import HostTransport

_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


@dataclass(slots=True)
class Chaos:
    loop: VirtualLoop
    layout: WorldLayout
    network: Network
    hosts: dict[str, SimulatedHost]
    providers: dict[PlaneName, Provider]
    operator: Callable[[PlaneName], Client]
    say: Callable[[str], None]
    forget: Callable[[str], None]
    restored: Callable[[dict[str, LoadedPlane]], None]
    tamper: Callable[[str, Ref], None]
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    lost: dict[str, None] = field(default_factory=dict)

    async def reign(self, faults: Iterable[f.Fault]) -> None:
        """Returns when every fault is over; those that last end at the latest with the calm."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._happen(fault))

    def heal(self) -> None:
        """The calm begins: nothing new goes wrong, and every host that is not lost is up."""
        self.calm.set()
        for host in self.hosts.values():
            host.disk.crash_points.clear()
            host.disk.doubtful.clear()
        for host in self.hosts.values():
            if host.name not in self.lost:
                host.start()

    async def _happen(self, fault: f.Fault) -> None:
        await asyncio.sleep(max(0.0, fault.at_s - self.loop.time()))
        if self.calm.is_set():
            return
        self.say(f"fault {type(fault).__name__}")
        self.network.sometimes(f"fault {type(fault).__name__}")
        await self._bend(fault)

    async def last(self, for_s: float) -> None:
        """Until the fault is over or the calm begins, whichever is first."""
        if for_s == f.FOR_EVER:
            await self.loop.create_future()
        try:
            async with asyncio.timeout(for_s):
                await self.calm.wait()
        except TimeoutError:
            return

    def _bend(self, fault: f.Fault) -> Coroutine[Any, Any, None]:
        if isinstance(fault, ComposedFault):
            return bend_composed(self, fault)
        match fault:
            case (
                f.CrashAtCommit()
                | f.CrashBetweenPlanes()
                | f.StopHost()
                | f.EmptyHost()
                | f.PauseHost()
                | f.SkewClock()
            ):
                return self._bend_process(fault)
            case f.FillDisk() | f.BreakSync() | f.SlowHost():
                return self._bend_disk(fault)
            case f.CutLink() | f.IsolateHost() | f.FlapLink() | f.SwizzleClog():
                return self._bend_links(fault)
            case f.LoseRequests() | f.DelayWrites() | f.RepeatWrites() | f.Throttle():
                return self._bend_requests(fault)
            case f.ConflictStorm():
                return self._storm(fault)
            case f.LyingProvider() | f.ProviderAway() | f.LoseMachine():
                return self._bend_provider(fault)
            case f.CloseWatches() | f.ForgetHistory() | f.HalfOpenWatches():
                return self._end_watches(fault)
            case _:
                return self._bend_views(fault)

    # --- processes

    async def _bend_process(
        self,
        fault: f.CrashAtCommit
        | f.CrashBetweenPlanes
        | f.StopHost
        | f.EmptyHost
        | f.PauseHost
        | f.SkewClock,
    ) -> None:
        host = self.hosts[fault.host]
        match fault:
            case f.CrashAtCommit(_, _, commits, durable):
                host.disk.crash_points.append(nth_commit(commits, durable=durable))
            case f.CrashBetweenPlanes():
                host.disk.crash_points.append(after_a_work)
            case f.StopHost(_, for_s, _):
                await self._stop(host, for_s)
            case f.EmptyHost():
                await self._empty(host)
            case f.PauseHost(_, for_s, _):
                life = host.life
                self.loop.pause(life)
                await self.last(for_s)
                self.loop.resume(life)
            case f.SkewClock(_, _, skew_s):
                host.skew_s = skew_s
            case _:
                assert_never(fault)

    def lose(self, host: SimulatedHost) -> None:
        """It is gone, and never comes back."""
        host.crash(down_s=f.FOR_EVER)
        host.is_lost = True  # a restart may be scheduled already
        self.lost[host.name] = None

    async def _empty(self, host: SimulatedHost) -> None:
        if host.is_lost:
            return
        host.crash(down_s=f.FOR_EVER)
        host.disk.journal = MemoryJournal()
        for plane in host.duties.serves:
            self.forget(plane)
            if plane in self.providers:
                self.providers[plane].machines.clear()
        await self.last(2.0)
        host.start()

    async def _stop(self, host: SimulatedHost, for_s: float) -> None:
        if for_s == f.FOR_EVER:
            self.lose(host)
            return
        host.crash(down_s=f.FOR_EVER)
        await self.last(for_s)
        if host.name not in self.lost:
            host.start()

    # --- disks

    async def _bend_disk(self, fault: f.FillDisk | f.BreakSync | f.SlowHost) -> None:
        disk = self.hosts[fault.host].disk
        match fault:
            case f.FillDisk(_, for_s, _):
                disk.full = True
                await self.last(for_s)
                disk.full = False
            case f.BreakSync(_, _, kept):
                disk.doubtful.append(kept)
            case f.SlowHost(_, for_s, name, factor):
                disk.slowness *= factor
                links = [self.network.bends(s, t) for s, t in self._links() if name in (s, t)]
                for bends in links:
                    bends.slowness.append(0.01 * factor)
                await self.last(for_s)
                disk.slowness /= factor
                for bends in links:
                    bends.slowness.remove(0.01 * factor)
            case _:
                assert_never(fault)

    # --- links

    def _links(self) -> list[tuple[str, str]]:
        """Every direction between two hosts that have to do with each other."""
        both = [pair for s, t in links_of(self.layout) for pair in ((s, t), (t, s))]
        return list(dict.fromkeys(both))

    async def _bend_links(
        self, fault: f.CutLink | f.IsolateHost | f.FlapLink | f.SwizzleClog
    ) -> None:
        match fault:
            case f.CutLink(_, for_s, source, target):
                await self._cut([(source, target)], for_s)
            case f.IsolateHost(_, for_s, host):
                if for_s == f.FOR_EVER:
                    self.lost[host] = None
                apart = [(s, t) for s, t in self._links() if s != t and host in (s, t)]
                await self._cut(apart, for_s)
            case f.FlapLink(_, for_s, source, target, period_s):
                end_s = self.loop.time() + for_s
                while self.loop.time() < end_s and not self.calm.is_set():
                    await self._cut([(source, target)], period_s)
                    await self.last(period_s)
            case f.SwizzleClog(_, for_s, salt):
                await self._swizzle(for_s, salt)
            case _:
                assert_never(fault)

    async def _cut(self, links: Sequence[tuple[str, str]], for_s: float) -> None:
        for source, target in links:
            self.network.bends(source, target).cut += 1
        await self.last(for_s)
        for source, target in links:
            self.network.bends(source, target).cut -= 1

    async def _swizzle(self, for_s: float, salt: int) -> None:
        random, links = salted(salt), self._links()
        step_s = for_s / (2 * len(links))
        random.shuffle(links)
        for source, target in links:
            self.network.bends(source, target).cut += 1
            await self.last(step_s)
        random.shuffle(links)
        for source, target in links:
            self.network.bends(source, target).cut -= 1
            await self.last(step_s)

    # --- requests

    async def _bend_requests(
        self, fault: f.LoseRequests | f.DelayWrites | f.RepeatWrites | f.Throttle
    ) -> None:
        bends = self.network.bends(fault.source, fault.target)
        chance = _chance(fault.percent, fault.salt)
        match fault:
            case f.LoseRequests(applied=True):
                await self._while(fault.for_s, bends.lost_after, chance)
            case f.LoseRequests():
                await self._while(fault.for_s, bends.lost_before, chance)
            case f.DelayWrites(delay_s=delay_s):
                await self._while(fault.for_s, bends.delayed, (chance, delay_s))
            case f.RepeatWrites(delay_s=delay_s):
                await self._while(fault.for_s, bends.repeated, (chance, delay_s))
            case f.Throttle():
                await self._while(fault.for_s, bends.throttled, chance)
            case _:
                assert_never(fault)

    async def _while(self, for_s: float, bent: list[Any], entry: object) -> None:
        bent.append(entry)
        await self.last(for_s)
        bent.remove(entry)

    async def _storm(self, fault: f.ConflictStorm) -> None:
        """Another writer touches every object of a kind, again and again."""
        kind, client = _BY_RESOURCE[fault.resource], self.operator(PlaneName(fault.plane))
        end_s, round_ = self.loop.time() + fault.for_s, 0
        while self.loop.time() < end_s and not self.calm.is_set():
            round_ += 1
            try:
                for item in (await client.list_plain(kind)).items:
                    ref = Ref(item["metadata"].get("namespace", ""), item["metadata"]["name"])
                    mark = {"metadata": {"annotations": {"storm.test/round": str(round_)}}}
                    await client.patch_plain(kind, ref, mark)
            except (ApiError, Unreachable):
                pass
            await asyncio.sleep(fault.every_s)

    # --- lists and watches

    async def _end_watches(
        self, fault: f.CloseWatches | f.ForgetHistory | f.HalfOpenWatches
    ) -> None:
        match fault:
            case f.CloseWatches(_, source, target):
                for pipe in self.network.pipes(source, target):
                    pipe.close()
            case f.HalfOpenWatches(_, source, target):
                for pipe in self.network.pipes(source, target):
                    pipe.half_open = True
            case f.ForgetHistory(_, name):
                self.hosts[name].forget_history()
            case _:
                assert_never(fault)

    async def _bend_views(
        self,
        fault: f.StaleLists
        | f.BreakPages
        | f.SlowWatches
        | f.RepeatEvents
        | f.LagWatches
        | f.LoseDeletes,
    ) -> None:
        bends = self.network.bends(fault.source, fault.target)
        match fault:
            case f.StaleLists(age_s=age_s):
                await self._while(fault.for_s, bends.stale_s, age_s)
            case f.SlowWatches(delay_s=delay_s):
                await self._while(fault.for_s, bends.slow_watch_s, delay_s)
            case f.LagWatches(delay_s=delay_s):
                await self._while(fault.for_s, bends.lag_s, delay_s)
            case f.RepeatEvents():
                chance = _chance(fault.percent, fault.salt)
                await self._while(fault.for_s, bends.replays, chance)
            case f.BreakPages():
                bends.broken_pages += 1
                await self.last(fault.for_s)
                bends.broken_pages -= 1
            case f.LoseDeletes():
                await self._lose_deletes(fault, bends)
            case _:
                assert_never(fault)

    async def _lose_deletes(self, fault: f.LoseDeletes, bends: Bends) -> None:
        bends.deletes_lost += 1
        await self.last(fault.for_s)
        bends.deletes_lost -= 1
        for pipe in self.network.pipes(fault.source, fault.target):
            pipe.expire()

    # --- providers

    async def _bend_provider(self, fault: f.LyingProvider | f.ProviderAway | f.LoseMachine) -> None:
        provider = self.providers[cell_plane(fault.cell)]
        match fault:
            case f.LyingProvider(_, for_s, _, lie):
                provider.lie = lie
                await self.last(for_s)
                provider.tell_the_truth()
            case f.ProviderAway(_, for_s, _):
                provider.away += 1
                await self.last(for_s)
                provider.away -= 1
            case f.LoseMachine(_, _, pick):
                names = sorted(provider.alive())
                if names:
                    provider.kill(names[pick % len(names)])
            case _:
                assert_never(fault)


def nth_commit(commits: int, *, durable: bool) -> CrashPoint:
    """The n-th commit from now, before it is durable or right after."""
    left = commits

    def is_here(_batch: Sequence[Entry], is_durable: bool) -> bool:
        nonlocal left
        if not is_durable:
            left -= 1
        return left == 0 and is_durable == durable

    return is_here


def after_a_work(batch: Sequence[Entry], durable: bool) -> bool:
    """The hub has a Work that its cell has not seen."""
    return durable and any(
        isinstance(entry, Change) and entry.key.resource == WORK.resource for entry in batch
    )


def _chance(percent: int, salt: int) -> Chance:
    random = salted(salt)
    return lambda: random.random() * 100 < percent


# A disk that hangs, and how long the hub has to see what was stored last.
_HANGS, _LAST_WORDS_S = 10_000.0, 0.5
_TOUCHED = {"metadata": {"annotations": {"migration.test/done": "true"}}}


async def bend_composed(chaos: Chaos, fault: f.ComposedFault) -> None:
    match fault:
        case f.LoseHistory():
            await _lose_history(chaos, fault)
        case f.AnswerFromCache():
            await _answer_from_cache(chaos, fault)
        case f.ExpireToken():
            bends = chaos.network.bends(fault.source, fault.target)
            bends.unauthorized += 1
            await chaos.last(fault.for_s)
            bends.unauthorized -= 1
        case f.RestorePlane():
            await _restore(chaos, fault)
        case f.TouchEverything():
            await _touch_everything(chaos.operator(PlaneName(fault.plane)))
        case f.SlowDisk(_, for_s, host, factor):
            disk = chaos.hosts[host].disk
            disk.slowness *= factor
            await chaos.last(for_s)
            disk.slowness /= factor
        case f.DeleteNewNamespace(_, host):
            chaos.hosts[host].disk.crash_points.append(_deletes_new_namespace(chaos, host))
        case f.DieWithCopy():
            await _die_with_copy(chaos, fault)
        case f.BurnMachines():
            await _burn(chaos, fault)
        case _:
            assert_never(fault)


async def _lose_history(chaos: Chaos, fault: f.LoseHistory) -> None:
    bends = chaos.network.bends(fault.source, fault.target)
    bends.watches_refused += 1
    for pipe in chaos.network.pipes(fault.source, fault.target):
        pipe.close()
    await chaos.last(fault.for_s)
    chaos.hosts[fault.target].forget_history()
    bends.watches_refused -= 1


async def _answer_from_cache(chaos: Chaos, fault: f.AnswerFromCache) -> None:
    bends = chaos.network.bends(fault.source, fault.target)
    bends.cached_s.append(fault.age_s)
    chaos.hosts[fault.source].crash(down_s=0.1)
    await chaos.last(fault.for_s)
    bends.cached_s.remove(fault.age_s)


async def _restore(chaos: Chaos, fault: f.RestorePlane) -> None:
    plane = PlaneName(fault.plane)
    host = chaos.hosts[host_of_plane(chaos.layout, plane)]
    backup = host.disk.journal.copy()
    await chaos.last(fault.for_s)
    if host.name in chaos.lost:
        return
    host.crash(down_s=float("inf"))
    host.disk.journal.restore(plane, backup)
    chaos.restored({plane: (await host.disk.journal.load())[plane]})
    host.start()


async def _touch_everything(operator: Client) -> None:
    for kind in KINDS:
        try:
            found = (await operator.list_plain(kind)).items
        except (ApiError, Unreachable):
            continue
        for item in found:
            await _touch(operator, kind, item["metadata"])


async def _touch(operator: Client, kind: KindInfo[Any], metadata: dict[str, Any]) -> None:
    try:
        ref = Ref(metadata.get("namespace", ""), metadata["name"])
        await operator.patch_plain(kind, ref, _TOUCHED)
    except (ApiError, Unreachable):
        return


def _deletes_new_namespace(chaos: Chaos, name: str) -> CrashPoint:
    """Not a crash: waits for the commit of a namespace, and lets somebody delete it."""
    host, done = chaos.hosts[name], False

    def is_here(batch: Sequence[Entry], durable: bool) -> bool:
        nonlocal done
        for entry in batch if durable and not done else ():
            if _is_new_namespace(entry):
                done = True
                host.spawn(delete(PlaneName(entry.plane), Ref("", entry.key.name)))
        return False

    async def delete(plane: PlaneName, ref: Ref) -> None:
        chaos.tamper(plane, ref)
        chaos.say(f"operator deletes namespace {ref.name} on {plane} in its first moment")
        client = Client(
            HostTransport(host.answer_operator), prefix=path_prefix(plane), token="", agent="test"
        )
        try:
            await client.delete(NAMESPACE, ref)
        except (ApiError, Unreachable):
            return

    return is_here


def _is_new_namespace(entry: Entry) -> TypeGuard[Change]:
    if not isinstance(entry, Change) or entry.key.resource != NAMESPACE.resource:
        return False
    body = entry.body or b'"Terminating"'
    return entry.key.name.startswith("ns-") and b'"Terminating"' not in body


async def _die_with_copy(chaos: Chaos, fault: f.DieWithCopy) -> None:
    host, stored = chaos.hosts[fault.host], asyncio.Event()

    def is_here(batch: Sequence[Entry], durable: bool) -> bool:
        if durable and not stored.is_set() and any(map(_is_new_copy, batch)):
            host.disk.slowness *= _HANGS
            stored.set()
        return False

    host.disk.crash_points.append(is_here)
    async with asyncio.TaskGroup() as group:
        calm = group.create_task(chaos.calm.wait())
        copied = group.create_task(stored.wait())
        await asyncio.wait((calm, copied), return_when=asyncio.FIRST_COMPLETED)
        for task in (calm, copied):
            task.cancel()
    if stored.is_set() and not chaos.calm.is_set():
        await asyncio.sleep(_LAST_WORDS_S)
        chaos.lose(host)


def _is_new_copy(entry: Entry) -> bool:
    """A deployment as the hub made it: the cell has said nothing of it yet."""
    if not isinstance(entry, Change) or entry.key.resource != DEPLOYMENT.resource:
        return False
    return entry.body is not None and b'"observedGeneration"' not in entry.body


async def _burn(chaos: Chaos, fault: f.BurnMachines) -> None:
    provider = chaos.providers[cell_plane(fault.cell)]
    for machine_id in list(provider.machines):
        provider.kill(machine_id)
    provider.lie = "never-there"
    await chaos.last(fault.for_s)
    provider.tell_the_truth()
