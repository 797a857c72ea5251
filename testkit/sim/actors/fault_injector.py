"""Injects the faults of a scenario, and recovers hosts when the calm begins.

Each fault is a task: it waits for its time, changes a simulated port, waits, and changes it back.
Faults that last forever are not changed back; ``unrecoverable_hosts`` names the hosts that they
affect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, assert_never

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import DEPLOYMENT, KINDS, NAMESPACE, WORK
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import PlaneName, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.store.journal import Change, Entry, LoadedPlane, MemoryJournal
from testkit.sim.disk import CrashPoint
from testkit.sim.host import SimulatedHost
from testkit.sim.loop import VirtualLoop, salted_random
from testkit.sim.network import Chance, LinkFaults, SimulatedNetwork
from testkit.sim.provider import Provider
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.faults import ComposedFault
from testkit.sim.scenario.scenario import WorldLayout, host_of_plane, links_of
from testkit.sim.single_host import HostTransport

_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


@dataclass(slots=True)
class SimulatedFaultInjector:
    loop: VirtualLoop
    layout: WorldLayout
    network: SimulatedNetwork
    hosts: dict[str, SimulatedHost]
    providers: dict[PlaneName, Provider]
    operator: Callable[[PlaneName], Client]
    log: Callable[[str], None]
    drop_plane: Callable[[str], None]
    restored: Callable[[dict[str, LoadedPlane]], None]
    tamper: Callable[[str, Ref], None]
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    unrecoverable_hosts: dict[str, None] = field(default_factory=dict)
    annotating: int = 0  # operators that annotate every object of a plane

    async def run(self, faults: Iterable[f.Fault]) -> None:
        """Inject the faults and return when all are over. A temporary fault ends with the calm."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._run_fault(fault))

    def recover(self) -> None:
        """Begin the calm: inject no new fault, and start every host that can recover."""
        self.calm.set()
        for host in self.hosts.values():
            host.disk.crash_points.clear()
            host.disk.doubtful.clear()
        for host in self.hosts.values():
            if host.name not in self.unrecoverable_hosts:
                host.start()

    async def _run_fault(self, fault: f.Fault) -> None:
        await asyncio.sleep(max(0.0, fault.at_s - self.loop.time()))
        if self.calm.is_set():
            return
        self.log(f"fault {type(fault).__name__}")
        self.network.sometimes(f"fault {type(fault).__name__}")
        await self._inject(fault)

    async def wait_until_over(self, for_s: float) -> None:
        """Wait until the fault is over or the calm begins."""
        if for_s == f.FOR_EVER:
            await self.loop.create_future()
        try:
            async with asyncio.timeout(for_s):
                await self.calm.wait()
        except TimeoutError:
            return

    def _inject(self, fault: f.Fault) -> Coroutine[Any, Any, None]:
        if isinstance(fault, ComposedFault):
            return inject_composed(self, fault)
        match fault:
            case (
                f.CrashAtCommit()
                | f.CrashBetweenPlanes()
                | f.StopHost()
                | f.EmptyHost()
                | f.PauseHost()
                | f.SkewClock()
            ):
                return self._inject_process_fault(fault)
            case f.FillDisk() | f.BreakSync() | f.SlowHost():
                return self._inject_disk_fault(fault)
            case f.CutLink() | f.IsolateHost() | f.FlapLink() | f.SwizzleClog():
                return self._inject_link_fault(fault)
            case f.LoseRequests() | f.DelayWrites() | f.RepeatWrites() | f.Throttle():
                return self._inject_request_fault(fault)
            case f.ConflictStorm():
                return self._cause_conflicts(fault)
            case f.LyingProvider() | f.ProviderAway() | f.LoseMachine():
                return self._inject_provider_fault(fault)
            case f.CloseWatches() | f.ForgetHistory() | f.HalfOpenWatches():
                return self._end_watches(fault)
            case _:
                return self._inject_view_fault(fault)

    # --- processes

    async def _inject_process_fault(
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
                process_name = host.process_name
                self.loop.pause(process_name)
                await self.wait_until_over(for_s)
                self.loop.resume(process_name)
            case f.SkewClock(_, _, skew_s):
                host.skew_s = skew_s
            case _:
                assert_never(fault)

    def stop_forever(self, host: SimulatedHost) -> None:
        """Stop the host; it never starts again."""
        host.crash(down_s=f.FOR_EVER)
        host.is_lost = True  # a restart may be scheduled already
        self.unrecoverable_hosts[host.name] = None

    async def _empty(self, host: SimulatedHost) -> None:
        if host.is_lost:
            return
        host.crash(down_s=f.FOR_EVER)
        host.disk.journal = MemoryJournal()
        for plane in host.roles.serves:
            self.drop_plane(plane)
            if plane in self.providers:
                self.providers[plane].machines.clear()
        await self.wait_until_over(2.0)
        host.start()

    async def _stop(self, host: SimulatedHost, for_s: float) -> None:
        if for_s == f.FOR_EVER:
            self.stop_forever(host)
            return
        host.crash(down_s=f.FOR_EVER)
        await self.wait_until_over(for_s)
        if host.name not in self.unrecoverable_hosts:
            host.start()

    # --- disks

    async def _inject_disk_fault(self, fault: f.FillDisk | f.BreakSync | f.SlowHost) -> None:
        disk = self.hosts[fault.host].disk
        match fault:
            case f.FillDisk(_, for_s, _):
                disk.full = True
                await self.wait_until_over(for_s)
                disk.full = False
            case f.BreakSync(_, _, kept):
                disk.doubtful.append(kept)
            case f.SlowHost(_, for_s, name, factor):
                disk.slowness *= factor
                links = [self.network.link_faults(s, t) for s, t in self._links() if name in (s, t)]
                for link_faults in links:
                    link_faults.slowness.append(0.01 * factor)
                await self.wait_until_over(for_s)
                disk.slowness /= factor
                for link_faults in links:
                    link_faults.slowness.remove(0.01 * factor)
            case _:
                assert_never(fault)

    # --- links

    def _links(self) -> list[tuple[str, str]]:
        """Return both directions of every link that the world uses."""
        both = [pair for s, t in links_of(self.layout) for pair in ((s, t), (t, s))]
        return list(dict.fromkeys(both))

    async def _inject_link_fault(
        self, fault: f.CutLink | f.IsolateHost | f.FlapLink | f.SwizzleClog
    ) -> None:
        match fault:
            case f.CutLink(_, for_s, source, target):
                await self._cut([(source, target)], for_s)
            case f.IsolateHost(_, for_s, host):
                if for_s == f.FOR_EVER:
                    self.unrecoverable_hosts[host] = None
                apart = [(s, t) for s, t in self._links() if s != t and host in (s, t)]
                await self._cut(apart, for_s)
            case f.FlapLink(_, for_s, source, target, period_s):
                end_s = self.loop.time() + for_s
                while self.loop.time() < end_s and not self.calm.is_set():
                    await self._cut([(source, target)], period_s)
                    await self.wait_until_over(period_s)
            case f.SwizzleClog(_, for_s, salt):
                await self._cut_in_random_order(for_s, salt)
            case _:
                assert_never(fault)

    async def _cut(self, links: Sequence[tuple[str, str]], for_s: float) -> None:
        for source, target in links:
            self.network.link_faults(source, target).cut += 1
        await self.wait_until_over(for_s)
        for source, target in links:
            self.network.link_faults(source, target).cut -= 1

    async def _cut_in_random_order(self, for_s: float, salt: int) -> None:
        random, links = salted_random(salt), self._links()
        step_s = for_s / (2 * len(links))
        random.shuffle(links)
        for source, target in links:
            self.network.link_faults(source, target).cut += 1
            await self.wait_until_over(step_s)
        random.shuffle(links)
        for source, target in links:
            self.network.link_faults(source, target).cut -= 1
            await self.wait_until_over(step_s)

    # --- requests

    async def _inject_request_fault(
        self, fault: f.LoseRequests | f.DelayWrites | f.RepeatWrites | f.Throttle
    ) -> None:
        link_faults = self.network.link_faults(fault.source, fault.target)
        chance = _chance(fault.percent, fault.salt)
        match fault:
            case f.LoseRequests(applied=True):
                await self._apply_while(fault.for_s, link_faults.lost_after, chance)
            case f.LoseRequests():
                await self._apply_while(fault.for_s, link_faults.lost_before, chance)
            case f.DelayWrites(delay_s=delay_s):
                await self._apply_while(fault.for_s, link_faults.delayed, (chance, delay_s))
            case f.RepeatWrites(delay_s=delay_s):
                await self._apply_while(fault.for_s, link_faults.repeated, (chance, delay_s))
            case f.Throttle():
                await self._apply_while(fault.for_s, link_faults.throttled, chance)
            case _:
                assert_never(fault)

    async def _apply_while(self, for_s: float, active: list[Any], entry: object) -> None:
        active.append(entry)
        await self.wait_until_over(for_s)
        active.remove(entry)

    async def _cause_conflicts(self, fault: f.ConflictStorm) -> None:
        """Write to every object of a kind at intervals, as a second writer would."""
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
                for watch_stream in self.network.watch_streams(source, target):
                    watch_stream.close()
            case f.HalfOpenWatches(_, source, target):
                for watch_stream in self.network.watch_streams(source, target):
                    watch_stream.half_open = True
            case f.ForgetHistory(_, name):
                self.hosts[name].compact_history()
            case _:
                assert_never(fault)

    async def _inject_view_fault(
        self,
        fault: f.StaleLists
        | f.BreakPages
        | f.SlowWatches
        | f.RepeatEvents
        | f.LagWatches
        | f.LoseDeletes,
    ) -> None:
        link_faults = self.network.link_faults(fault.source, fault.target)
        match fault:
            case f.StaleLists(age_s=age_s):
                await self._apply_while(fault.for_s, link_faults.stale_s, age_s)
            case f.SlowWatches(delay_s=delay_s):
                await self._apply_while(fault.for_s, link_faults.slow_watch_s, delay_s)
            case f.LagWatches(delay_s=delay_s):
                await self._apply_while(fault.for_s, link_faults.lag_s, delay_s)
            case f.RepeatEvents():
                chance = _chance(fault.percent, fault.salt)
                await self._apply_while(fault.for_s, link_faults.replays, chance)
            case f.BreakPages():
                link_faults.broken_pages += 1
                await self.wait_until_over(fault.for_s)
                link_faults.broken_pages -= 1
            case f.LoseDeletes():
                await self._lose_deletes(fault, link_faults)
            case _:
                assert_never(fault)

    async def _lose_deletes(self, fault: f.LoseDeletes, link_faults: LinkFaults) -> None:
        link_faults.deletes_lost += 1
        await self.wait_until_over(fault.for_s)
        link_faults.deletes_lost -= 1
        for watch_stream in self.network.watch_streams(fault.source, fault.target):
            watch_stream.expire()

    # --- providers

    async def _inject_provider_fault(
        self, fault: f.LyingProvider | f.ProviderAway | f.LoseMachine
    ) -> None:
        provider = self.providers[cell_plane(fault.cell)]
        match fault:
            case f.LyingProvider(_, for_s, _, lie):
                provider.lie = lie
                await self.wait_until_over(for_s)
                provider.report_correctly()
            case f.ProviderAway(_, for_s, _):
                provider.away += 1
                await self.wait_until_over(for_s)
                provider.away -= 1
            case f.LoseMachine(_, _, pick):
                names = sorted(provider.alive())
                if names:
                    provider.kill(names[pick % len(names)])
            case _:
                assert_never(fault)


def nth_commit(commits: int, *, durable: bool) -> CrashPoint:
    """Return the crash point right before or right after the n-th commit from now is durable."""
    left = commits

    def crash_point(_batch: Sequence[Entry], is_durable: bool) -> bool:
        nonlocal left
        if not is_durable:
            left -= 1
        return left == 0 and is_durable == durable

    return crash_point


def after_a_work(batch: Sequence[Entry], durable: bool) -> bool:
    """Crash when the hub has committed a Work and its cell has not received it."""
    return durable and any(
        isinstance(entry, Change) and entry.key.resource == WORK.resource for entry in batch
    )


def _chance(percent: int, salt: int) -> Chance:
    random = salted_random(salt)
    return lambda: random.random() * 100 < percent


# The disk hangs for this multiple of its latency; the hub observes the last commit meanwhile.
_HANG_FACTOR, _OBSERVE_S = 10_000.0, 0.5
_ANNOTATION = {"metadata": {"annotations": {"migration.test/done": "true"}}}


async def inject_composed(injector: SimulatedFaultInjector, fault: f.ComposedFault) -> None:
    match fault:
        case f.LoseHistory():
            await _lose_history(injector, fault)
        case f.AnswerFromCache():
            await _answer_from_cache(injector, fault)
        case f.ExpireToken():
            link_faults = injector.network.link_faults(fault.source, fault.target)
            link_faults.unauthorized += 1
            await injector.wait_until_over(fault.for_s)
            link_faults.unauthorized -= 1
        case f.RestorePlane():
            await _restore(injector, fault)
        case f.TouchEverything():
            injector.annotating += 1
            await _annotate_everything(injector.operator(PlaneName(fault.plane)))
            injector.annotating -= 1
        case f.SlowDisk(_, for_s, host, factor):
            disk = injector.hosts[host].disk
            disk.slowness *= factor
            await injector.wait_until_over(for_s)
            disk.slowness /= factor
        case f.DeleteNewNamespace(_, host):
            injector.hosts[host].disk.crash_points.append(_deletes_new_namespace(injector, host))
        case f.DieWithCopy():
            await _die_with_copy(injector, fault)
        case f.BurnMachines():
            await _burn_machines(injector, fault)
        case _:
            assert_never(fault)


async def _lose_history(injector: SimulatedFaultInjector, fault: f.LoseHistory) -> None:
    link_faults = injector.network.link_faults(fault.source, fault.target)
    link_faults.watches_refused += 1
    for watch_stream in injector.network.watch_streams(fault.source, fault.target):
        watch_stream.close()
    await injector.wait_until_over(fault.for_s)
    injector.hosts[fault.target].compact_history()
    link_faults.watches_refused -= 1


async def _answer_from_cache(injector: SimulatedFaultInjector, fault: f.AnswerFromCache) -> None:
    link_faults = injector.network.link_faults(fault.source, fault.target)
    link_faults.cached_s.append(fault.age_s)
    injector.hosts[fault.source].crash(down_s=0.1)
    await injector.wait_until_over(fault.for_s)
    link_faults.cached_s.remove(fault.age_s)


async def _restore(injector: SimulatedFaultInjector, fault: f.RestorePlane) -> None:
    plane = PlaneName(fault.plane)
    host = injector.hosts[host_of_plane(injector.layout, plane)]
    backup = host.disk.journal.copy()
    await injector.wait_until_over(fault.for_s)
    if host.name in injector.unrecoverable_hosts:
        return
    host.crash(down_s=float("inf"))
    host.disk.journal.restore(plane, backup)
    injector.restored({plane: (await host.disk.journal.load())[plane]})
    host.start()


async def _annotate_everything(operator: Client) -> None:
    for kind in KINDS:
        try:
            found = (await operator.list_plain(kind)).items
        except (ApiError, Unreachable):
            continue
        for item in found:
            await _annotate(operator, kind, item["metadata"])


async def _annotate(operator: Client, kind: KindInfo[Any], metadata: dict[str, Any]) -> None:
    try:
        ref = Ref(metadata.get("namespace", ""), metadata["name"])
        await operator.patch_plain(kind, ref, _ANNOTATION)
    except (ApiError, Unreachable):
        return


def _deletes_new_namespace(injector: SimulatedFaultInjector, name: str) -> CrashPoint:
    """Delete the next namespace as soon as it is committed. This crash point never crashes the
    host."""
    host, done = injector.hosts[name], False

    def crash_point(batch: Sequence[Entry], durable: bool) -> bool:
        nonlocal done
        for entry in batch if durable and not done else ():
            if _is_new_namespace(entry):
                done = True
                host.spawn(delete(PlaneName(entry.plane), Ref("", entry.key.name)))
        return False

    async def delete(plane: PlaneName, ref: Ref) -> None:
        injector.tamper(plane, ref)
        injector.log(f"operator deletes namespace {ref.name} on {plane} right after its creation")
        client = Client(
            HostTransport(host.answer_operator), prefix=path_prefix(plane), token="", agent="test"
        )
        try:
            await client.delete(NAMESPACE, ref)
        except (ApiError, Unreachable):
            return

    return crash_point


def _is_new_namespace(entry: Entry) -> TypeGuard[Change]:
    if not isinstance(entry, Change) or entry.key.resource != NAMESPACE.resource:
        return False
    body = entry.body or b'"Terminating"'
    return entry.key.name.startswith("ns-") and b'"Terminating"' not in body


async def _die_with_copy(injector: SimulatedFaultInjector, fault: f.DieWithCopy) -> None:
    host, stored = injector.hosts[fault.host], asyncio.Event()

    def crash_point(batch: Sequence[Entry], durable: bool) -> bool:
        if durable and not stored.is_set() and any(map(_is_new_copy, batch)):
            host.disk.slowness *= _HANG_FACTOR
            stored.set()
        return False

    host.disk.crash_points.append(crash_point)
    async with asyncio.TaskGroup() as group:
        calm = group.create_task(injector.calm.wait())
        copied = group.create_task(stored.wait())
        await asyncio.wait((calm, copied), return_when=asyncio.FIRST_COMPLETED)
        for task in (calm, copied):
            task.cancel()
    if stored.is_set() and not injector.calm.is_set():
        await asyncio.sleep(_OBSERVE_S)
        injector.stop_forever(host)


def _is_new_copy(entry: Entry) -> bool:
    """Return True for a deployment as the hub wrote it, before the cell reported a status."""
    if not isinstance(entry, Change) or entry.key.resource != DEPLOYMENT.resource:
        return False
    return entry.body is not None and b'"observedGeneration"' not in entry.body


async def _burn_machines(injector: SimulatedFaultInjector, fault: f.BurnMachines) -> None:
    provider = injector.providers[cell_plane(fault.cell)]
    for machine_id in list(provider.machines):
        provider.kill(machine_id)
    provider.lie = "never-there"
    await injector.wait_until_over(fault.for_s)
    provider.report_correctly()
