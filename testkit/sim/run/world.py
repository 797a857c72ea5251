"""Runs one scenario in three phases: chaos, calm and end.

- Chaos: users act and faults happen. The checks run at every commit.
- Calm: everything that can recover has recovered. Within CONVERGE_S the actual state must equal the
  desired state; after that nothing may be written for QUIET_S.
- End: users delete everything, and the same must hold for the empty world.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from datum_compute.api.errors import ApiError
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER, WORK, WORKLOAD
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    path_prefix,
    project_plane,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.client.transport.retry import Backoff, RetryingTransport
from datum_compute.drivers.simulated.driver import no_adoption_delay_s
from datum_compute.runtime.leader_election import LeadershipLost
from datum_compute.store.journal import JournalBroken, MemoryJournal
from testkit.sim.actors.fault_injector import SimulatedFaultInjector
from testkit.sim.actors.operators import join
from testkit.sim.actors.users import Effect, Users
from testkit.sim.actors.visitors import Visitors
from testkit.sim.checks.client_view import LogChecker, WatchMirror, find_confirmation_violations
from testkit.sim.checks.convergence import find_leftovers, find_missing, summarize_state
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.invariants import (
    InvariantBroken,
    Observer,
    exclusion_checked,
    find_leadership_violation,
)
from testkit.sim.checks.machine_watch import LOOK_S, find_machine_violation, is_watched
from testkit.sim.checks.serving import find_removal_violation
from testkit.sim.checks.state import ClusterState
from testkit.sim.checks.suspension import find_removed_machine
from testkit.sim.disk import Disk
from testkit.sim.host import (
    EPOCH_S,
    CellMachines,
    HostEnvironment,
    SimulatedHost,
    credentials_of,
    roles_of,
)
from testkit.sim.loop import VirtualLoop, run_virtual, stream
from testkit.sim.network import SimulatedNetwork, WrapTransport
from testkit.sim.provider import Provider, adoption_times
from testkit.sim.scenario.faults import (
    DelayWrites,
    EmptyHost,
    ExpireToken,
    LoseMachine,
    LyingProvider,
    ProviderAway,
    RepeatWrites,
    RestorePlane,
    SkewClock,
    Throttle,
)
from testkit.sim.scenario.feature_templates import NEW_PROJECT
from testkit.sim.scenario.operations import AllowFallback, LeaveCell
from testkit.sim.scenario.scenario import (
    USER,
    Scenario,
    WorldLayout,
    city_of,
    host_of_cell,
    host_of_plane,
)

T = TypeVar("T")

CONVERGE_S = 300.0
SETTLE_S = 5.0
# A key that failed repeatedly in a throttled world is retried after this time at the latest.
RETRY_MAX_S = Backoff().most_s
ADOPTION_REPORTED_S = 2.0
# Longer than nearly all periodic checks of the product (a minute). In every n-th world it is also
# longer than the checks every five minutes.
QUIET_S = 70.0
_LONG_QUIET_EVERY, _LONG_QUIET_S = 20, 340.0
# Limit of requests for each host and second: probes, bookmarks and observations of machines.
REQUESTS_IN_SILENCE = 20.0
TASKS_MORE = 5  # a watch may be about to be reopened
# By host: its rows, the number of ids it has created, and the certificate of a cell.
Disks = dict[str, tuple[MemoryJournal, int, str]]
# In every n-th world all processes restart when it has settled (I24).
_RESTARTED_EVERY, _RESTARTED_AT = 10, 5
_BRING_UP_S = 35.0
# Every n-th seed also runs without faults, and must end in the same state (I21).
_COMPARED_EVERY = 10


class WorldBroken(AssertionError):
    """A run violated a rule; carries the cause and the trace."""

    def __init__(self, cause: BaseException, trace: Sequence[str]) -> None:
        super().__init__(str(cause) or repr(cause))
        self.cause = cause
        self.trace = tuple(trace)


@dataclass(frozen=True, slots=True)
class SettledState:
    """What faults must not change (I21)."""

    final: tuple[str, ...]
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. Equal scenarios have equal outcomes, in any process."""

    commits: int
    crashes: int
    virtual_s: float
    trace: Sequence[str]
    sometimes: dict[str, int]  # how often each fault occurred in which state
    final: tuple[str, ...]  # the settled state, without ids, versions and times
    effects: tuple[Effect, ...] = ()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def run_scenario(scenario: Scenario) -> Outcome:
    """Run a scenario. Raise WorldBroken with the trace so far if a rule is violated."""
    outcome = _run(scenario, World.run)
    if scenario.faults and scenario.seed % _COMPARED_EVERY == 0:
        _compare(scenario, outcome)
    return outcome


def _compare(scenario: Scenario, outcome: Outcome) -> None:
    """I21: the final state does not depend on the faults."""
    if any(sign == "host lost" for sign in outcome.sometimes) or scenario.layout.has_scarce_quota:
        return  # which instances get quota is random
    if any(isinstance(operation, AllowFallback) for operation in scenario.operations):
        return  # without faults no city fails, so nothing moves
    calm = _run(replace(scenario, faults=()), until=World.settle)
    if calm.effects != outcome.effects:
        # Faults delay access. A decision has no effect while the consumer is absent or terminating,
        # and a user gives up a deploy when access comes too late.
        return
    differing = sorted(set(calm.final) ^ set(outcome.final))
    if differing:
        cause = InvariantBroken("I21: ends otherwise than without faults: " + differing[0])
        raise WorldBroken(cause, (*outcome.trace, *differing))


def _run(scenario: Scenario, until: Callable[[World, Disks], Awaitable[T]]) -> T:
    traces: list[Sequence[str]] = [()]
    disks = {} if scenario.fresh else bring_up(scenario.layout)

    async def main(loop: VirtualLoop) -> T:
        world = World(loop, scenario)
        traces[0] = world.observer.trace
        with world.log_checker(), exclusion_checked(world.observer.report_violation):
            return await until(world, disks)

    try:
        with _garbage_collection_disabled():
            return run_virtual(stream(scenario.seed, "schedule"), main, scenario.shuffled_s)
    except Exception as error:  # also a bug, in the product or here: the trace shows where
        raise WorldBroken(error, traces[0]) from error


@contextmanager
def _garbage_collection_disabled() -> Iterator[None]:
    """Disable garbage collection. A world becomes garbage only as a whole, and no finalizer may run
    during it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class World:
    def __init__(self, loop: VirtualLoop, scenario: Scenario) -> None:
        layout = scenario.layout
        self._loop = loop
        self._scenario = scenario
        self.sometimes: Counter[str] = Counter()
        self.providers = {cell_plane(cell): Provider(self._unix_s) for cell in layout.all_cells}
        self.state = ClusterState(self.providers, loop.time)
        self.state.only_machines_fail = all(
            isinstance(fault, LyingProvider | ProviderAway | LoseMachine)
            for fault in scenario.faults
        )
        self.state.writes_come_late = any(
            isinstance(fault, DelayWrites | RepeatWrites) for fault in scenario.faults
        )
        self.state.clocks_jump = any(isinstance(fault, SkewClock) for fault in scenario.faults)
        for cell, provider in self.providers.items():
            provider.on_remove = partial(self._on_remove, cell)
            provider.adoption_s = adoption_times(stream(scenario.seed, "adoption", cell))
        self.observer = Observer(self.state, (*layout.projects, NEW_PROJECT))
        self.observer.on_broken = self._stop
        self.network = SimulatedNetwork(
            lambda part: stream(scenario.seed, "network", part),
            self.state.version_before,
            self._count,
        )
        if layout.managers > 1:
            self.network.on_send = self._on_send
        self._credentials = credentials_of(layout.planes)
        self.hosts = self._build_all_hosts()
        machines = CellMachines(self.hosts, self.providers, self.state.drop_plane, self.client)
        self.users = Users(self.client, self.observer.log, layout.planes, machines)
        self.state.tampered = self.users.tampered
        self.injector = SimulatedFaultInjector(
            loop=loop,
            layout=layout,
            network=self.network,
            hosts=self.hosts,
            providers=self.providers,
            operator=self.client,
            log=self.observer.log,
            drop_plane=self.state.drop_plane,
            restored=self.state.restore,
            tamper=self.users.tamper,
        )
        self.users.is_lost = self._is_lost
        self._mirrors = self._build_mirrors()

    def _is_lost(self, plane: str) -> bool:
        return (
            host_of_plane(self._scenario.layout, PlaneName(plane))
            in self.injector.unrecoverable_hosts
        )

    # --- phases of the run

    async def run(self, disks: Disks) -> Outcome:
        settled, busy = await self.settle(disks), self._tasks_alive()
        if self._scenario.seed % _RESTARTED_EVERY == _RESTARTED_AT and self._is_sound():
            await self._restart_all()
        self.observer.log("the end: everything is deleted")
        await self.users.delete_everything()
        await self._until(lambda: find_leftovers(self.state, self._expected()))
        await self._check_quiet()
        self._check_tasks(busy)
        return Outcome(
            commits=sum(host.disk.commits for host in self.hosts.values()),
            crashes=sum(host.crash_count for host in self.hosts.values()),
            virtual_s=self._loop.time(),
            trace=self.observer.trace,
            sometimes=dict(sorted(self.sometimes.items())),
            final=settled.final,
            effects=settled.effects,
        )

    async def settle(self, disks: Disks) -> SettledState:
        """Run chaos, then calm until the world has settled; return a summary of its state."""
        await self._bring_up(disks)
        scenario = self._scenario
        for mirror in self._mirrors:
            self._loop.create_task(mirror.run())
        if is_watched(scenario.faults):
            self._loop.create_task(self._watch_machines())
        acting = self._loop.create_task(self.users.perform_all(scenario.operations))
        if scenario.layout.published:
            visitors = Visitors(self.hosts, self.state, self.observer.report_violation, self._count)
            self._loop.create_task(visitors.run(scenario))
        injecting = self._loop.create_task(self.injector.run(scenario.faults))
        await asyncio.sleep(scenario.chaos_s)
        self.injector.recover()
        self.observer.log("calm")
        await self._until(lambda: "" if acting.done() else "users still retry")
        await acting
        await self._until(lambda: "late writes arrive" if self.network.in_transit else "")
        await self._until(lambda: "an operator writes" if self.injector.annotating else "")
        if injecting.done():
            await injecting
        # A backlog of events arrives at a known time; the product can react only after that.
        await self._until(
            self.network.find_stalled_streams, from_s=self.network.backlog_arrives_s()
        )
        await self._until(self._find_unobserved_machines)
        await self._until(lambda: find_missing(self.state, self._expected()))
        await self._check_quiet()
        final = summarize_state(self.state, self._expected())
        return SettledState(final, tuple(self.users.effects))

    async def _bring_up(self, disks: Disks) -> None:
        for name, (image, ids, certificate) in disks.items():
            host = self.hosts[name]
            host.disk.journal = image.copy()
            host.certificate = certificate
            host.continue_ids(ids)
            self.state.load_rows(await image.load())
        for host in self.hosts.values():
            host.start()
        await self.join_cells()

    async def join_cells(self) -> None:
        """Join the cells that exist from the beginning of a world whose cells join."""
        for cell in self._scenario.layout.cells if self._scenario.layout.joined else ():
            if not self.hosts[f"cell-{cell}"].certificate:
                await join(self.users, cell)
            self.users.serving[city_of(cell)] = cell

    async def _watch_machines(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if violation := find_machine_violation(self.state):
                self.observer.report_violation(violation)

    async def _until(self, missing: Callable[[], str], *, from_s: float = 0.0) -> None:
        """Wait until ``missing`` returns the empty string. CONVERGE_S counts from ``from_s``, or
        from now if that is later."""
        deadline_s, wait_s = max(self._loop.time(), from_s) + CONVERGE_S, 0.5
        while left := missing():
            self._fail_if_broken()
            if self._loop.time() > deadline_s:
                raise InvariantBroken(f"I6: not converged after {CONVERGE_S:g} s: {left}")
            await asyncio.sleep(wait_s)
            wait_s = min(5.0, wait_s * 1.2)
        self._fail_if_broken()

    async def _check_quiet(self) -> None:
        """I6, I20: check that a settled system writes nothing and sends few requests."""
        # Events during these faults increase the delay of the next retry.
        refused = any(isinstance(fault, Throttle | ExpireToken) for fault in self._scenario.faults)
        await asyncio.sleep(SETTLE_S + (RETRY_MAX_S if refused else 0.0))
        quiet_s = self._quiet_s()
        while True:
            writes, lines = self.state.writes, len(self.observer.trace)
            requests, late = self.network.requests, self.state.count_late_rollouts()
            await asyncio.sleep(quiet_s)
            self._fail_if_broken()
            if self.state.writes == writes:
                break
            # A rollout that cannot complete, such as one without quota on a lost cell, passes its
            # deadline once. Its status then changes in a settled system.
            if self.state.count_late_rollouts() <= late:
                written = "\n".join(self.observer.trace[lines:][:10])
                raise InvariantBroken(f"I6: writes in a settled system:\n{written}")
        asked = (self.network.requests - requests) / quiet_s / len(self.hosts)
        if asked > REQUESTS_IN_SILENCE and not self.injector.unrecoverable_hosts:
            raise InvariantBroken(f"I20: {asked:.0f} requests a second from each settled host")
        lost = {
            cell_plane(cell) for cell in self._expected().lost
        }  # a lost cell cannot send the rest
        for mirror in self._mirrors:
            if mirror.plane not in lost and (missing := mirror.find_missing()):
                raise InvariantBroken(missing)

    def _tasks_alive(self) -> dict[str, int]:
        return {
            host.process_name: self._loop.tasks_alive(host.process_name)
            for host in self.hosts.values()
        }

    def _check_tasks(self, before: dict[str, int]) -> None:
        """I20: check that after everything was deleted processes have no more tasks than before."""
        for process_name, count in self._tasks_alive().items():
            if count > before.get(process_name, count) + TASKS_MORE:
                raise InvariantBroken(
                    f"I20: {process_name} has {count} tasks, {before[process_name]} before"
                )

    def _is_sound(self) -> bool:
        """Return True if no cell is lost and no operator left contradictory objects."""
        return not self.injector.unrecoverable_hosts and not self.users.tampered

    async def _restart_all(self) -> None:
        """I24: check that processes that start on settled stores, as after an upgrade, write
        nothing."""
        self.observer.log("all processes restart")
        writes, lines = self.state.writes, len(self.observer.trace)
        for provider in self.providers.values():
            provider.adoption_s = no_adoption_delay_s  # a longer delay would be reported as Unknown
        for host in self.hosts.values():
            host.crash(down_s=0.1)
        await asyncio.sleep(QUIET_S)
        self._fail_if_broken()
        if self.state.writes != writes:
            written = "\n".join(self.observer.trace[lines:][:10])
            raise InvariantBroken(f"I24: a restart on settled stores wrote:\n{written}")

    def _find_unobserved_machines(self) -> str:
        """Return a cell whose process has adopted machines that it has not observed yet, or
        observed a moment ago."""
        for cell, provider in self.providers.items():
            if provider.now() < provider.observed_from_s + ADOPTION_REPORTED_S:
                return f"{cell} observes the machines that it has adopted"
        return ""

    def _quiet_s(self) -> float:
        return QUIET_S if self._scenario.seed % _LONG_QUIET_EVERY else _LONG_QUIET_S

    def _fail_if_broken(self) -> None:
        if self.observer.broken is not None:
            raise self.observer.broken

    def _expected(self) -> ExpectedState:
        layout = self._scenario.layout
        lost = frozenset(
            cell
            for cell in layout.cells
            if host_of_cell(layout, cell) in self.injector.unrecoverable_hosts
        )
        if lost:
            self.sometimes["host lost"] = len(lost)
        left = tuple(name for name in layout.projects if name not in self.users.revoked)
        expected_projects = (*left, *self.users.new_projects)
        desired, serving = self.users.desired, self.users.serving
        return ExpectedState(
            desired,
            expected_projects,
            layout.all_cells,
            lost,
            layout.instances,
            serving,
            frozenset(self.users.returned),
        )

    # --- exits and crashes of hosts

    def _unix_s(self) -> float:
        return EPOCH_S + self._loop.time()

    def _stop(self, error: InvariantBroken) -> None:
        """Stop the loop: nothing after a violation is meaningful."""
        self._loop.call_exception_handler({"message": str(error), "exception": error})

    def _count(self, sign: str) -> None:
        self.sometimes[sign] += 1

    def _on_exit(self, host: str, error: BaseException) -> None:
        """Check that a process exits by itself only after a disk failure or with a lost lease."""
        self.observer.log(f"{host} ended: {error!r}")
        self._count("process ended by itself")
        if isinstance(error, LeadershipLost):
            self._count("leadership lost")
            return
        if not _is_disk_error(error) or not self.hosts[host].disk.failed:
            self.observer.report_violation(
                f"{host} ended: {error!r} {getattr(error, 'exceptions', '')}"
            )

    def _on_send(self, source: str, request: Request) -> None:
        if violation := find_leadership_violation(self.state, source, request):
            self.observer.report_violation(violation)

    def _on_death(self, host: str) -> None:
        self.observer.log(f"{host} died")
        self.network.drop_host(host)

    def _on_remove(self, cell: PlaneName, machine_id: str) -> None:
        for find in (find_removal_violation, find_removed_machine):
            if violation := find(self.state, cell, machine_id):
                self.observer.report_violation(violation)

    def _on_answer(self, request: Request, response: Response) -> None:
        for violation in find_confirmation_violations(self.state, request, response):
            self.observer.report_violation(violation)

    # --- construction

    def _build_all_hosts(self) -> dict[str, SimulatedHost]:
        seed = self._scenario.seed
        host_environment = HostEnvironment(
            loop=self._loop,
            credentials=self._credentials,
            providers=self.providers,
            limits=self._scenario.layout.limits,
            reach=self._reach,
            on_commit=self.observer.on_commit,
            on_crash=self._on_death,
            on_exit=self._on_exit,
            on_answer=self._on_answer,
        )
        for number, roles in enumerate(roles_of(self._scenario.layout)):
            disk = Disk(stream(seed, "disk", roles.name))
            ids = stream(seed, "ids", roles.name)
            self.network.hosts[roles.name] = SimulatedHost(
                roles, host_environment, disk, ids, number
            )
        return self.network.hosts

    def _reach(self, source: str, plane: PlaneName, wrap: WrapTransport) -> Transport:
        target = host_of_plane(self._scenario.layout, plane)
        link = wrap(self.network.transport(source, target))
        if source == target:
            return link
        random = stream(self._scenario.seed, "network", f"retries-{source}-{target}")
        return RetryingTransport(link, random)

    def client(self, plane: PlaneName, token: str = "") -> Client:
        """Return a client outside of all hosts. Its link is sound, but the host may crash between
        request and response. The default token is that of the platform's operator."""
        target, known = host_of_plane(self._scenario.layout, plane), self._credentials.planes
        return Client(
            self.network.transport(USER, target),
            prefix=path_prefix(plane),
            token=token or known.get(plane) or known[PLATFORM],
            agent="simulated-user",
        )

    def _build_mirrors(self) -> list[WatchMirror]:
        steps = (*self._scenario.faults, *self._scenario.operations)
        if any(isinstance(step, EmptyHost | RestorePlane | LeaveCell) for step in steps):
            return []  # versions start again there, or rows change without an event
        layout = self._scenario.layout
        project, cell = project_plane(layout.projects[0]), cell_plane(layout.cells[0])
        choices = (
            ((HUB, WORK), (cell, INSTANCE)),
            ((project, WORKLOAD), (HUB, INSTANCE)),
            ((project, DEPLOYMENT), (cell, SERVER)),
        )
        return [
            WatchMirror(self.client(plane), plane, kind, self.state, self.observer.report_violation)
            for plane, kind in choices[self._scenario.seed % len(choices)]
        ]

    def log_checker(self) -> LogChecker:
        return LogChecker(self.observer.report_violation)


def bring_up(layout: WorldLayout) -> Disks:
    """Return the disks of a platform that has just come up; many worlds share them."""
    return _bring_up_layout(initial_layout(layout))


def initial_layout(layout: WorldLayout) -> WorldLayout:
    """Return the layout without what users do later. Worlds with an equal initial layout begin with
    the same platform."""
    return replace(layout, revocable=(), published=False)


@lru_cache(maxsize=64)
def _bring_up_layout(layout: WorldLayout) -> Disks:

    async def main(loop: VirtualLoop) -> Disks:
        world = World(loop, Scenario(0, layout, (), (), 0.0, fresh=True))
        for host in world.hosts.values():
            host.start()
        await world.join_cells()
        await asyncio.sleep(_BRING_UP_S)
        assert all(host.is_up for host in world.hosts.values()), "a host did not come up"
        return {
            host.name: (host.disk.journal, host.last_id, host.certificate)
            for host in world.hosts.values()
        }

    with _garbage_collection_disabled():
        return run_virtual(stream(0, "schedule"), main)


def _is_disk_error(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_disk_error(inner) for inner in error.exceptions)
    return isinstance(error, JournalBroken | ApiError)
